package pi

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// A conversation is begun anew when its file is gone, empty or damaged, and not when it cannot be read now, or was held
// elsewhere.
func TestReopen_BeginsAnewOnlyWhatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		make func(w *bridgetest.World, path string)
		said string // "" when Pi is started, and it is not there
	}{
		"gone":    {func(*bridgetest.World, string) {}, ""},
		"empty":   {func(w *bridgetest.World, path string) { w.Write(path, "", 0o600) }, ""},
		"damaged": {func(w *bridgetest.World, path string) { w.Write(path, `{"type":"sess`+"\n", 0o600) }, ""},
		"unreadable": {func(w *bridgetest.World, path string) {
			if err := os.MkdirAll(path, 0o700); err != nil {
				w.T.Fatal(err)
			}
		}, "read a conversation"},
		"elsewhere": {func(w *bridgetest.World, path string) {
			w.Write(path, `{"type":"session","id":"one","cwd":"/elsewhere"}`+"\n", 0o600)
		}, "was held in /elsewhere"},
	} {
		for _, known := range []bool{true, false} { // where the file is
			w := bridgetest.With(t, New(), adapters.Program{Path: "/none"})
			file := filepath.Join(w.Home, ".pi", "agent", "sessions", "a", "1_one.jsonl")
			c.make(w, file)
			one := record{Cwd: w.Cwd, Made: true}
			if known {
				one.File = file
			}
			if err := newStore(w.State).Change("one", func(r *record) { *r = one }); err != nil {
				t.Fatal(err)
			}
			_, e := w.Open(schema.ClientCapabilities{}, nil).Call(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: "one", Cwd: w.Cwd})
			if want := cmp.Or(c.said, "/none"); e == nil || e.Code == acp.CodeResourceNotFound || !strings.Contains(e.Message, want) {
				t.Errorf("%s, known %v: %v, want %s", name, known, e, want)
			}
		}
	}
}
