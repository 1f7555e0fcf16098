package acptest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Recorder follows one connection between a client and a gateway, or an agent,
// and checks its frames. It is safe for concurrent use; frames have to be
// recorded in the order in which they were sent, a request before its answer.
type Recorder struct {
	v *Validator

	mu      sync.Mutex
	client  map[acp.ID]string // open requests of the client
	gateway map[acp.ID]string // open requests of the gateway
}

// NewRecorder returns a recorder of a new connection of version 1.
func NewRecorder(t testing.TB) *Recorder {
	t.Helper()
	return NewRecorderFor(t, 1)
}

// NewRecorderFor returns a recorder of a new connection of a version of the protocol.
func NewRecorderFor(t testing.TB, version int) *Recorder {
	t.Helper()
	return &Recorder{v: NewFor(t, version), client: make(map[acp.ID]string), gateway: make(map[acp.ID]string)}
}

// Client records a frame that the client sends, without judging it: tests send
// wrong frames on purpose.
func (r *Recorder) Client(frame []byte) { _ = r.record(frame, r.client, r.gateway) }

// CheckClient records a frame that the client sends and checks it.
func (r *Recorder) CheckClient(frame []byte) error {
	if err := r.v.ValidateClientFrame(frame, r.methodIn(r.gateway)); err != nil {
		return fmt.Errorf("%w in client frame %s", err, clip(frame))
	}
	return r.record(frame, r.client, r.gateway)
}

// Gateway records a frame that the gateway, or an agent, sends and checks it.
func (r *Recorder) Gateway(frame []byte) error {
	if err := r.v.ValidateFrame(frame, r.methodIn(r.client)); err != nil {
		return fmt.Errorf("%w in frame %s", err, clip(frame))
	}
	return r.record(frame, r.gateway, r.client)
}

// Open returns how many requests of either side have no answer yet.
func (r *Recorder) Open() (client, gateway int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.client), len(r.gateway)
}

func (r *Recorder) methodIn(open map[acp.ID]string) func(id string) string {
	return func(id string) string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return open[acp.ID(id)]
	}
}

// record notes a request in mine and ends one of theirs with its answer.
func (r *Recorder) record(frame []byte, mine, theirs map[acp.ID]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := acp.Parse(bytes.Clone(frame))
	if bad, ok := errors.AsType[*acp.ParseError](err); ok && bad.ID != "" && mine[bad.ID] == "" {
		mine[bad.ID] = "_invalid" // it will be refused by its id
	}
	if err != nil {
		return err
	}
	switch {
	case m.IsRequest():
		if method, taken := mine[m.ID()]; taken {
			return fmt.Errorf("the id %s is used for %s while %s has it", m.ID(), m.Method(), method)
		}
		mine[m.ID()] = m.Method()
	case m.IsResponse():
		delete(theirs, m.ID())
	}
	return nil
}

// clip shortens a frame for an error text.
func clip(frame []byte) []byte {
	const most = 400
	if len(frame) <= most {
		return frame
	}
	return append(bytes.Clone(frame[:most]), "..."...)
}
