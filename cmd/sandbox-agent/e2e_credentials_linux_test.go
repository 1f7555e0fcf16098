package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// Who looks at a terminal does not see keys unless somebody asks for them; a shell gets them.
func TestCredentials_OnATerminal(t *testing.T) {
	t.Parallel()
	const secret = "gsk-from-the-environment-1"
	c := &commandLine{t: t, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=dumb", "GROQ_API_KEY=" + secret}}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, `^GROQ_API_KEY=gsk-fr…nt-1\r\nvalues are shortened on a terminal: --reveal shows them`},
		{[]string{"--reveal"}, "^GROQ_API_KEY=" + secret + "\r\n$"},
	} {
		cmd := c.command(t.Context(), append([]string{"credentials", "extract-env"}, tt.args...)...)
		tty, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		shown := make(chan string, 1)
		go func() {
			var b strings.Builder
			buf := make([]byte, 4096)
			for {
				n, err := tty.Read(buf) // fails when the program has ended
				b.Write(buf[:n])
				if err != nil {
					shown <- b.String()
					return
				}
			}
		}()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if got := <-shown; !regexp.MustCompile(tt.want).MatchString(got) {
			t.Errorf("%v: %q", tt.args, got)
		}
		_ = tty.Close()
	}
	if _, out, errOut := c.run("credentials", "extract-env"); out != "GROQ_API_KEY="+secret+"\n" || errOut != "" {
		t.Errorf("into a pipe: %q, %q", out, errOut)
	}
}
