package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// turnEnds knows how turns have ended in version 2 of the protocol, where the answer to a
// prompt says that it has begun, and the session's state says the rest. Sessions are known
// while somebody waits for a turn of theirs. note is called by one goroutine.
type turnEnds struct {
	mu       sync.Mutex
	sessions map[string]*sessionEnds
}

// sessionEnds are the ends of a session's turns.
type sessionEnds struct {
	waiting int                // who waits for one
	open    []string           // messages of people since a turn ended last
	ended   map[string]turnEnd // by the message that the turn began with
	gone    *acp.Error         // why the session is told of no more; nil while it is
	news    chan struct{}      // closed and replaced when something has ended
}

// turnEnd is how a turn has ended.
type turnEnd struct {
	stopReason string
	err        *acp.Error // of a turn that failed
}

func newTurnEnds() *turnEnds { return &turnEnds{sessions: map[string]*sessionEnds{}} }

// expect is called before a prompt is sent, and the result when its end is known or nobody
// waits for it any more.
func (e *turnEnds) expect(session string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[session]
	if s == nil {
		s = &sessionEnds{ended: map[string]turnEnd{}, news: make(chan struct{})}
		e.sessions[session] = s
	}
	s.waiting++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			delete(e.sessions, session)
		}
	}
}

// note takes every message. Those of a subagent are of its own session, and end no turn. A session that a client has
// deleted says nothing more, also when how the turn ended was still on its way. That one was closed can be told before how
// its turn ended, which comes.
func (e *turnEnds) note(m acp.Message) {
	if m.Method() == "_sandboxagent/session/ended" && rawjson.MemberString(m.Params(), "data", "reason") == "deleted" {
		e.fail(m.Session(), acp.Errorf(acp.CodeResourceNotFound, "session %s was deleted by a client", m.Session()))
		return
	}
	kind := string(m.UpdateKind())
	if kind != "user_message" && kind != "state_update" {
		return
	}
	u := m.Update()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[m.Session()]
	if s == nil {
		return
	}
	if kind == "user_message" {
		s.open = append(s.open, rawjson.MemberString(u, "messageId"))
		return
	}
	end := turnEnd{stopReason: rawjson.MemberString(u, "stopReason")}
	if rawjson.MemberString(u, "state") != "idle" || end.stopReason == "" {
		return // it goes on, or ended before anybody here was listening
	}
	if failure, ok := rawjson.Member(u, "error"); ok && end.stopReason == "error" {
		end.err = &acp.Error{}
		if json.Unmarshal(failure, end.err) != nil {
			end.err = acp.Errorf(acp.CodeInternal, "the turn failed: %s", failure)
		}
	}
	for _, message := range s.open {
		s.ended[message] = end
	}
	s.open = nil
	s.tell()
}

// fail ends the turns of a session that is told of no more.
func (e *turnEnds) fail(session string, why *acp.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[session]; s != nil {
		s.gone = why
		s.tell()
	}
}

func (s *sessionEnds) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

// of waits for the end of the turn that the message began, of a session that one is expected
// of. The error of a turn that failed is an *acp.Error, as that of a request.
func (e *turnEnds) of(ctx context.Context, l *link, session, message string) (stopReason string, err error) {
	for {
		e.mu.Lock()
		s := e.sessions[session]
		end, ok := s.ended[message]
		gone, news := s.gone, s.news
		e.mu.Unlock()
		switch {
		case ok && end.err != nil:
			return "", end.err
		case ok:
			return end.stopReason, nil
		case gone != nil:
			return "", gone
		}
		select {
		case <-news:
		case <-l.ended:
			return "", l.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// promptTwo sends a prompt in version 2 and waits for its end. One that was cancelled before
// it began has ended so, too. sent is called when it was sent, or could not be.
func (l *link) promptTwo(ctx context.Context, ends *turnEnds, session string, id acp.ID, params any, sent func()) (stopReason string, err error) {
	defer ends.expect(session)()
	wait, err := l.send(ctx, id, acp.MethodSessionPrompt, params)
	sent()
	if err != nil {
		return "", err
	}
	res, err := wait(ctx)
	if failure, ok := errors.AsType[*acp.Error](err); ok && failure.Code == acp.CodeCancelled {
		return string(schema.StopReasonCancelled), nil
	}
	if err != nil {
		return "", err
	}
	return ends.of(ctx, l, session, rawjson.MemberString(res, "messageId"))
}

// turnAt is the newest event that said whose turn it is. The answer that opens a session says
// that, too, and may come behind events which it does not know of.
type turnAt uint64

// note takes such an event.
func (at *turnAt) note(m *acp.Message) {
	raw, _ := rawjson.Member(m.Meta(), acp.MetaKey, "seq")
	if seq, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		*at = turnAt(seq)
	}
}

// newer reports whether such an event came that the answer does not know of.
func (at turnAt) newer(result []byte) bool {
	raw, _ := rawjson.Member(result, "_meta", acp.MetaKey, "seq")
	seq, err := strconv.ParseUint(string(raw), 10, 64)
	return err == nil && uint64(at) > seq
}
