package fleet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// What keeps all sessions of a node that is lost for minutes, and is over then, makes none of them wait for minutes more: that
// the hub moves as many as it does at one time, and that there was no other node to go to.
func TestLossWatch_ThereIsAPlaceAgain(t *testing.T) {
	ats.Register() // a goroutine that servers share, and that must not be of the test
	defer ats.Unregister()
	for _, missing := range []string{"a move", "a node"} {
		t.Run(missing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Hub: "hub"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				h := New(Options{Store: s, OnLoss: []OnLoss{{}}})
				defer h.Shutdown()
				time.Sleep(expected) // no node is one of a hub before this one
				join := func(name string) store.Held {
					held, err := s.Join(t.Context(), store.Node{Name: name, Instance: name}, func(store.Node) error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					return held
				}
				has := func(node string) {
					n, _ := s.Node(node)
					id := store.ReplicaID{Node: node, Session: "s", Epoch: 1}
					if err := s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
						return &store.Session{ReplicaID: id, NodeJoined: n.Joined, Bundled: 1, Info: runtime.SessionInfo{ID: "s", EventCount: 1, State: runtime.StateIdle}}
					}); err != nil {
						t.Fatal(err)
					}
				}
				held := join("lost")
				has("lost")
				if err := s.Leave(t.Context(), held); err != nil {
					t.Fatal(err)
				}
				join("there")
				defer h.links.expect("there")() // it is connected, and its tunnel about to be open
				if missing == "a move" {
					for i := range maxMoves {
						h.beginMove(fmt.Sprint(i))
					}
				} else {
					has("there")
				}
				w := newLossWatch(h)
				for range 120 {
					time.Sleep(lossLook)
					w.look(t.Context())
				}
				if missing == "a move" {
					for i := range maxMoves {
						h.endMove(fmt.Sprint(i))
					}
				} else {
					join("new")
					defer h.links.expect("new")()
				}
				ctx, cancel := context.WithCancel(t.Context())
				looked := make(chan struct{})
				time.Sleep(lossLook)
				go func() {
					defer close(looked)
					w.look(ctx)
				}()
				synctest.Wait()
				if !h.busyWith(1) {
					t.Error("the session is not on its way")
				}
				cancel()
				<-looked
			})
		})
	}
}

// busyWith reports whether the hub is doing as many moves.
func (h *Hub) busyWith(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moving.ids) == n
}
