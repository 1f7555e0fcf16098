package store_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
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
		if err != nil || !bytes.Equal(got, want) {
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
	if _, err := s.PutBundle(t.Context(), id, 9, io.LimitReader(zeros{}, most)); !errors.Is(err, store.ErrBundleShare) {
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

// A node takes half of what the others leave, and never all: there is room for a node that comes later.
func TestBundles_ShareOfANode(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir(), BundleBytes: 32 << 20}, nil)
	defer s.Close()
	put := func(node string, session string, size int64) error {
		id := store.ReplicaID{Node: node, Session: session, Epoch: 1}
		b, err := s.PutBundle(t.Context(), id, 1, io.LimitReader(zeros{}, size))
		if err != nil {
			return err
		}
		return s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
			return &store.Session{Info: runtime.SessionInfo{ID: session, CreatedAt: time.Now()}, Bundled: 1, BundleSize: b.Size}
		})
	}
	for i, of := range []struct {
		node, session string
		size          int64
		want          error
	}{
		{"greedy", "a", 12 << 20, nil},
		{"greedy", "b", 5 << 20, store.ErrBundleShare},
		{"greedy", "c", 4 << 20, nil},
		{"greedy", "d", 1, store.ErrBundleShare},
		{"later", "a", 8 << 20, nil}, // half of the 16 MiB that are left
		{"later", "b", 1, store.ErrBundleShare},
		{"greedy", "a", 5 << 20, nil}, // in the place of what it had
		{"last", "a", 7 << 20, nil},
		{"greedy", "a", 5 << 20, store.ErrBundleShare}, // its share is smaller now
	} {
		if err := put(of.node, of.session, of.size); !errors.Is(err, of.want) {
			t.Errorf("%d: %s, %d bytes: %v", i, of.node, of.size, err)
		}
	}
}

