package bridgetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// LeftBehind checks that a connection removes the private folders that sessions of a killed
// gateway have left: what is in them, such as the keys of MCP servers, is of no use any more.
func LeftBehind(t *testing.T, a adapters.Adapter) {
	t.Helper()
	w := With(t, a, adapters.Program{Path: "/bin/false"})
	left := w.Write(filepath.Join(w.State, "run", "left", "secrets.json"), "{}", 0o600)
	w.Open(schema.ClientCapabilities{}, nil)
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", filepath.Dir(left), err)
	}
}
