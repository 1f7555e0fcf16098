package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// A terminal that hangs up while something is asked answers nothing, also where its end is read before its signal comes.
// Here no signal comes of it, since it is not the terminal that controls this process. Who hears of it twice has not
// pressed Ctrl-C twice: the session is closed.
func TestTurn_TheTerminalHangsUp(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	for _, c := range []struct {
		text  string
		twice bool
	}{{"permission", false}, {"question", false}, {"permission", true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			screenSide, keys, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer keys.Close()
			out, errOut, signals := newScreen(), newScreen(), make(chan os.Signal, 2)
			std := stdio{in: keys, out: out, err: errOut}
			noticeLeft(&std, signals)
			o := promptOptions{target: target{endpoint: url}, acp: acpversion.One, text: c.text, ending: ending{close: true}, cwd: t.TempDir(), permission: permissionRules{others: ask}, interactive: true}
			done := make(chan error, 1)
			go func() { done <- runTurn(t.Context(), o, signals, std) }()
			errOut.await(t, `\n> `)
			if c.twice {
				signals <- syscall.SIGHUP
			}
			if err := screenSide.Close(); err != nil {
				t.Fatal(err)
			}
			if err := endOf(t, done); !errors.Is(err, errInterrupted) {
				t.Errorf("it ends with %v\n%s\n%s", err, out, errOut)
			}
			id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut.String()), "session ")
			if code, info, _ := tool(t, "", "sessions", "show", id, "--json", "--endpoint", url); code != cmdline.ExitOK || !strings.Contains(info, `"state":"closed"`) {
				t.Errorf("session %q is not closed: %s", id, info)
			}
			if strings.Contains(out.String(), "reject") {
				t.Errorf("it was answered:\n%s", out)
			}
		})
	}
}

// Nor is it Ctrl-D for the program at whose terminal somebody was: that is a key of a terminal, and the end of any other input.
// Who can type no more leaves: no key would do it.
func TestAttachment_TheInputEnds(t *testing.T) {
	for raw, want := range map[bool]string{true: "", false: "\x04"} {
		keys := make(chan []byte)
		a := &attachment{raw: raw, keys: keys}
		if leaves := a.typed(nil, false); leaves != raw || string(a.held) != want || a.keys != nil {
			t.Errorf("a terminal %v: it leaves %v, and %q is typed", raw, leaves, a.held)
		}
	}
}
