package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// A server that takes connections and answers none is told as such by each command, and so is what is no hub.
func TestCommands_NoHub(t *testing.T) {
	defer func(was time.Duration) { cmdline.AnswerBound = was }(cmdline.AnswerBound)
	cmdline.AnswerBound = 100 * time.Millisecond
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v2/health":
			_, _ = io.WriteString(w, `{"status":"ok"}`)
		case r.URL.Path == "/v2/ready" && r.Header.Get("Authorization") == "Bearer right":
			_, _ = io.WriteString(w, `{"status":"ready"}`)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"urn:sandbox-agent:error:token_invalid","status":401}`)
		}
	}))
	defer gateway.Close()
	silent := "http://" + ln.Addr().String()
	for _, line := range []string{"health", "node list", "node remove a b", "token list", "session list", "session show s", "session transcript s", "session move s", "session export s -o -", "session remove s t"} {
		for at, want := range map[string]string{
			silent + " --token x":                silent + " takes connections, and does not answer: nothing was heard for",
			silent + " --token x --timeout 50ms": "timed out: reach the hub",
			gateway.URL + " --token wrong":       "this is a gateway, and no hub\nhint: a gateway is for sandbox-agent, such as sandbox-agent health",
			gateway.URL + " --token right":       "this is a gateway, and no hub",
		} {
			var out, errOut bytes.Buffer
			code := run(t.Context(), append(strings.Fields(line), append([]string{"--endpoint"}, strings.Fields(at)...)...), stdio{out: &out, err: &errOut})
			if code != cmdline.ExitUnreachable || strings.Count(errOut.String(), want) != 1 || strings.Contains(errOut.String(), "context") {
				t.Errorf("%s at %s: exit code %d, %s", line, at, code, &errOut)
			}
		}
	}
}

// Wrong usage says what is wrong and where to read on, whatever the order of flags.
func TestRun_WrongUsage(t *testing.T) {
	dir := t.TempDir()
	short, words := filepath.Join(dir, "short"), filepath.Join(dir, "words")
	if err := os.WriteFile(words, []byte("a token that nobody can present"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(short, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args string
		want string
		exit int
	}{
		{"nodes", `there is no command "nodes": did you mean node?`, cmdline.ExitUsage},
		{"token", "a command is missing: create, list, revoke", cmdline.ExitUsage},
		{"token burn", `there is no command "burn"`, cmdline.ExitUsage},
		{"token create", "--kind is missing", cmdline.ExitUsage},
		{"token create --kind client --label a", "NAME=VALUE", cmdline.ExitUsage},
		{"token create --kind client --expires -1h", "--expires cannot be negative", cmdline.ExitUsage},
		{"session list --cwd src", "--cwd src: give the whole path", cmdline.ExitUsage},
		{"token create extra --kind client", `unexpected argument "extra"`, cmdline.ExitUsage},
		{"token revoke", "ID is missing", cmdline.ExitUsage},
		{"token revoke a b --endpoint http://127.0.0.1:9", "cannot reach the hub", cmdline.ExitUnreachable},
		{"session remove", "SESSION is missing", cmdline.ExitUsage},
		{"node remove a --endpoint nowhere", "is not an http or https address", cmdline.ExitUsage},
		{"node list --bogus", "-bogus", cmdline.ExitUsage},
		{"node list --timeout 0s", "--timeout must be more than 0", cmdline.ExitUsage},
		{"node list --token-file " + filepath.Join(dir, "none"), "read token", cmdline.ExitUsage},
		{"node list --endpoint http://127.0.0.1:9", "cannot reach the hub", cmdline.ExitUnreachable},
		{"session", "a command is missing: list, show, transcript, move, export, remove", cmdline.ExitUsage},
		{"session show", "SESSION is missing", cmdline.ExitUsage},
		{"session list --limit -1", "--limit cannot be negative", cmdline.ExitUsage},
		{"serve --replica-bytes -1", `--replica-bytes "-1" is not a size: use for example 32MiB`, cmdline.ExitUsage},
		{"serve --bundle-bytes 8GiBs", `--bundle-bytes "8GiBs" is not a size`, cmdline.ExitUsage},
		{"serve --replica-bytes 50GiB --bundle-bytes 0 --on-node-loss copy", "\"copy\" is neither read nor move", cmdline.ExitUsage},
		{"serve --on-node-loss copy", "\"copy\" is neither read nor move", cmdline.ExitUsage},
		{"serve --on-node-loss move --no-bundles", "--on-node-loss move needs what agents keep", cmdline.ExitUsage},
		{"serve --forget-after 59m", "--forget-after must be 0 or at least 1h0m0s", cmdline.ExitUsage},
		{"serve --on-node-loss move --node-loss-after 1s", "--node-loss-after must be at least 20s", cmdline.ExitUsage},
		{"session export s", "name the file with -o", cmdline.ExitUsage},
		{"session move s --to-label pool", "--to-label: \"pool\" is no label", cmdline.ExitUsage},
		{"serve --port 99999", "is not a port", cmdline.ExitUsage},
		{"serve --host ", "--host", cmdline.ExitUsage},
		{"serve --nats nats://x --data-dir y", "are both given", cmdline.ExitUsage},
		{"serve --port 0 --nats nats://127.0.0.1:99999", "hint: see that the servers of --nats run", cmdline.ExitFailure},
		{"serve --nats-creds f", "which is missing", cmdline.ExitUsage},
		{"serve --peer-ca f", "which is missing", cmdline.ExitUsage},
		{"serve --nats nats://x --peer-ca /nowhere/ca.pem", "certificates of authorities", cmdline.ExitFailure},
		{"serve --nats nats://x --tls-cert c --tls-key k --advertise http://h:1", "by https", cmdline.ExitUsage},
		{"serve --tls-cert f", "needed together", cmdline.ExitUsage},
		{"serve --log-level loud", "use debug, info, warn or error", cmdline.ExitUsage},
		{"serve --admin-token-file " + short, "use at least 20", cmdline.ExitUsage},
		{"serve --admin-token-file " + words, "cannot carry", cmdline.ExitUsage},
		{"serve --admin-token-file " + filepath.Join(dir, "none"), "read token", cmdline.ExitUsage},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		args := strings.Split(tt.args, " ")
		code := run(context.Background(), args, stdio{out: &out, err: &errs})
		if code != tt.exit || !strings.Contains(errs.String(), tt.want) || tt.exit == cmdline.ExitUsage && !strings.Contains(errs.String(), "hint: see: sandbox-hub") {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", tt.args, code, tt.exit, tt.want, &errs)
		}
		errs.Reset()
		var doc struct{ ExitCode int }
		if run(context.Background(), append(args, "--json"), stdio{out: &out, err: &errs}) != tt.exit && !strings.HasPrefix(tt.args, "serve") && !strings.HasPrefix(tt.args, "nodes") {
			t.Errorf("%s --json: another exit code", tt.args)
		}
		if json.Unmarshal(errs.Bytes(), &doc) != nil {
			t.Errorf("%s --json: %s", tt.args, &errs)
		}
	}
}

// A hub cannot be started twice on the same folder, nor without its NATS servers.
func TestServe_Refuses(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "requests", "of-one-that-was-killed")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	begun, end := context.WithCancel(t.Context())
	done := make(chan int, 1)
	log := &listens{seen: make(chan struct{})}
	go func() {
		done <- run(begun, []string{"serve", "--port", "0", "--data-dir", dir}, stdio{out: &bytes.Buffer{}, err: log})
	}()
	select {
	case <-log.seen:
	case <-time.After(30 * time.Second):
		t.Fatal("the hub does not start")
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed hub has left is still there: %v", err)
	}
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	_, port, _ := net.SplitHostPort(held.Addr().String())
	for _, tt := range []struct{ args, want string }{
		{"serve --port 0 --data-dir " + dir, "in use by another process"},
		{"serve --data-dir " + t.TempDir() + " --port " + port, "stop that program, or give another --port"},
		{"serve --port 0 --nats nats://127.0.0.1:9", "connect to the store"},
	} {
		var errs bytes.Buffer
		if code := run(context.Background(), strings.Split(tt.args, " "), stdio{out: &errs, err: &errs}); code == cmdline.ExitOK || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: exit code %d, want a failure with %q:\n%s", tt.args, code, tt.want, &errs)
		}
	}
	end()
	if code := <-done; code != cmdline.ExitOK {
		t.Errorf("the hub ended with %d", code)
	}
}

// listens is told when a hub says that it listens.
type listens struct {
	mu   sync.Mutex
	text strings.Builder
	seen chan struct{}
}

func (s *listens) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := strings.Contains(s.text.String(), "listening on")
	s.text.Write(b)
	if !had && strings.Contains(s.text.String(), "listening on") {
		close(s.seen)
	}
	return len(b), nil
}
