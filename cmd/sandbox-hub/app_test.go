package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Wrong usage says what is wrong and where to read on, whatever the order of flags.
func TestRun_WrongUsage(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args string
		want string
		exit int
	}{
		{"nodes", `there is no command "nodes": use serve, token, node`, exitUsage},
		{"token", "a command is missing: create, list, revoke", exitUsage},
		{"token burn", `there is no command "burn"`, exitUsage},
		{"token create", "--kind is missing", exitUsage},
		{"token create --kind client --label a", "NAME=VALUE", exitUsage},
		{"token create --kind client --expires -1h", "--expires cannot be negative", exitUsage},
		{"token create extra --kind client", `unexpected argument "extra"`, exitUsage},
		{"token revoke", "ID is missing", exitUsage},
		{"token revoke a b", `unexpected argument "b"`, exitUsage},
		{"node remove a --endpoint nowhere", "is not an http or https address", exitUsage},
		{"node list --bogus", "-bogus", exitUsage},
		{"node list --timeout 0s", "--timeout must be more than 0", exitUsage},
		{"node list --token-file " + filepath.Join(dir, "none"), "read token", exitFailure},
		{"node list --endpoint http://127.0.0.1:9", "cannot reach the hub", exitUnreachable},
		{"session", "a command is missing: list, show, transcript, remove", exitUsage},
		{"session show", "SESSION is missing", exitUsage},
		{"session list --limit -1", "--limit cannot be negative", exitUsage},
		{"serve --replica-bytes -1", "--replica-bytes cannot be negative", exitUsage},
		{"serve --port 99999", "is not a port", exitUsage},
		{"serve --host ", "--host", exitUsage},
		{"serve --nats nats://x --data-dir y", "are both given", exitUsage},
		{"serve --nats-creds f", "which is missing", exitUsage},
		{"serve --tls-cert f", "needed together", exitUsage},
		{"serve --log-level loud", "use debug, info, warn or error", exitUsage},
		{"serve --admin-token-file " + short, "use at least 20", exitUsage},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		args := strings.Split(tt.args, " ")
		code := run(context.Background(), args, stdio{out: &out, err: &errs})
		if code != tt.exit || !strings.Contains(errs.String(), tt.want) || tt.exit == exitUsage && !strings.Contains(errs.String(), "hint: see: sandbox-hub") {
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
	for _, tt := range []struct{ args, want string }{
		{"serve --port 0 --data-dir " + dir, "in use by another process"},
		{"serve --port 0 --nats nats://127.0.0.1:9", "connect to the store"},
	} {
		var errs bytes.Buffer
		if code := run(context.Background(), strings.Split(tt.args, " "), stdio{out: &errs, err: &errs}); code == exitOK || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: exit code %d, want a failure with %q:\n%s", tt.args, code, tt.want, &errs)
		}
	}
	end()
	if code := <-done; code != exitOK {
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
