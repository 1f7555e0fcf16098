package cmdline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// What stands on the command line goes before what somebody has exported, whichever of
// the two forms either has.
func TestToken_CommandLineGoesFirst(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	given, exported := file("given", "of-the-file\n"), file("exported", "of-the-exported-file")
	for _, tt := range []struct {
		name, token, file string // exported
		args              []string
		want, from, wrong string
	}{
		{name: "nothing"},
		{"a variable", "v", "", nil, "v", "", ""},
		{"a variable with a file", "", exported, nil, "of-the-exported-file", exported, ""},
		{"both variables", "v", exported, nil, "v", "", ""},
		{"flag before variable", "v", "", []string{"--token", "f"}, "f", "", ""},
		{"file before variable", "v", "", []string{"--token-file", given}, "of-the-file", given, ""},
		{"file before both variables", "v", exported, []string{"--token-file", given}, "of-the-file", given, ""},
		{"flag before the variable with a file", "", exported, []string{"--token", "f"}, "f", "", ""},
		{"both flags", "v", exported, []string{"--token", "f", "--token-file", given}, "", "", "both given"},
		{"an empty file", "v", "", []string{"--token-file", file("empty", "\n")}, "", "", "is empty"},
		{"a file that is not there", "v", "", []string{"--token-file", filepath.Join(dir, "none")}, "", "", "read token"},
		{"two lines", "", "", []string{"--token-file", file("two", "a\nb")}, "", "", "cannot carry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("X_TOKEN", tt.token)
			t.Setenv("X_TOKEN_FILE", tt.file)
			var token, from string
			app := &cli.App{
				Name: "x", Writer: new(bytes.Buffer), ErrWriter: new(bytes.Buffer),
				Commands: []*cli.Command{{
					Name: "do",
					Flags: []cli.Flag{
						&cli.StringFlag{Name: "token", EnvVars: []string{"X_TOKEN"}},
						&cli.StringFlag{Name: "token-file", EnvVars: []string{"X_TOKEN_FILE"}},
					},
					Action: func(c *cli.Context) (err error) {
						token, from, err = cmdline.Token(c, "X")
						return err
					},
				}},
			}
			cmdline.Prepare(app)
			err := cmdline.Run(t.Context(), app, append([]string{"do"}, tt.args...), nil)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v, want %q", err, tt.wrong)
				}
				return
			}
			if err != nil || token != tt.want || from != tt.from {
				t.Errorf("%q from %q, %v; want %q from %q", token, from, err, tt.want, tt.from)
			}
		})
	}
}

// Who meets a certificate that this machine does not trust is not told to start a server.
func TestNotReached_SaysWhatHelps(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	hint := func(url string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatal("it was trusted")
		}
		if !cmdline.Unreachable(err) {
			t.Errorf("%v is not taken for a network's", err)
		}
		r := cmdline.NotReached("it", err, "start it")
		return r.Hint
	}
	if got := hint(srv.URL); !strings.Contains(got, "SSL_CERT_FILE") {
		t.Errorf("the hint is %q", got)
	}
	// A server without room for another connection closes it so.
	full, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	go func() {
		for {
			conn, err := full.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}()
	if got := hint("http://" + full.Addr().String()); !strings.Contains(got, "--max-connections") {
		t.Errorf("the hint is %q", got)
	}
	if r := cmdline.NotReached("the gateway", errors.New("reach the gateway: it is away"), ""); r.Detail != "it is away" {
		t.Errorf("the detail is %q", r.Detail)
	}
	if got := hint("http://127.0.0.1:1"); got != "start it" {
		t.Errorf("the hint is %q", got)
	}
	if cmdline.Unreachable(errors.Join(&os.PathError{Op: "open", Path: "x", Err: os.ErrNotExist})) {
		t.Error("a file that is missing is taken for a network")
	}
}

// A port that only an administrator may have is not told as a failure of the network.
func TestExplainListen_NotAllowed(t *testing.T) {
	err := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}
	if got := cmdline.ExplainListen(t.Context(), cmdline.Gateway, "127.0.0.1", "80", err).Error(); !strings.Contains(got, "may not listen on port 80: give --port one from 1024 on") {
		t.Error(got)
	}
}
