package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestProve_Handshake(t *testing.T) {
	tests := []struct {
		name, body string
		want       string // handshake, or what the error says
		reported   string
	}{
		{"both", string(program("gem 1.2.3")), HandshakeInitialize, "gem 1.2.3"},
		{"only initialize", "#!/bin/sh\n[ \"$1\" = --acp ] || exit 2\n" + answersInitialize, HandshakeInitialize, "fake 1"},
		{"only its version", "#!/bin/sh\n[ \"$1\" = --version ] && { echo 1.2.3; exit; }\necho 'unknown option: --acp' >&2; exit 9", "did not answer initialize as an ACP agent: with \"--acp\" it exited with code 9 and wrote: \"unknown option: --acp\"", ""},
		{"ends without an answer", "#!/bin/sh\n[ \"$1\" = --version ] && { echo 1.2.3; exit; }\nexit 0", "ended without an answer", ""},
		{"an error for an answer", "#!/bin/sh\n[ \"$1\" = --version ] && { echo 1.2.3; exit; }\nread -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"no\"}}'", "ended without an answer", ""},
		{"neither", "#!/bin/sh\nexit 3", "--version exited with code 3", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onPath(t, nil)
			m := newMaker(t)
			m.put("/files/gem", []byte(tt.body))
			putIndex(m, obj{"id": "gem", "name": "g", "version": "1.2.3", "description": "x", "distribution": obj{"binary": obj{"linux-x86_64": obj{"archive": "https://files.test/gem", "cmd": "gem", "args": []string{"--acp"}}}}})
			in := m.installer(t, Options{Sources: []Source{Registry}})
			r, err := in.Install(t.Context(), Request{Agent: "gem"})
			if tt.reported == "" {
				wantProblem(t, err, problem.InstallFailed, tt.want)
				if _, ok := in.Find("gem"); ok {
					t.Error("a program that was not proved is in use")
				}
				return
			}
			if err != nil || r.Handshake != tt.want || r.Reported != tt.reported {
				t.Errorf("handshake %q, reported %q, %v", r.Handshake, r.Reported, err)
			}
		})
	}
}

// An agent that never answers is given up, and with it everything that it
// started, also what ignores signals.
func TestProve_SilentAgentEndsWithItsChildren(t *testing.T) {
	onPath(t, nil)
	file := filepath.Join(t.TempDir(), "pid")
	m := newMaker(t)
	m.put("/files/gem", fmt.Appendf(nil, "#!/bin/sh\n[ \"$1\" = --version ] && { echo 1.2.3; exit; }\ntrap '' TERM\nsleep 1000 &\necho $! > %s\necho waiting for nobody >&2\nwait\n", file))
	putIndex(m, obj{"id": "gem", "name": "g", "version": "1.2.3", "description": "x", "distribution": obj{"binary": obj{"linux-x86_64": obj{"archive": "https://files.test/gem", "cmd": "gem", "args": []string{"--acp"}}}}})
	var err error
	given := 2 * time.Second
	for ; given < time.Minute; given *= 2 { // until it was silent, and not only slow to start on a busy machine
		_, err = m.installer(t, Options{Sources: []Source{Registry}, ProofTimeout: given}).Install(t.Context(), Request{Agent: "gem"})
		if err == nil || strings.Contains(err.Error(), "waiting for nobody") {
			break
		}
	}
	wantProblem(t, err, problem.InstallFailed, "did not end within "+given.String(), "waiting for nobody")
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the agent's child %d is still there: %s", pid, stat)
	}
}

// A program has its home where it is said to be, as long as it is tried.
func TestProve_Home(t *testing.T) {
	onPath(t, nil)
	file, temp := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "requests")
	m := newMaker(t)
	m.putClaude("1.0.0", fmt.Appendf(nil, "#!/bin/sh\necho \"$HOME\" >%s\necho 1.0.0", file))
	mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}, Temp: temp}), Request{Agent: "claude"})
	home := strings.TrimSpace(readFile(t, file))
	if filepath.Dir(home) != temp {
		t.Errorf("its home was %s", home)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
