package store_test

import (
	"testing"

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
