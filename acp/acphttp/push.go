package acphttp

import (
	"fmt"
	"runtime/debug"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	sockets "sandboxagent.dev/sandbox-agent/internal/socket"
)

// pushBytes is what is written of a stream by who made the events. A socket that takes anything
// takes it at once, with what is put around events.
const pushBytes = sockets.SmallWrite / 2

// pushed is a stream on its way to a socket. Its pump owns it, and waits most of the time: then who
// makes small events writes them in its stead. A thread that has to be woken for it would cost more
// than all the rest of a short turn.
type pushed struct {
	st    acp.Stream
	room  *sockets.Room
	write func([]acp.Event) error

	mu   sync.Mutex // held by who polls and writes
	over bool       // the pump has ended
	lost error      // a push could not write
	err  error      // a push could not poll
}

// own takes what there is of a stream. The pump that has it must call end.
func own(st acp.Stream, conn any, write func([]acp.Event) error) *pushed {
	p := &pushed{st: st, room: sockets.RoomOf(conn), write: write}
	if p.room != nil {
		st.Push(p.push)
	}
	return p
}

// push writes what there is if that does not wait, and reports whether it was all.
func (p *pushed) push() bool {
	if !p.mu.TryLock() {
		return false // the pump is at it, and looks again
	}
	defer p.mu.Unlock()
	defer func() { // one connection is to end by it, and not the agent's reader
		if v := recover(); v != nil {
			p.err = fmt.Errorf("panicked: %v\n%s", v, debug.Stack())
		}
	}()
	if p.over || p.lost != nil || p.err != nil || !p.room.For(pushBytes) {
		return false
	}
	events, more, err := p.st.PollSmall(pushBytes)
	if p.err = err; err != nil {
		return false // the pump ends with it
	}
	if len(events) > 0 {
		if p.lost = p.write(events); p.lost != nil {
			return false
		}
	}
	p.st.Written()
	return !more
}

// next writes the next events for the pump. lost is that the client cannot be written to, err that
// the events cannot be read.
func (p *pushed) next() (lost, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil || p.err != nil {
		return p.lost, p.err
	}
	events, err := p.st.Poll(pollBytes)
	if err != nil {
		return nil, err
	}
	if len(events) > 0 {
		if err := p.write(events); err != nil {
			return err, nil
		}
	}
	p.st.Written()
	return nil, nil
}

// alone calls write while nobody else writes.
func (p *pushed) alone(write func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return write()
}

// end ends pushes; none is under way when it returns.
func (p *pushed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}
