//go:build unix

package native_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// A command that is named by a relative path is that of the gateway's directory, also where its agent starts in a
// session's: there may be a program of that name.
func TestAgent_RelativeProgram(t *testing.T) {
	here, session := t.TempDir(), t.TempDir()
	for dir, says := range map[string]string{here: "mine", session: "theirs"} {
		script := `#!/bin/sh
echo '{"jsonrpc":"2.0","method":"_` + says + `"}'
cat >/dev/null
`
		if err := os.WriteFile(filepath.Join(dir, "agent"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(here)
	a := native.NewCustom(adapters.Info{ID: "custom", Kind: adapters.Custom}, native.Command{Path: "./agent"}, false)
	conn, err := a.Open(t.Context(), adapters.Options{Dir: session, StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if m, err := conn.Read(t.Context()); err != nil || m.Method() != "_mine" {
		t.Errorf("%s, %v", m.Frame(), err)
	}
}
