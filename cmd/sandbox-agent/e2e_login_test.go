package main_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lockedAgent is an agent that wants a login: in a terminal, in a browser that somebody uses
// well or badly, or by a key that is not there.
const lockedAgent = `#!/bin/sh
while read -r line; do
	id=$(printf %s "$line" | sed 's/.*"id":\([^,}]*\).*/\1/')
	answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
	status() { printf '{"jsonrpc":"2.0","method":"auth/status_update","params":{"state":"unknown","_meta":{"sandboxagent.dev":{"login":{"loginId":"1"%s}}}}}\n' "$1"; }
	case $line in
	*'"initialize"'*) answer '"result":{"protocolVersion":1,"agentCapabilities":{},"authMethods":[
		{"id":"key","name":"A key","description":"Set LOCKED_KEY."},
		{"id":"good","name":"In a browser"},{"id":"bad","name":"In another"}'"$TERMINAL_LOGIN"']}' | tr -d '\n\t'; echo ;;
	*'"key"'*) answer '"error":{"code":-32000,"message":"LOCKED_KEY is not set"}' ;;
	*'"good"'*) answer '"result":{"_meta":{"sandboxagent.dev":{"login":{"loginId":"1","verificationUrl":"https://example.com/in","userCode":"AB-12"}}}}'; status ,"\"success\":true" ;;
	*'"bad"'*) answer '"result":{"_meta":{"sandboxagent.dev":{"login":{"loginId":"1","authUrl":"https://example.com/in"}}}}'; status ',"error":"the code was wrong"' ;;
	esac
done
`

// lockedGateway has the agent without and with a login in a terminal.
func lockedGateway(t *testing.T) *gateway {
	t.Helper()
	script := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(script, []byte(lockedAgent), 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "--agent-command", "locked="+quoteArg(script), "--agent-command", "terminal=env "+
		quoteArg(`TERMINAL_LOGIN=,{"id":"login","name":"Login","_meta":{"sandboxagent.dev":{"command":["sh","-c","printf name?; read name; echo welcome $name; exit ${#name}"]}}}`)+" "+quoteArg(script))
	g.start()
	return g
}

func TestAgentsLogin(t *testing.T) {
	t.Parallel()
	g := lockedGateway(t)
	for _, tt := range []struct {
		args, typed string
		code        int
		says        string
	}{
		{"locked", "", 2, "--method good: In a browser"},
		{"locked --method none", "", 2, `has no login "none"`},
		{"locked --method key", "", 4, "LOCKED_KEY is not set"},
		{"locked --method good", "", 0, "open https://example.com/in|and enter the code AB-12|locked is logged in"},
		{"locked --method bad", "", 1, "open https://example.com/in|the login failed: the code was wrong"},
		{"terminal", "Eve\n", 3, "name?|welcome Eve"},
		{"nobody", "", 5, "nobody"},
		{"mock", "", 1, "offers no login"},
	} {
		c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
		cmd := c.command(t.Context(), append([]string{"agents", "login"}, strings.Fields(tt.args)...)...)
		cmd.Stdin = strings.NewReader(tt.typed)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%s: exit code %d, want %d\n%s", tt.args, code, tt.code, out)
		}
		for part := range strings.SplitSeq(tt.says, "|") {
			if !strings.Contains(string(out), part) {
				t.Errorf("%s: %q is missing in\n%s", tt.args, part, out)
			}
		}
	}
}

// A login that is left while its terminal is being started is not left behind at the gateway.
func TestAgentsLogin_IsLeftAsItBegins(t *testing.T) {
	t.Parallel()
	g := lockedGateway(t)
	to, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan *exec.Cmd, 1) // the command, until it was left
	between := httputil.NewSingleHostReverseProxy(to)
	between.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method != http.MethodPost || r.Request.URL.Path != "/v2/processes" {
			return nil
		}
		return (<-left).Process.Signal(syscall.SIGINT)
	}
	server := httptest.NewServer(between)
	defer server.Close()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+server.URL)}
	cmd := c.command(t.Context(), "agents", "login", "terminal")
	typing, err := cmd.StdinPipe() // nobody types
	if err != nil {
		t.Fatal(err)
	}
	defer typing.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left <- cmd
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	var list struct{ Processes []struct{ Status string } }
	if g.get("/v2/processes", &list); len(list.Processes) != 0 {
		t.Errorf("the login goes on: %v", list.Processes)
	}
}

// A gateway that does not say that it has started the terminal holds nobody for long who leaves, nor at all who insists.
func TestAgentsLogin_IsLeftAndTheGatewayIsSilent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		insists bool
		code    int
		says    string
	}{"leaves": {false, 130, "the gateway has not answered"}, "insists": {true, -1, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := lockedGateway(t)
			to, err := url.Parse(g.url)
			if err != nil {
				t.Fatal(err)
			}
			asked, silent := make(chan struct{}), make(chan struct{})
			between := httputil.NewSingleHostReverseProxy(to)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/v2/processes" {
					between.ServeHTTP(w, r)
					return
				}
				close(asked)
				<-silent
			}))
			defer server.Close()
			defer close(silent)
			c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+server.URL)}
			cmd := c.command(t.Context(), "agents", "login", "terminal")
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			typing, err := cmd.StdinPipe() // nobody types
			if err != nil {
				t.Fatal(err)
			}
			defer typing.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait()
			}()
			<-asked
			_ = cmd.Process.Signal(syscall.SIGINT)
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			for goes := true; goes; {
				select {
				case <-ended:
					goes = false
				case <-again.C:
					if tt.insists {
						_ = cmd.Process.Signal(syscall.SIGINT)
					}
				}
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(said.String(), tt.says) {
				t.Errorf("exit code %d, want %d\n%s", code, tt.code, said.String())
			}
		})
	}
}
