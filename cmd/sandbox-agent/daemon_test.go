package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The daemon has another working directory than who starts it.
func TestAbsolutePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	got, err := absolutePaths([]string{"--port", "0", "--token-file", "token", "--tls-cert=a/b", "-tls-key", "../key", "--fs-root", "/srv", "--agent-command", "token-file=x", "--log-file="})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--port", "0", "--token-file", in("token"), "--tls-cert=" + in("a/b"), "-tls-key", filepath.Join(filepath.Dir(dir), "key"), "--fs-root", "/srv", "--agent-command", "token-file=x", "--log-file="}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := absolutePaths([]string{"--token-file"}); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("SANDBOX_AGENT_TOKEN_FILE", "mine")
	env, err := absoluteEnv()
	if err != nil || env[len(env)-1] != "SANDBOX_AGENT_TOKEN_FILE="+in("mine") {
		t.Errorf("%q, %v", env[len(env)-1], err)
	}
}

// A start that was killed before it knew a process, by a clock that was set back since, is none that somebody waits for.
func TestDaemon_StartedInTheFuture(t *testing.T) {
	d := &daemon{dataDir: t.TempDir()}
	if err := os.Mkdir(d.file(""), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.save(&daemonState{Version: version, StartedAt: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), daemonSettleBound/2)
	defer cancel()
	if s, err := d.settled(ctx); s != nil || err != nil || ctx.Err() != nil {
		t.Errorf("it waits for one that began in an hour: %v, %v", s, err)
	}
}
