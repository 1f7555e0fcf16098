package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
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
				h, join, has := lossHub(t)
				held := join("lost")
				has("lost")
				if err := h.o.Store.Leave(t.Context(), held); err != nil {
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

// lossHub is a hub in the time of a test, with how a node joins it and how it hears that one has the session s.
func lossHub(t *testing.T) (h *Hub, join func(name string) store.Held, has func(node string)) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Hub: "hub"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h = New(Options{Store: s, OnLoss: []OnLoss{{}}})
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(expected) // no node is one of a hub before this one
	return h, func(name string) store.Held {
			held, err := s.Join(t.Context(), store.Node{Name: name, Instance: name}, func(store.Node) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return held
		}, func(node string) {
			n, _ := s.Node(node)
			id := store.ReplicaID{Node: node, Session: "s", Epoch: 1}
			if err := s.UpdateSession(t.Context(), id, func(*store.Session) *store.Session {
				return &store.Session{ReplicaID: id, NodeJoined: n.Joined, Bundled: 1, Info: runtime.SessionInfo{ID: "s", EventCount: 1, State: runtime.StateIdle}}
			}); err != nil {
				t.Fatal(err)
			}
		}
}

// A node that takes a little of a session now and then, and never comes to its end, is not waited for without end: others are left. Who has
// asked for a move can end it, and may have it for longer.
func TestMove_TheNodeTrickles(t *testing.T) {
	ats.Register() // a goroutine that servers share, and that must not be of the test
	defer ats.Unregister()
	t.Run("lost", func(t *testing.T) {
		trickles(t, lossMost, func(t *testing.T, h *Hub, taken *atomic.Int64) (took time.Duration) {
			watch := newLossWatch(h)
			for range 120 {
				time.Sleep(lossLook)
				began := time.Now()
				if watch.look(t.Context()); taken.Load() > 0 {
					took = time.Since(began)
					break
				}
			}
			if !watch.isSilent("there") {
				t.Error("the next session would go there as well")
			}
			return took
		})
	})
	t.Run("asked", func(t *testing.T) {
		trickles(t, mostMove, func(t *testing.T, h *Hub, _ *atomic.Int64) time.Duration {
			h.o.Replicate = true
			time.Sleep(time.Minute) // until its node is away for good
			began := time.Now()
			_, err := nodes{h: h}.Move(t.Context(), itself, "s", relay.Destination{})
			if err == nil || !strings.Contains(err.Error(), "within an hour") {
				t.Errorf("it is told %v", err)
			}
			return time.Since(began)
		})
	})
}

// trickles has a session move from a node that is lost to one that takes it slowly, which is over after so long.
func trickles(t *testing.T, most time.Duration, move func(t *testing.T, h *Hub, taken *atomic.Int64) (took time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		h, join, has := lossHub(t)
		held := join("lost")
		has("lost")
		id := store.ReplicaID{Node: "lost", Session: "s", Epoch: 1}
		line := []byte(`{"seq":1,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{"jsonrpc":"2.0","method":"session/update"}}` + "\n")
		if _, err := h.o.Store.Append(t.Context(), id, store.Place{}, store.Batch{First: 1, Last: 1, Lines: line}); err != nil {
			t.Fatal(err)
		}
		var kept bytes.Buffer
		w, err := parcel.NewWriter(&kept, runtime.Manifest{Version: runtime.ManifestVersion, SessionID: "s", Agent: "mock", AgentSessionID: "s", Cwd: "/work", LastSeq: 1, WithoutLog: true})
		if err == nil {
			err = w.Put(runtime.TravelRecord, strings.NewReader("{}"))
		}
		if err == nil {
			err = w.Put(runtime.TravelAgent+"large", io.LimitReader(rand.Reader, 8<<20))
		}
		if err == nil {
			err = w.Close()
		}
		if err == nil {
			_, err = h.o.Store.PutBundle(t.Context(), id, 1, &kept)
		}
		if err == nil {
			err = h.o.Store.Leave(t.Context(), held)
		}
		if err != nil {
			t.Fatal(err)
		}
		join("there")
		var taken atomic.Int64
		at := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				problem.Write(w, problem.New(problem.SessionNotFound, "there is no such session"))
				return
			}
			for part := make([]byte, 64<<10); ; time.Sleep(flowStall - time.Second) {
				n, err := io.ReadFull(r.Body, part)
				if taken.Add(int64(n)); err != nil {
					return
				}
			}
		}))
		l := &link{name: "there", users: map[string]int{}, carrier: newStreams(func(context.Context) (net.Conn, error) { return at.Dial(), nil }, idleStreams)}
		defer l.carrier.CloseIdleConnections()
		h.links.add(l)
		defer h.links.drop(l)
		if took := move(t, h, &taken); took != most {
			t.Errorf("it has taken %d bytes in %v", taken.Load(), took)
		}
	})
}

// busyWith reports whether the hub is doing as many moves.
func (h *Hub) busyWith(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.moving.ids) == n
}
