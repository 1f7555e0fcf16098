package main_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// queries are what a terminal is asked with: for its attributes and its state, its modes, its colours,
// its keyboard and its capabilities.
var queries = regexp.MustCompile(`\x1b\[[?>=]?[0-9;]*[cn]|\x1b\[\?[0-9;]*\$p|\x1b\][0-9;]*\?|\x1b\[\?u|\x1bP[+$]q`)

// A command asks the terminal nothing, and does not take what was typed ahead: that is for the shell.
func TestCommands_LeaveTheTerminalAlone(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url, "HOME="+t.TempDir(), "TERM=xterm-256color", "NO_COLOR=")
	for _, args := range [][]string{
		{"version"},
		{"help"},
		{"chat", "--help"},
		{"health"},
		{"agents", "list"},
		{"sessions", "list"},
		{"prompt", "hello"},
		{"doctor"},
		{"credentials", "extract-env"},
		{"chat", "--json"},
		{"no-such-command"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			// The shell stays until all is seen: now and then its last line did not come when it ended at once.
			const shell = `stty -g; read -r start; "$@"; stty -g; read -r rest; echo "left: $rest"; read -r seen`
			cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", shell, "sh", bin}, args...)...)
			cmd.Env = env
			k := startTerminal(t, cmd, pty.Winsize{Rows: 24, Cols: 80})
			k.types("start\ntyped ahead\n")
			k.sees(`left: `)
			k.types("seen\n")
			k.ends()
			out := k.seen.String()
			if asked := queries.FindString(out); asked != "" {
				t.Errorf("it asks the terminal %q", asked)
			}
			if !strings.Contains(out, "left: typed ahead\r\n") {
				t.Errorf("what was typed ahead is not left:\n%s", out)
			}
			if modes := regexp.MustCompile(`(?m)^[0-9a-f]+(:[0-9a-f]+){20,}`).FindAllString(out, -1); len(modes) != 2 || modes[0] != modes[1] {
				t.Errorf("the terminal's state is another: %q", modes)
			}
		})
	}
}

// A chat shows its session on a terminal that answers nothing; when one tells its background later, the
// colours are for that.
func TestChat_ATerminalThatAnswersNothing(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=", "COLORFGBG=")}
	k := startTerminal(t, c.command(t.Context(), "chat", "--endpoint", g.url, "--cwd", t.TempDir()), pty.Winsize{Rows: 24, Cols: 80})
	k.sees(`ready · mock`)
	k.writes("\x1b]11;?") // it asks for the background, and does not wait for that
	dark := k.seen.String()
	readable(t, dark, false)
	k.types("\x1b]11;rgb:ffff/ffff/ffff\x07hello\r")
	k.sees(`mock agent`)
	readable(t, k.seen.String()[len(dark):], true)
	k.leaves()
}
