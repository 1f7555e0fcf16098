package store_test

import (
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/store/storetest"
)

// Of three servers one may be away. With two away what is known stays known, the store
// says that it takes nothing, and goes on when one is back.
func TestCluster_ServersGoAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel()
	c := storetest.NewCluster(t, 3)
	for i := range 3 {
		c.Start(i)
	}
	await(t, "the servers have chosen a leader", c.Leader)
	s := open(t, "one", store.Options{URL: c.URL(), Replicas: 3}, nil)
	defer s.Close()
	made := func() (string, error) {
		_, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeDrive})
		return text, err
	}
	before, err := made()
	if err != nil {
		t.Fatal(err)
	}

	c.Stop(0)
	var later string
	await(t, "a token is made without one of the servers", func() bool {
		later, err = made()
		return err == nil
	})
	c.Stop(1)
	await(t, "the store says that it takes nothing", func() bool { return s.Ready() != nil })
	if _, err := made(); err == nil {
		t.Error("a token is made by one of three servers")
	}
	for _, text := range []string{before, later} {
		if _, _, ok := s.Verify(text); !ok {
			t.Error("a token is not known any more")
		}
	}

	c.Start(1)
	await(t, "the store takes something again", func() bool { return s.Ready() == nil })
	await(t, "a token is made again", func() bool { // each bucket chooses a leader by itself
		_, err := made()
		return err == nil
	})
	other := open(t, "two", store.Options{URL: c.URL(), Replicas: 3}, nil)
	defer other.Close()
	for _, text := range []string{before, later} {
		if _, _, ok := other.Verify(text); !ok {
			t.Error("another hub does not know a token")
		}
	}
}

// What was written of a bundle when most servers went away is removed with the next one: it is not left to take up room.
func TestBundles_ServersGoAway(t *testing.T) {
	t.Parallel() // it waits more than it computes
	c := storetest.NewCluster(t, 3)
	for i := range 3 {
		c.Start(i)
	}
	await(t, "the servers have chosen a leader", c.Leader)
	s := open(t, "hub", store.Options{URL: c.URL(), Replicas: 3}, nil)
	defer s.Close()
	_, stream := bundleStream(t, c.URL())
	parts := func() map[string]uint64 {
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("$O.sa_bundles.C.>"))
		if err != nil {
			t.Error(err)
			return nil
		}
		return info.State.Subjects
	}
	id := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}
	var written map[string]uint64
	away := reading(func() { written = parts(); c.Stop(1); c.Stop(2) })
	if _, err := s.PutBundle(t.Context(), id, 1, io.MultiReader(io.LimitReader(zeros{}, 1<<20), away, io.LimitReader(zeros{}, 1<<20))); err == nil {
		t.Fatal("it was written without most servers")
	}
	if len(written) != 1 {
		t.Fatalf("before the servers went away there were parts of %d bundles, want 1", len(written))
	}
	c.Start(1)
	c.Start(2)
	unsure := 0
	for range 2 { // each in the place of the one before
		await(t, "a bundle is stored", func() bool {
			_, err := s.PutBundle(t.Context(), id, 2, strings.NewReader("whole"))
			if err != nil {
				unsure++ // with servers that have only just come: its parts may be kept until it is known
			}
			return err == nil
		})
	}
	left := parts()
	for subject := range written {
		if left[subject] != 0 {
			t.Errorf("%d parts of the bundle that was not written are left", left[subject])
		}
	}
	if len(left) < 1 || len(left) > 1+2*unsure {
		t.Errorf("there are parts of %d bundles, want 1, and at most 2 for each of %d that failed: %v", len(left), unsure, left)
	}
}
