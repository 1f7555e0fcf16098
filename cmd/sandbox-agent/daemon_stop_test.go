package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// A process is ended by what ends one on this system.
func TestDaemon_AskToEnd(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_DAEMON") != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is ended
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDaemon_AskToEnd$")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_DAEMON=1", "TMPDIR="+t.TempDir()) // it is killed, and removes nothing
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := askToEnd(cmd.Process); err != nil {
		t.Error(err)
		_ = cmd.Process.Kill()
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it has ended by itself")
	}
}
