package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// heldAgent begins no session before somebody lets it. With models it begins one at once, and its model is not chosen before.
const heldAgent = `#!/bin/sh
while read -r line; do
	id=$(printf %s "$line" | sed 's/.*"id":\([^,}]*\).*/\1/')
	case $line in
	*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}\n' "$id" ;;
	*'"session/new"'*)
		models=
		if [ -n "$MODELS" ]; then
			models=',"models":{"currentModelId":"a","availableModels":[{"modelId":"a","name":"A"},{"modelId":"b","name":"B"}]}'
		else
			touch "$HELD/asked"
			while [ ! -e "$HELD/answer" ]; do sleep 0.02; done
		fi
		printf '{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"session-of-the-held-agent"%s}}\n' "$id" "$models" ;;
	*'"session/set_model"'*)
		touch "$HELD/asked"
		while [ ! -e "$HELD/answer" ]; do sleep 0.02; done
		printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
	esac
done
`

// Who leaves while something is made at a gateway learns what it is, or that it may be there: nobody else knows its id.
func TestMade_IsLeft(t *testing.T) {
	t.Parallel()
	idOf := regexp.MustCompile(`p-[0-9a-z]{16}|session-of-the-held-agent`)
	for name, tt := range map[string]struct {
		args       []string
		silent     bool   // it gets no answer
		code       int    // of the command
		says       string // on one of its outputs
		there      string // where the gateway has what was made; its id stands on the outputs
		afterwards int    // status of that
	}{
		"a program":                      {[]string{"process", "start", "cat"}, false, 0, "", "/v2/processes/", 200},
		"a program, as JSON":             {[]string{"process", "start", "--json", "cat"}, false, 0, "", "/v2/processes/", 200},
		"a terminal":                     {[]string{"process", "start", "--attach", "cat"}, false, 130, "sandbox-agent process attach ", "/v2/processes/", 200},
		"a program, in vain":             {[]string{"process", "start", "cat"}, true, 130, "sandbox-agent process list", "", 0},
		"a program, and it breaks off":   {[]string{"process", "start", "--env", "BREAK=1", "cat"}, false, 130, "sandbox-agent process list", "", 0},
		"a program that is refused":      {[]string{"process", "start", "--cwd", "/none/there", "cat"}, false, 5, "/none/there", "", 0},
		"a handoff":                      {[]string{"sessions", "handoff", "SESSION", "--agent", "held"}, false, 0, "held goes on in session-of-the-held-agent:", "/v2/sessions/", 200},
		"a handoff, in vain":             {[]string{"sessions", "handoff", "SESSION", "--agent", "held"}, true, 130, "sandbox-agent sessions list", "", 0},
		"a prompt":                       {[]string{"prompt", "--agent", "held", "hello"}, false, 130, "session session-of-the-held-agent", "/v2/sessions/", 200},
		"a prompt, the session goes too": {[]string{"prompt", "--agent", "held", "--delete", "hello"}, false, 130, "session session-of-the-held-agent", "/v2/sessions/", 404},
		"a prompt, in vain":              {[]string{"prompt", "--agent", "held", "hello"}, true, 130, "sandbox-agent sessions list", "", 0},
		"a prompt whose model is chosen": {[]string{"prompt", "--agent", "models", "--model", "b", "hello"}, true, 130, "session session-of-the-held-agent is there", "/v2/sessions/", 200},
		"the same, the session goes too": {[]string{"prompt", "--agent", "models", "--model", "b", "--delete", "hello"}, true, 130, "session session-of-the-held-agent", "/v2/sessions/", 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := t.TempDir()
			script := filepath.Join(held, "agent")
			if err := os.WriteFile(script, []byte(heldAgent), 0o700); err != nil {
				t.Fatal(err)
			}
			program := func(also string) string {
				return "env HELD=" + quoteArg(held) + also + " " + quoteArg(script)
			}
			g := newGateway(t, "--agent-command", "held="+program(""), "--agent-command", "models="+program(" MODELS=1"))
			g.start()
			to, err := url.Parse(g.url)
			if err != nil {
				t.Fatal(err)
			}
			breaks := slices.Contains(tt.args, "BREAK=1")
			asked, answer := make(chan struct{}), make(chan struct{})
			let := sync.OnceFunc(func() {
				close(answer)
				if err := os.WriteFile(filepath.Join(held, "answer"), nil, 0o600); err != nil {
					t.Error(err)
				}
			})
			between := httputil.NewSingleHostReverseProxy(to)
			between.ModifyResponse = func(r *http.Response) error {
				if r.Request.Method == http.MethodPost && r.Request.URL.Path == "/v2/processes" { // it is made, and not told
					close(asked)
					<-answer
					if breaks {
						panic(http.ErrAbortHandler) // which ends the connection
					}
				}
				return nil
			}
			server := httptest.NewServer(between)
			defer server.Close()
			defer let()
			c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+server.URL)}
			args := append([]string{}, tt.args...)
			for i, a := range args {
				if a == "SESSION" {
					args[i] = connect(t, g, wsocket, options{agent: "mock"}).newSession()
				}
			}
			cmd := c.command(t.Context(), args...)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			g.until("it is asked to make it", func() bool {
				select {
				case <-asked:
					return true
				default:
				}
				_, err := os.Stat(filepath.Join(held, "asked"))
				return err == nil
			})
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			for b := make([]byte, 4096); !strings.Contains(said.String(), "Ctrl-C again") && !strings.Contains(strings.Join(args, " "), "--json"); {
				n, err := stderr.Read(b)
				said.Write(b[:n])
				if err != nil {
					break
				}
			}
			if !tt.silent {
				let()
			}
			_, _ = io.Copy(&said, stderr)
			_ = cmd.Wait()
			all := out.String() + said.String()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(all, tt.says) {
				t.Fatalf("exit %d, it says\n%s\nwant %d, and %q", code, all, tt.code, tt.says)
			}
			if tt.there == "" {
				return
			}
			status := 0
			for _, id := range idOf.FindAllString(all, -1) {
				if a := g.ask("GET", tt.there+id, ""); a.status == tt.afterwards {
					status = a.status
				}
			}
			if status != tt.afterwards {
				t.Errorf("what it says names nothing of status %d:\n%s", tt.afterwards, all)
			}
		})
	}
}
