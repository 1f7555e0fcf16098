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
	for value, want := range map[string]string{
		`mine=./prog --flag "it's one" a\ b`: `mine='` + in("prog") + `' '--flag' 'it'\''s one' 'a b'`,
		`mine="with blanks/prog"`:            `mine='` + in("with blanks/prog") + `'`,
		`mine=prog ./file`:                   `mine=prog ./file`, // looked up in PATH
		`mine=/bin/prog "x"`:                 `mine=/bin/prog "x"`,
		`mine="open/`:                        `mine="open/`, // the server says what is wrong
		`mine=`:                              `mine=`,
		`mine`:                               `mine`,
	} {
		got, err := absolutePaths([]string{"--agent-command", value, "--agent-command=" + value})
		if diff := cmp.Diff([]string{"--agent-command", want, "--agent-command=" + want}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", value, err, diff)
		}
	}
	for name, c := range map[string][2]string{
		"SANDBOX_AGENT_AGENT_COMMAND": {"mine=./prog x", "mine='" + in("prog") + "' 'x'"},
		"SANDBOX_AGENT_CLAUDE_BIN":    {"../claude", filepath.Join(filepath.Dir(dir), "claude")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, c[0])
			if env, err := absoluteEnv(); err != nil || env[len(env)-1] != name+"="+c[1] {
				t.Errorf("%q, %v", env[len(env)-1], err)
			}
		})
	}
	t.Setenv("SANDBOX_AGENT_TOKEN_FILE", "mine")
	env, err := absoluteEnv()
	if err != nil || env[len(env)-1] != "SANDBOX_AGENT_TOKEN_FILE="+in("mine") {
		t.Errorf("%q, %v", env[len(env)-1], err)
	}
}

// A start that was killed before it was answered is none that somebody waits for: not by a clock that was set back since,
// and not when the machine, or the container, was started again, where its number is another process's.
func TestDaemon_StartedLongAgo(t *testing.T) {
	for name, state := range map[string]daemonState{
		"in the future":           {StartedAt: time.Now().Add(time.Hour)},
		"before another start":    {StartedAt: time.Now(), Machine: "another"},
		"and its number is taken": {StartedAt: time.Now(), Machine: "another", PID: os.Getpid()},
	} {
		t.Run(name, func(t *testing.T) {
			if state.Machine != "" && machine() == "" {
				return // nobody can tell
			}
			d := &daemon{dataDir: t.TempDir()}
			if err := os.Mkdir(d.file(""), 0o700); err != nil {
				t.Fatal(err)
			}
			state.Version = version
			if err := d.save(&state); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), daemonSettleBound/2)
			defer cancel()
			if s, err := d.settled(ctx); s != nil || err != nil || ctx.Err() != nil {
				t.Errorf("it is waited for: %v, %v", s, err)
			}
		})
	}
}
