package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func TestServer_JoinIsChecked(t *testing.T) {
	dir := t.TempDir()
	token, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	for file, text := range map[string]string{token: "secret\n", empty: "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := []string{"--join", "http://127.0.0.1:1", "--join-token-file", token, "--node-name", "box"}
	tests := []struct {
		name string
		args []string
		want string
		exit int
	}{
		{"no hub", []string{"--label", "a=b"}, "give its address with --join", cmdline.ExitUsage},
		{"no hub, a name", []string{"--node-name", "box"}, "give its address with --join", cmdline.ExitUsage},
		{"no hub, what needs one", []string{"--durability", "sync"}, "give its address with --join", cmdline.ExitUsage},
		{"no durability", append(slices.Clone(good), "--durability", "full"), "must be async or sync", cmdline.ExitUsage},
		{"no token", []string{"--join", "http://127.0.0.1:1"}, "--join-token-file", cmdline.ExitUsage},
		{"no address", []string{"--join", "hub.example", "--join-token-file", token}, "is not the http or https address", cmdline.ExitUsage},
		{"a password in the address", []string{"--join", "https://me:pw@hub.example", "--join-token-file", token}, "password", cmdline.ExitUsage},
		{"not on this machine", []string{"--join", "http://hub.example", "--join-token-file", token}, "--join-insecure", cmdline.ExitUsage},
		{"a bad name", append(good, "--node-name", "a/b"), "no name of a node", cmdline.ExitUsage},
		{"a bad label", append(good, "--label", "a"), "NAME=VALUE", cmdline.ExitUsage},
		{"two values", append(good, "--label", "a=b", "--label", "a=c"), "two values", cmdline.ExitUsage},
		{"no file", []string{"--join", "http://127.0.0.1:1", "--join-token-file", filepath.Join(dir, "none"), "--node-name", "box"}, "read token for the hub", cmdline.ExitFailure},
		{"an empty file", []string{"--join", "http://127.0.0.1:1", "--join-token-file", empty, "--node-name", "box"}, "has no token", cmdline.ExitFailure},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			args := append([]string{"server", "--port", "0", "--data-dir", filepath.Join(dir, "data")}, tt.args...)
			if code := run(context.Background(), args, stdio{in: strings.NewReader(""), out: &stderr, err: &stderr}); code != tt.exit || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, tt.exit, tt.want, &stderr)
			}
		})
	}
}
