package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// A gateway whose process is stopped takes connections, for its system does, and answers none. Who begins something
// there is told, also where a turn may last for ever.
func TestCommands_GatewayIsSilent(t *testing.T) {
	defer func(was time.Duration) { cmdline.AnswerBound = was }(cmdline.AnswerBound)
	cmdline.AnswerBound = 100 * time.Millisecond
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

// An editor is told the same by acp, whose connection is tried for less long.
func TestACP_GatewayIsSilent(t *testing.T) {
	defer func(was time.Duration) { cmdline.AnswerBound = was }(cmdline.AnswerBound)
	cmdline.AnswerBound = 100 * time.Millisecond
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := "http://" + ln.Addr().String()
	code, out, errOut := tool(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`+"\n", "acp", "--endpoint", at)
	for _, said := range []string{out, errOut} {
		if want := at + " takes connections, and does not answer: nothing was heard for"; code != cmdline.ExitUnreachable || !strings.Contains(said, want) {
			t.Errorf("exit code %d, %s", code, said)
		}
	}
}

// Something that takes long is waited for as long as the gateway answers at all.
func TestCommands_GatewayIsSlow(t *testing.T) {
	defer func(was time.Duration) { cmdline.AnswerBound = was }(cmdline.AnswerBound)
	cmdline.AnswerBound = 200 * time.Millisecond
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
