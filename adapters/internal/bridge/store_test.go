package bridge

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestStore_KeepsRecords(t *testing.T) {
	type record struct{ Mode, Model string }
	dir := filepath.Join(t.TempDir(), "below")
	s := NewStore[record](dir)
	if r, ok := s.Load("ses_1"); ok || r != (record{}) {
		t.Errorf("an unknown session has %+v", r)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := s.Change("ses_1", func(r *record) { r.Mode += "x" }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := s.Change("ses_1", func(r *record) { r.Model = "m" }); err != nil {
		t.Fatal(err)
	}
	if r, ok := NewStore[record](dir).Load("ses_1"); !ok || r != (record{"xxxxxxxxxxxxxxxxxxxx", "m"}) {
		t.Errorf("%+v, %v", r, ok)
	}
	if info, err := os.Stat(filepath.Join(dir, "ses_1.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, id := range []string{"../ses_1", "", "a/b", "a\x00"} {
		if _, ok := s.Load(id); ok {
			t.Errorf("%q has a record", id)
		}
		if s.Change(id, func(r *record) { r.Mode = "x" }) == nil {
			t.Errorf("%q can be remembered", id)
		}
	}
	if err := s.Forget("ses_1"); err != nil {
		t.Error(err)
	}
	if err := s.Forget("ses_1"); err != nil {
		t.Error(err)
	}
	if _, ok := s.Load("ses_1"); ok {
		t.Error("it is still known")
	}
}
