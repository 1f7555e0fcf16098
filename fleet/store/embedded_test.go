package store

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A store whose folder is taken away takes nothing until it is back: what it wrote into removed files would be gone.
func TestStore_FolderIsTakenAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(t.Context(), Options{Hub: "h", Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	made, _, err := s.CreateToken(t.Context(), Token{Kind: KindJoin})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]func() error{
		"removed":              func() error { return nil },
		"another in its place": func() error { return os.MkdirAll(s.engine.folder(), 0o700) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		s.mend()
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s: ready: %v", name, err)
		}
		within, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.CreateToken(within, Token{Kind: KindJoin}); err == nil {
			t.Errorf("%s: a token is made that nobody keeps", name)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	s.mend()
	for { // the connection comes back by itself
		if _, _, err = s.CreateToken(t.Context(), Token{Kind: KindJoin}); err == nil {
			break
		}
	}
	if got := s.Tokens(); len(got) != 2 || !slices.ContainsFunc(got, func(o Token) bool { return o.ID == made.ID }) {
		t.Errorf("the store has %+v", got)
	}
}
