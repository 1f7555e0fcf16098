package native_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

func TestReadCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), native.CommandsFile)
	if list, err := native.ReadCommands(path); list != nil || err != nil {
		t.Errorf("a file that is not there: %v, %v", list, err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`
[agents.two]
command = "sh"
args = ["-c", "true"]
env = { B = "2", A = "1" }
cwd = "/tmp"
icon = "https://example.com/two.svg"
name = "Number two"
[agents.one]
command = "no-such-program-anywhere"
`)
	list, err := native.ReadCommands(path)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if info := list[0].Info(); info.ID != "one" || info.Name != "one" || info.Kind != adapters.Custom {
		t.Errorf("info %+v", info)
	}
	if info := list[1].Info(); info.ID != "two" || info.Name != "Number two" || info.Icon != "https://example.com/two.svg" {
		t.Errorf("info %+v", info)
	}
	if _, err := list[0].Locate(); err == nil {
		t.Error("a program that is nowhere was found")
	}
	if p, err := list[1].Locate(); err != nil || !filepath.IsAbs(p.Path) {
		t.Errorf("%+v, %v", p, err)
	}
	// Wherever the gateway is started: what lies there by such a path may be anybody's.
	program := filepath.Join(filepath.Dir(path), "bin", "agent")
	if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o700), os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	write("[agents.x]\ncommand = \"./bin/agent\"")
	if list, err := native.ReadCommands(path); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	} else if p, err := list[0].Locate(); err != nil || p.Path != program {
		t.Errorf("the file's own program is %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"[agents.x]\nargs = []":                           "command is missing",
		"[agents.x]\ncommand = \"a\"\ncwd = \"here\"":     "absolute",
		"[agents.x]\ncommand = \"a\"\nenvironment = {}":   "environment",
		"[agents.\"A B\"]\ncommand = \"a\"":               "lower-case",
		"[agents.x]\ncommand = [\"a\", \"b\"]":            "command",
		"[agents.x]\ncommand = \"a\"\nenv = {\"=\"=\"\"}": "env",
		"[agents.x":      "line 1",
		"[agent.x]\n":    "agent",
		"agents = \"a\"": "agents",
	} {
		write(text)
		_, err := native.ReadCommands(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want %q and the file's name in it", text, err, want)
		}
	}
}

func TestTable_IsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range native.Table() {
		if s.Info.ID == "" || s.Info.Name == "" || s.Info.Program == "" || s.Info.Kind != adapters.Native || seen[s.Info.ID] {
			t.Errorf("entry %+v", s.Info)
		}
		seen[s.Info.ID] = true
		for f, s := range s.Info.Features {
			if s.Level == adapters.Unsupported && s.Reason == "" {
				t.Errorf("%s: no reason", f)
			}
		}
		if s.Info.Features != nil && len(s.Info.Features) != len(adapters.AllFeatures) {
			t.Errorf("%s has %d features, want all %d", s.Info.ID, len(s.Info.Features), len(adapters.AllFeatures))
		}
	}
}