// What of two bundles of a node that are stored at one time comes to its end later has the room that the other one leaves.
func TestBundles_ShareOfANodeThatGivesTwo(t *testing.T) {
	s := open(t, "hub", store.Options{Dir: t.TempDir(), BundleBytes: 8 << 20}, nil)
	defer s.Close()
	id := func(session string) store.ReplicaID { return store.ReplicaID{Node: "box", Session: session, Epoch: 1} }
	for _, session := range []string{"slow", "soon"} {
		err := s.UpdateSession(t.Context(), id(session), func(*store.Session) *store.Session {
			return &store.Session{Info: runtime.SessionInfo{ID: session, CreatedAt: time.Now()}}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	between := func() error {
		_, err := s.PutBundle(t.Context(), id("soon"), 1, io.LimitReader(zeros{}, 3<<20))
		return err
	}
	if _, err := s.PutBundle(t.Context(), id("slow"), 1, io.MultiReader(io.LimitReader(zeros{}, 3<<20), calling(between))); !errors.Is(err, store.ErrBundleShare) {
		t.Errorf("both are stored: %v", err)
	}
	if b, _, err := s.Bundle(t.Context(), id("soon")); b == nil || err != nil {
		t.Errorf("the one that came first is not stored: %v", err)
	}
	if _, err := s.PutBundle(t.Context(), id("slow"), 1, io.LimitReader(zeros{}, 1<<20)); err != nil {
		t.Errorf("what there is room for: %v", err)
	}
}

// What one hub has stored of a session counts until its record says what another hub has stored since.
func TestBundles_ShareOfANodeThatChangesItsHub(t *testing.T) {
	url := natsServer(t)
	o := store.Options{URL: url, BundleBytes: 8 << 20}
	one, two := open(t, "one", o, nil), open(t, "two", o, nil)
	defer one.Close()
	defer two.Close()
	id := func(session string) store.ReplicaID { return store.ReplicaID{Node: "box", Session: session, Epoch: 1} }
	newest := uint64(0)
	put := func(s *store.Store, session string, size int64) error {
		newest++
		b, err := s.PutBundle(t.Context(), id(session), newest, io.LimitReader(zeros{}, size))
		if err != nil {
			return err
		}
		err = s.UpdateSession(t.Context(), id(session), func(*store.Session) *store.Session {
			return &store.Session{Info: runtime.SessionInfo{ID: session, CreatedAt: time.Now()}, Bundled: b.LastSeq, BundleSize: b.Size}
		})
		await(t, "both hubs know it", func() bool {
			for _, s := range []*store.Store{one, two} {
				if is := s.Session(id(session)); is == nil || is.Bundled < b.LastSeq {
					return false
				}
			}
			return true
		})
		return err
	}
	for i, of := range []struct {
		hub     *store.Store
		session string
		size    int64
		want    error
	}{
		{one, "a", 1 << 20, nil},
		{two, "a", 3 << 20, nil},
		{one, "b", 2 << 20, store.ErrBundleShare},
		{one, "a", 1 << 20, nil},
		{two, "a", 3 << 20, nil}, // as large as it was before
		{one, "b", 2 << 20, store.ErrBundleShare},
		{one, "b", 1 << 20, nil},
	} {
		if err := put(of.hub, of.session, of.size); !errors.Is(err, of.want) {
			t.Errorf("%d: %d bytes of %s: %v", i, of.size, of.session, err)
		}
	}
}

// calling calls a function when it is read, and ends.
type calling func() error

func (f calling) Read([]byte) (int, error) { return 0, cmp.Or(f(), io.EOF) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A hub that is killed while it writes a bundle leaves nothing of it.
func TestBundles_KilledWhileOneIsWritten(t *testing.T) {
	const most = 4 << 20
	dir := t.TempDir()
	s := open(t, "one", store.Options{Dir: dir, BundleBytes: most}, nil)
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	whole := bytes.Repeat([]byte("x"), 1<<20)
	if _, err := s.PutBundle(t.Context(), id, 1, bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	// The store goes away in the middle, as with its process.
	_, err := s.PutBundle(t.Context(), store.ReplicaID{Node: "box", Session: "other", Epoch: 1}, 1, io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("y"), 2<<20)), closing{s}))
	if err == nil {
		t.Fatal("it was written to its end")
	}
	s = open(t, "two", store.Options{Dir: dir, BundleBytes: most}, nil)
	defer s.Close()
	if _, err := s.PutBundle(t.Context(), id, 2, bytes.NewReader(bytes.Repeat([]byte("z"), 2<<20))); err != nil {
		t.Errorf("there is no room for one: %v", err)
	}
	if b, _, err := s.Bundle(t.Context(), id); err != nil || b.LastSeq != 2 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A bundle is read as slowly as the one who reads it likes: another machine may have to take it in.
func TestBundles_ReadSlowly(t *testing.T) {
	quickly(t, func(t *testing.T) {
		s := open(t, "hub", store.Options{Dir: t.TempDir()}, nil)
		defer s.Close()
		id, whole := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}, bytes.Repeat([]byte("x"), 2<<20)
		if _, err := s.PutBundle(t.Context(), id, 1, bytes.NewReader(whole)); err != nil {
			t.Fatal(err)
		}
		_, body, err := s.Bundle(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(whole))
		for rest := got; len(rest) > 0; rest = rest[len(got)/4:] {
			if _, err := io.ReadFull(body, rest[:len(got)/4]); err != nil {
				t.Fatalf("with %d bytes left: %v", len(rest), err)
			}
			time.Sleep(time.Minute)
		}
		if n, err := body.Read(make([]byte, 1)); n != 0 || err != io.EOF || !bytes.Equal(got, whole) {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

// quickly runs a test with a store in it by a clock that waits for nobody.
func quickly(t *testing.T, f func(t *testing.T)) {
	ats.Register() // a goroutine that servers share, and that must not be of the test
	defer ats.Unregister()
	synctest.Test(t, f)
}

// A store that goes away while a bundle is written is not waited for as long as a bundle may take: a hub that ends
// waits for who writes it.
func TestBundles_StoreGoesAway(t *testing.T) {
	for what, read := range map[string]int64{"at its beginning": 0, "in the middle": 1 << 20} {
		t.Run(what, func(t *testing.T) {
			quickly(t, func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, "hub", store.Options{Dir: dir}, nil)
				defer s.Close()
				id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
				if _, err := s.PutBundle(t.Context(), id, 1, strings.NewReader("whole")); err != nil {
					t.Fatal(err)
				}
				gone := func() {
					if err := os.Rename(filepath.Join(dir, server.JetStreamStoreDir), filepath.Join(dir, "away")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute) // it looks for its files now and then, and is ended without them
					if s.Ready() == nil {
						t.Fatal("the store is there still")
					}
				}
				if read == 0 {
					gone()
				}
				begun := time.Now()
				_, err := s.PutBundle(t.Context(), id, 2, io.MultiReader(io.LimitReader(zeros{}, read), reading(func() { gone(); begun = time.Now() }), zeros{}))
				if took := time.Since(begun); err == nil || took > time.Minute {
					t.Errorf("it took %v: %v", took, err)
				}
			})
		})
	}
}

// reading is a reader that gives nothing, and has something done.
type reading func()

func (r reading) Read([]byte) (int, error) {
	r()
	return 0, io.EOF
}

// bundleStream is where the bundles of a store are.
func bundleStream(t *testing.T, url string) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_sa_bundles")
	if err != nil {
		t.Fatal(err)
	}
	return js, stream
}

// A bundle that is not what was stored is not taken for that.
func TestBundles_Changed(t *testing.T) {
	url := natsServer(t)
	s := open(t, "hub", store.Options{URL: url}, nil)
	defer s.Close()
	js, stream := bundleStream(t, url)
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	for what, change := range map[string]func(last *jetstream.RawStreamMsg) error{
		"a part is missing": func(last *jetstream.RawStreamMsg) error { return stream.DeleteMsg(t.Context(), last.Sequence) },
		"a part says something else": func(last *jetstream.RawStreamMsg) error {
			if err := stream.DeleteMsg(t.Context(), last.Sequence); err != nil {
				return err
			}
			_, err := js.Publish(t.Context(), last.Subject, bytes.Repeat([]byte("y"), len(last.Data)))
			return err
		},
		"it is replaced": func(*jetstream.RawStreamMsg) error {
			_, err := s.PutBundle(t.Context(), id, 2, strings.NewReader("another"))
			return err
		},
	} {
		if _, err := s.PutBundle(t.Context(), id, 1, io.LimitReader(zeros{}, 1<<20)); err != nil {
			t.Fatal(err)
		}
		_, body, err := s.Bundle(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		last, err := stream.GetLastMsgForSubject(t.Context(), "$O.sa_bundles.C.*")
		if err == nil {
			err = change(last)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, body); err == nil {
			t.Errorf("%s: %d bytes, and no error", what, n)
		}
	}
}

type closing struct{ s *store.Store }

func (c closing) Read([]byte) (int, error) {
	c.s.Close()
	return 0, errors.New("killed")
}
