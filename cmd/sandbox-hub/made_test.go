package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// Who leaves while a token is made has it, or learns that it may be there: it is shown once.
func TestTokenCreate_IsLeft(t *testing.T) {
	f := startHub(t)
	to, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	for name, answered := range map[string]bool{"answered": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			made, answer := make(chan struct{}), make(chan struct{})
			let := sync.OnceFunc(func() { close(answer) })
			between := httputil.NewSingleHostReverseProxy(to)
			between.ModifyResponse = func(r *http.Response) error {
				if r.Request.Method == http.MethodPost && r.Request.URL.Path == "/v2/tokens" {
					close(made)
					<-answer
				}
				return nil
			}
			server := httptest.NewServer(between)
			defer server.Close()
			defer let()
			cmd := f.runs("token", "create", "--endpoint", server.URL, "--kind", "client", "--scope", "admin", "--note", name)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out, said strings.Builder
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-made
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			for b := make([]byte, 4096); !strings.Contains(said.String(), "Ctrl-C again"); {
				n, err := stderr.Read(b)
				said.Write(b[:n])
				if err != nil {
					break
				}
			}
			if answered {
				let()
			}
			_, _ = io.Copy(&said, stderr)
			_ = cmd.Wait()
			if !answered {
				if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "sandbox-hub token list") {
					t.Errorf("exit %d, it says %s", code, said.String())
				}
				return
			}
			if text, code := f.try("token", "list", "--token", strings.TrimSpace(out.String())); code != 0 || !strings.Contains(text, name) {
				t.Errorf("%s, it says %s; the token that it prints: exit %d, %s", cmd.ProcessState, said.String(), code, text)
			}
		})
	}
}
