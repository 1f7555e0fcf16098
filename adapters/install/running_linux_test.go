package install

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// Who removes an agent gets rid of all of it, whatever runs: its program goes on without its files, and it can be installed again.
func TestRemove_WhatRuns(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	m.putClaude("1.0.0", append(program("1.0.0"), "cat\n"...))
	mustInstall(t, in, Request{Agent: "claude"})
	dir := filepath.Join(in.root, "claude", "1.0.0")
	release := in.Programs().Keep(t.Context(), adapters.Program{Dir: dir}) // as a session has it
	session := exec.CommandContext(t.Context(), filepath.Join(dir, "claude"), "--version")
	input, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(output)
	if _, err := said.ReadString('\n'); err != nil { // its version
		t.Fatal(err)
	}
	if err := in.Remove(t.Context(), "claude"); err != nil {
		t.Errorf("it is not removed while it runs: %v", err)
	}
	if d := cmp.Diff([]string(nil), versionsOf(t, in)); d != "" {
		t.Errorf("it is there, -want +got:\n%s", d)
	}
	mustInstall(t, in, Request{Agent: "claude"})
	if _, err := io.WriteString(input, "still here\n"); err != nil {
		t.Error(err)
	}
	_ = input.Close()
	if rest, err := io.ReadAll(said); err != nil || string(rest) != "still here\n" {
		t.Errorf("what runs says %q, %v", rest, err)
	}
	if err := session.Wait(); err != nil {
		t.Errorf("what runs ended with %v", err)
	}
	release()
	if d := cmp.Diff([]string{"1.0.0*"}, versionsOf(t, in)); d != "" {
		t.Errorf("it is not there again, -want +got:\n%s", d)
	}
}

// A version of which a program runs keeps its files, however many come behind it.
func TestStore_VersionThatRuns(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	want := func(version string, names ...string) {
		t.Helper()
		m.putClaude(version, append(program(version), "cat >/dev/null\n"...))
		mustInstall(t, in, Request{Agent: "claude", Version: Latest})
		if d := cmp.Diff(names, versionsOf(t, in)); d != "" {
			t.Errorf("after %s, -want +got:\n%s", version, d)
		}
	}
	want("1.0.0", "1.0.0*")
	session := exec.CommandContext(t.Context(), filepath.Join(in.root, "claude", "1.0.0", "claude"), "--version")
	end, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	want("2.0.0", "2.0.0*", "1.0.0")
	want("3.0.0", "3.0.0*", "2.0.0", "1.0.0")
	_ = end.Close()
	_ = session.Wait() // its end is that of its input
	want("4.0.0", "4.0.0*", "3.0.0")
}
