package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// A gateway whose process is stopped takes connections, for its system does, and answers none. Who begins something
// there is told, also where a turn may last for ever.
func TestCommands_GatewayIsSilent(t *testing.T) {
	defer func(was time.Duration) { answerBound = was }(answerBound)
	answerBound = 100 * time.Millisecond
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Setenv("SANDBOX_AGENT_ENDPOINT", "http://"+ln.Addr().String())
	for _, line := range []string{
		"prompt --agent mock hello", "prompt hello", "prompt --session s hello", "rpc call session/list", "rpc call session/close --session s",
		"rpc stream --session s", "sessions terminate s", "agents login mock", "agents list", "agents install mock", "doctor", "health",
		"sessions list", "sessions close s", "sessions watch", "sessions events s", "sessions events s --follow", "sessions raw s", "sessions report s",
		"sessions export s -o " + file + ".out", "sessions import " + file, "teleport s --to http://127.0.0.1:1", "process ls", "process logs p",
		"process attach p", "process kill p", "process run true", "fs ls /", "fs get /f", "fs put " + file + " /f", "fs watch /", "fs download / " + file + ".out",
	} {
		if code, _, errOut := tool(t, "", strings.Fields(line)...); code != cmdline.ExitUnreachable || !strings.Contains(errOut, "takes connections, and does not answer") {
			t.Errorf("%s: exit code %d, %s", line, code, errOut)
		}
	}
}

// Something that takes long is waited for as long as the gateway answers at all.
func TestCommands_GatewayIsSlow(t *testing.T) {
	defer func(was time.Duration) { answerBound = was }(answerBound)
	answerBound = 200 * time.Millisecond
	asked := make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s has no token", r.URL.Path)
		}
		switch r.URL.Path {
		case "/a/path/v2/health":
			asked <- struct{}{}
			w.WriteHeader(http.StatusTeapot) // whatever it says, it is there
		case "/a/path/v2/sessions/s/export":
			for range 5 {
				<-asked
			}
			_, _ = w.Write([]byte("all of it"))
		}
	}))
	defer srv.Close()
	code, out, errOut := tool(t, "", "sessions", "export", "s", "-o", "-", "--endpoint", srv.URL+"/a/path", "--token", "secret")
	if code != 0 || out != "all of it" {
		t.Errorf("exit code %d, %q, %s", code, out, errOut)
	}
}

// roundTripper is a function that carries requests.
type roundTripper func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// On a slow network a large upload keeps all else from getting through. It is not given up as long as some of it goes.
func TestHeard_SlowUpload(t *testing.T) {
	for name, takes := range map[string]int64{"it is taken to its end": 600, "nothing more is taken": 60} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Body == nil { // the question beside it
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					for range takes {
						select {
						case <-time.After(time.Second):
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
						if _, err := io.CopyN(io.Discard, r.Body, 1); err != nil {
							return nil, err
						}
					}
					if _, err := r.Body.Read(make([]byte, 1)); takes == 600 && errors.Is(err, io.EOF) {
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://gateway/v2/fs/content", strings.NewReader(strings.Repeat("x", 600)))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := heard{network}.RoundTrip(r)
				if takes == 600 && err != nil || takes != 600 && !errors.Is(err, errSilent) {
					t.Fatal(err)
				}
				if resp != nil {
					_ = resp.Body.Close()
				}
			})
		})
	}
}
