package native

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
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
	in    chan acp.Message // from the reader; closed after err is set
	err   error
	quit  chan struct{} // closed by Close
	done  chan struct{} // closed when the reader has returned
	close sync.Once
	held  []*held // oldest first; used by Read only

	mu    sync.Mutex
	loads map[acp.ID]string // open session/load requests, and their sessions
}

// held is an answer that is held back.
type held struct {
	answer  acp.Message
	session string
	quiet   time.Duration // that Read has yet to wait without an update of the session
	until   time.Time     // but not longer than this
}

// left is how long the answer is held if nothing comes.
func (h *held) left() time.Duration { return min(h.quiet, time.Until(h.until)) }

func holdLoads(c acp.Conn) *late {
	l := &late{Conn: c, in: make(chan acp.Message), quit: make(chan struct{}), done: make(chan struct{}), loads: map[acp.ID]string{}}
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
		l.loads[acp.ID(strings.Clone(string(m.ID())))] = rawjson.MemberString(m.Params(), "sessionId")
		l.mu.Unlock()
	}
	return l.Conn.Write(ctx, m)
}

// Read returns the agent's next message, a held answer when its time has come.
func (l *late) Read(ctx context.Context) (acp.Message, error) {
	for {
		next := l.next()
		var still <-chan time.Time
		if next != nil {
			t := time.NewTimer(next.left())
			defer t.Stop()
			still = t.C
		}
		from := time.Now()
		select {
		case m, ok := <-l.in:
			l.waited(time.Since(from))
			switch {
			case ok && l.hold(&m):
			case ok:
				l.saw(&m)
				return m, nil
			case next != nil:
				return l.release(next), nil
			default:
				return acp.Message{}, l.err
			}
		case <-still:
			l.waited(time.Since(from))
			return l.release(next), nil
		case <-ctx.Done():
			l.waited(time.Since(from))
			return acp.Message{}, context.Cause(ctx)
		}
	}
}

// next returns the answer whose time comes first, nil for none.
func (l *late) next() *held {
	if len(l.held) == 0 {
		return nil
	}
	return slices.MinFunc(l.held, func(a, b *held) int { return cmp.Compare(a.left(), b.left()) })
}

// waited notes that nothing came for a while. Only the time in which Read waits counts: else a replay waits for Read.
func (l *late) waited(d time.Duration) {
	for _, h := range l.held {
		h.quiet -= d
	}
}

// saw notes an update of a replay. Those of other sessions say nothing of it.
func (l *late) saw(m *acp.Message) {
	if len(l.held) == 0 || m.Method() == "" {
		return
	}
	session := rawjson.MemberString(m.Params(), "sessionId")
	for _, h := range l.held {
		if h.session == session {
			h.quiet = quiet
		}
	}
}

func (l *late) release(h *held) acp.Message {
	l.held = slices.DeleteFunc(l.held, func(one *held) bool { return one == h })
	return h.answer
}

// hold holds m back if it is the good answer to a session/load, once.
func (l *late) hold(m *acp.Message) bool {
	if !m.IsResponse() {
		return false
	}
	l.mu.Lock()
	session, load := l.loads[m.ID()]
	delete(l.loads, m.ID())
	l.mu.Unlock()
	if !load || m.Err() != nil {
		return false
	}
	l.held = append(l.held, &held{*m, session, quiet, time.Now().Add(lateBound)})
	return true
}

// Close ends the agent and the reader.
func (l *late) Close() error {
	l.close.Do(func() { close(l.quit) })
	err := l.Conn.Close()
	<-l.done
	return err
}
