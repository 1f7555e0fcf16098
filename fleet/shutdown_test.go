package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// hung are traces to which the end of a request takes until the hub has ended all that goes on.
type hung struct {
	Traces
	hub   *Hub
	begun chan struct{}
}

type hungSpan struct {
	observe.NoSpan
	of *hung
}

func (t *hung) Begin(context.Context, observe.Work) observe.Span { return hungSpan{of: t} }

func (s hungSpan) End(observe.Outcome) {
	close(s.of.begun)
	<-s.of.hub.stop.Done()
}

// A connection of a client that hangs does not spend all the time that a hub has for its end: the rest ends in it.
func TestHub_ShutdownWhereAConnectionHangs(t *testing.T) {
	ats.Register() // a goroutine that servers share, and that must not be of the test
	defer ats.Unregister()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Hub: "hub"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		traces := &hung{begun: make(chan struct{})}
		h := New(Options{Store: s, Traces: traces})
		traces.hub = h
		begin := acp.NewRequest("0", acp.MethodInitialize, []byte(`{"protocolVersion":1,"clientCapabilities":{}}`))
		ctx := context.WithValue(t.Context(), callerKey{}, caller{token: store.Token{Kind: store.KindClient, Scope: store.ScopeAdmin}, over: t.Context()})
		c, _, err := h.relay.Connect(ctx, begin, acp.ConnectOptions{Shape: acp.OneStream})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(ctx, acp.NewRequest("1", "session/list", []byte(`{}`))); err != nil {
			t.Fatal(err)
		}
		<-traces.begun
		ends, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Shutdown(ends); err != nil {
			t.Error(err)
		}
	})
}
