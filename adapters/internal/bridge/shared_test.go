package bridge_test

import (
	"context"
	"errors"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// shared is a server without a process.
type shared struct {
	ended chan struct{}
	ends  int
}

func (s *shared) Process() *process.Process { return nil }
func (s *shared) Ended() <-chan struct{}    { return s.ended }
func (s *shared) End()                      { s.ends++ }

func TestServers(t *testing.T) {
	conn := bridge.New(func(acp.Peer, *bridge.Conn) acp.Agent { return &talker{closed: make(chan struct{})} })
	defer func() { _ = conn.Close() }()
	starting, goOn := make(chan struct{}), make(chan error)
	made := make(chan *shared, 8)
	var died []*shared
	servers := bridge.NewServers(conn, func(_ context.Context, kind string) (*shared, error) {
		starting <- struct{}{}
		if err := <-goOn; err != nil {
			return nil, err
		}
		s := &shared{ended: make(chan struct{})}
		if kind == "short" {
			close(s.ended)
		}
		made <- s
		return s, nil
	}, func(s *shared) { died = append(died, s) })
	get := func(kind string) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := servers.Get(t.Context(), kind)
			done <- err
		}()
		return done
	}

	failed := errors.New("no such program")
	one := get("a")
	<-starting
	goOn <- failed
	if err := <-one; !errors.Is(err, failed) {
		t.Errorf("a start that fails: %v", err)
	}

	// Two that ask at one time get one server.
	one, two := get("a"), get("a")
	<-starting
	goOn <- nil
	if err := errors.Join(<-one, <-two); err != nil || len(made) != 1 {
		t.Fatalf("%d were started, %v", len(made), err)
	}
	a := <-made
	if s, ok := servers.Open("a"); !ok || s != a || !servers.Serves("a", a) || servers.Serves("b", a) {
		t.Error("the server is not in the table")
	}

	one = get("short")
	<-starting
	goOn <- nil
	if err := <-one; err != nil || len(died) != 1 || died[0] != <-made {
		t.Errorf("of a server that ended at once %d died, %v", len(died), err)
	}

	// Close waits for a start that is under way, whose server nobody gets.
	one = get("late")
	<-starting
	closed := make(chan struct{})
	go func() {
		servers.Close()
		close(closed)
	}()
	for servers.Serves("a", a) { // until Close has begun
		_, _ = servers.Open("a")
	}
	select {
	case <-closed:
		t.Error("Close does not wait")
	default:
	}
	goOn <- nil
	if err := <-one; !errors.Is(err, bridge.ErrClosed) {
		t.Errorf("the late start: %v", err)
	}
	<-closed
	if late := <-made; a.ends != 1 || late.ends != 1 {
		t.Errorf("ended %d and %d times, want once each", a.ends, late.ends)
	}
	if _, err := servers.Get(t.Context(), "a"); !errors.Is(err, bridge.ErrClosed) {
		t.Errorf("behind Close: %v", err)
	}
}
