package relay

import (
	"context"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	// window is how many bytes of a session a client may be behind before its node is made
	// to wait. A client without a stream is not waited for: beyond the window the oldest
	// go, and who opens the stream is told so.
	window = 512 << 10
	// kept is how much is kept of what was written, for streams that break. It is what an
	// idle session takes, some times up to maxSessions for a connection.
	kept = 64 << 10
	// stall is how long a client that has a stream and reads nothing is waited for.
	stall = time.Minute
)

// session is a session that a client has open at a node: what came of it lately, on its way
// to the client.
type session struct {
	c    *Client
	id   string       // "" for what a node says of no session
	line *line        // nil for a copy, which is no session of the connection
	log  *journal.Log // in memory; bounded by show

	// Guarded by Client.mu.
	opening bool                         // the hub itself has asked the node to open it
	held    []func(refused *acp.Message) // requests that wait for that; bounded by maxHeld

	// Of the goroutine that calls show.
	seen     uint64 // number of the newest event, at the node
	ahead    []part // of the log, oldest first, that may not be written yet
	bytes    int    // of them
	deserted bool   // the client has let a wait run out
}

// part is a run of entries of a log.
type part struct {
	last  uint64
	bytes int
}

var _ viewer.Session = (*session)(nil)

func newSession(c *Client, l *line, id string) *session {
	log, _ := journal.Open("", journal.Options{Memory: 1 << 30}) // in memory: it cannot fail
	return &session{c: c, id: id, line: l, log: log}
}

// show puts a message of the node on its way to the client. It waits while the client is
// too far behind. Only one goroutine calls it, that of the line if there is one.
func (s *session) show(ctx context.Context, m acp.Message) {
	if raw, ok := rawjson.Member(m.Meta(), acp.MetaKey, "seq"); ok {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			s.seen = max(s.seen, n)
		}
	}
	c, frame := s.c, m.Frame()
	seq, _ := s.log.AppendFlush(journal.Update, c.Number(), frame) // in memory: it cannot fail
	s.bytes += len(frame)
	if n := len(s.ahead); n > 0 && s.ahead[n-1].bytes < window/8 {
		s.ahead[n-1] = part{seq, s.ahead[n-1].bytes + len(frame)}
		return
	}
	s.ahead = append(s.ahead, part{seq, len(frame)})
	reached := s.forgetWritten()
	for len(s.ahead) > 1 && (s.ahead[0].last <= reached || s.bytes > window) {
		if oldest := s.ahead[0].last; oldest > reached {
			patience := stall
			if s.deserted {
				patience = time.Millisecond
			}
			began := time.Now()
			c.AwaitEntry(ctx, s, oldest, patience)
			s.deserted = time.Since(began) >= patience
			s.log.Forget(oldest, kept)
		}
		s.bytes -= s.ahead[0].bytes
		s.ahead = s.ahead[1:]
	}
}

// forgetWritten lets go of what was written to the client, and returns the last of it.
func (s *session) forgetWritten() uint64 {
	reached := s.c.Reached(s)
	s.log.Forget(reached, kept)
	return reached
}

// ID implements [viewer.Session].
func (s *session) ID() string { return s.id }

// Log implements [viewer.Session].
func (s *session) Log() *journal.Log { return s.log }

// Flush implements [viewer.Session].
func (s *session) Flush() { _ = s.log.Flush() } // in memory: it cannot fail

// Enter implements [viewer.Session]: the session is its client's alone.
func (s *session) Enter() bool { return true }

// Exit implements [viewer.Session].
func (s *session) Exit() {}

// Join implements [viewer.Session]. Requests of agents are shown when they come.
func (s *session) Join(*viewer.Feed, uint64) []uint64 { return nil }

// Leave implements [viewer.Session].
func (s *session) Leave(*viewer.Feed) {}

// BesideLog implements [viewer.Session]. What a client is given was made for it by the node.
func (s *session) BesideLog() version.About { return version.About{} }
