package bridge_test

import (
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// What a later version has written, or what cannot be read at the moment, is not written over. What a power cut has left is.
func TestStore_RecordThatCannotBeRead(t *testing.T) {
	type record struct {
		Cwd    string   `json:"cwd"`
		Always []string `json:"always,omitempty"`
	}
	for name, tt := range map[string]struct{ was, want string }{
		"of a later version": {`{"cwd":"/w","always":{"edit":"until noon"}}`, `{"cwd":"/w","always":{"edit":"until noon"}}`},
		"half of one":        {`{"cwd":"/w","alw`, `{"cwd":"/now"}`},
		"none":               {"", `{"cwd":"/now"}`},
		"one of this":        {`{"cwd":"/w","always":["edit"]}`, `{"cwd":"/now","always":["edit"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			store := &bridge.Store[record]{Dir: t.TempDir(), Valid: func(string) bool { return true }}
			file := filepath.Join(store.Dir, "sessions", "S.json")
			if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tt.was), 0o600); err != nil {
				t.Fatal(err)
			}
			err := store.Change("S", func(r *record) { r.Cwd = "/now" })
			if b, _ := os.ReadFile(file); string(b) != tt.want || (err != nil) != (tt.want == tt.was) {
				t.Errorf("it is %s, want %s; %v", b, tt.want, err)
			}
		})
	}
}

// What was asked of a session may end when it was deleted: nothing of it is remembered again, unless it has come back.
func TestStore_ChangeBehindForget(t *testing.T) {
	type record struct {
		Mode string `json:"mode"`
	}
	store := &bridge.Store[record]{Dir: t.TempDir(), Valid: func(string) bool { return true }}
	set := func(of *bridge.Store[record], mode string) {
		t.Helper()
		if err := of.Change("S", func(r *record) { r.Mode = mode }); err != nil {
			t.Fatal(err)
		}
	}
	set(store, "plan")
	if err := store.Forget("S"); err != nil {
		t.Fatal(err)
	}
	set(store, "late")
	if r, there := store.Load("S"); there {
		t.Errorf("it is remembered again: %+v", r)
	}
	set(&bridge.Store[record]{Dir: store.Dir, Valid: store.Valid}, "brought back")
	set(store, "on")
	if r, _ := store.Load("S"); r.Mode != "on" {
		t.Errorf("what came back is %+v", r)
	}
}
