package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const starter = `package main

import (
	"context"
	"os"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

func main() {
	p, err := process.Start(context.Background(), process.Spec{Path: os.Args[1], Args: []string{"--version"}, Env: os.Environ()})
	if err != nil {
		panic(err)
	}
	<-p.Done()
}
`

// What a run links counts what it starts; nothing else does, whatever stands in its environment.
func TestLinkCounting_StartsAreCountedInARunOnly(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	main, file, starts := filepath.Join(cache, "main.go"), filepath.Join(cache, "overlay.json"), filepath.Join(cache, "starts.txt")
	agent := filepath.Join(cache, "npm", "codex")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "example", "main.go"): main}})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(main, []byte(starter), 0o600), os.WriteFile(file, overlay, 0o600), os.WriteFile(starts, nil, 0o600),
		os.Mkdir(filepath.Dir(agent), 0o700), os.WriteFile(agent, []byte("#!/bin/sh\n"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	start := func() string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "run", "-overlay", file, "./cmd/example", agent)
		cmd.Dir, cmd.Env = root, append(os.Environ(), startsVar+"="+starts)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(starts)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// As it is outside of a run, in which this test may itself be.
	t.Setenv("GOFLAGS", "-trimpath -ldflags=-s")
	if noted := start(); noted != "" {
		t.Errorf("what was not linked for a run noted %q", noted)
	}
	if err := linkCounting(); err != nil {
		t.Fatal(err)
	}
	start()
	counted, err := readStarts(starts)
	if err != nil {
		t.Fatal(err)
	}
	if counted.asked.starts != 1 || !strings.HasPrefix(counted.String(), "0 (codex 0 ") {
		t.Errorf("started were %s", counted)
	}
}
