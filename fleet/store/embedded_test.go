package store

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A store that does not start anew is started again, until it does: the disk may have become full
// once more meanwhile.
func TestEngine_DoesNotStartAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	e, err := startEngine(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.stop() }()
	s := &Store{engine: e, log: slog.New(slog.DiscardHandler)}
	why := "Critical write error"
	e.failed.Store(&why)
	away := dir + "-away"
	e.stop()
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.mend()
	if e.fault() == "" {
		t.Fatal("a store that did not start has no fault, and nobody starts it again")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	s.mend()
	if why := e.fault(); why != "" {
		t.Errorf("the store has a fault where there is none: %s", why)
	}
	conn, err := e.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
