package codex

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestOpen_Version(t *testing.T) {
	for _, c := range []struct {
		name, known, says string
		refused           string // "" when it is taken
	}{
		{name: "known and too old", known: "0.139.12", refused: "0.139.12"},
		{name: "known and the first", known: "0.140.0"},
		{name: "known and newer", known: "1.2.3"},
		{name: "asked and too old", says: "codex-cli 0.45.0", refused: "0.45.0"},
		{name: "asked and newer", says: "codex-cli 0.169.0-alpha.1"},
		{name: "it says nothing of use", says: "hello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "codex")
			if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+c.says+"'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			conn, err := New().Open(t.Context(), adapters.Options{Program: adapters.Program{Path: program, Version: c.known}})
			if err == nil {
				defer func() { _ = conn.Close() }()
			}
			missing, refused := errors.AsType[*adapters.NotInstalledError](err)
			if refused != (c.refused != "") || err != nil && !refused {
				t.Fatalf("opened with %v", err)
			}
			if refused && (missing.Found != c.refused || !strings.Contains(missing.Remedy, oldest) || !strings.Contains(missing.Remedy, "agents install codex")) {
				t.Errorf("refused with %v", missing)
			}
		})
	}
}
