package native

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

const (
	quiet     = 300 * time.Millisecond // a replay is over when nothing came for so long
	lateBound = 10 * time.Second       // and at most this late
)

// late is a Conn to an agent that answers session/load before it replays the
// session: the answer is held back until the replay is over, because a client
// takes what follows it for new.
type late struct {
	acp.Conn
	in     chan acp.Message // from the reader; closed after err is set
	err    error
	quit   chan struct{} // closed by Close
	done   chan struct{} // closed when the reader has returned
	close  sync.Once
	answer *acp.Message // held back; used by Read only
	until  time.Time    // but not longer than this

	mu    sync.Mutex
	loads map[acp.ID]bool // open session/load requests
}

func holdLoads(c acp.Conn) *late {
	l := &late{Conn: c, in: make(chan acp.Message), quit: make(chan struct{}), done: make(chan struct{}), loads: map[acp.ID]bool{}}
	go l.read()
	return l
}

// read owns the inner Conn's reading side.
func (l *late) read() {
	defer close(l.done)
	defer close(l.in)
	for {
		m, err := l.Conn.Read(context.Background())
		if err != nil {
			l.err = err
			return
		}
		select {
		case l.in <- m.Clone():
		case <-l.quit:
			l.err = net.ErrClosed
			return
		}
	}
}

// Write watches which loads are open.
func (l *late) Write(ctx context.Context, m acp.Message) error {
	if m.Method() == acp.MethodSessionLoad && m.IsRequest() {
		l.mu.Lock()
		l.loads[acp.ID(strings.Clone(string(m.ID())))] = true
		l.mu.Unlock()
	}
	return l.Conn.Write(ctx, m)
}

// Read returns the agent's next message, a held answer when its time has come.
func (l *late) Read(ctx context.Context) (acp.Message, error) {
	for {
		var still <-chan time.Time
		if l.answer != nil {
			t := time.NewTimer(min(quiet, time.Until(l.until)))
			defer t.Stop()
			still = t.C
		}
		select {
		case m, ok := <-l.in:
			switch {
			case ok && l.isLoad(&m):
				l.answer, l.until = &m, time.Now().Add(lateBound)
			case ok:
				return m, nil
			case l.answer != nil:
				return l.release(), nil
			default:
				return acp.Message{}, l.err
			}
		case <-still:
			return l.release(), nil
		case <-ctx.Done():
			return acp.Message{}, context.Cause(ctx)
		}
	}
}

func (l *late) release() acp.Message {
	m := *l.answer
	l.answer = nil
	return m
}

// isLoad reports whether m is the good answer to a session/load, once.
func (l *late) isLoad(m *acp.Message) bool {
	if !m.IsResponse() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	load := l.loads[m.ID()]
	delete(l.loads, m.ID())
	return load && m.Err() == nil && l.answer == nil
}

// Close ends the agent and the reader.
func (l *late) Close() error {
	l.close.Do(func() { close(l.quit) })
	err := l.Conn.Close()
	<-l.done
	return err
}
