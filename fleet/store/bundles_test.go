package store_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// A bundle is replaced as a whole or not at all, and nothing of one that failed takes up room.
func TestBundles(t *testing.T) {
	const most = 8 << 20
	s := open(t, "hub", store.Options{Dir: t.TempDir(), BundleBytes: most}, nil)
	defer s.Close()
	id := store.ReplicaID{Node: "box.1", Session: "a/b:c", Epoch: 2}
	if b, body, err := s.Bundle(t.Context(), id); b != nil || body != nil || err != nil {
		t.Fatalf("before there is one: %v, %v", b, err)
	}
	check := func(last uint64, want []byte) {
		t.Helper()
		b, body, err := s.Bundle(t.Context(), id)
		if err != nil || b == nil || b.LastSeq != last {
			t.Fatalf("%+v, %v", b, err)
		}
		got, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes and not %d: %v", len(got), len(want), err)
		}
	}
	one, two := bytes.Repeat([]byte("one"), 1<<20), bytes.Repeat([]byte("two"), 1<<18)
	if _, err := s.PutBundle(t.Context(), id, 7, iotest.OneByteReader(bytes.NewReader(two[:1000]))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBundle(t.Context(), id, 8, bytes.NewReader(one)); err != nil {
		t.Fatal(err)
	}
	check(8, one)
	broke := errors.New("the node broke")
	for range 4 { // more than there is room for, if anything of them stayed
		if _, err := s.PutBundle(t.Context(), id, 9, io.MultiReader(bytes.NewReader(one), iotest.ErrReader(broke))); !errors.Is(err, broke) {
			t.Fatalf("one that breaks off: %v", err)
		}
	}
	check(8, one)
	if _, err := s.PutBundle(t.Context(), id, 9, io.LimitReader(zeros{}, most)); !errors.Is(err, store.ErrNoRoomForBundle) {
		t.Errorf("one for which there is no room: %v", err)
	}
	check(8, one)
	if _, err := s.PutBundle(t.Context(), id, 10, bytes.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	check(10, two)
	if about, err := s.AboutBundle(t.Context(), id); err != nil || about.LastSeq != 10 || about.Size != uint64(len(two)) {
		t.Errorf("%+v, %v", about, err)
	}
	if err := s.RemoveSession(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if b, _, err := s.Bundle(t.Context(), id); b != nil || err != nil {
		t.Errorf("after its session was removed: %v, %v", b, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
