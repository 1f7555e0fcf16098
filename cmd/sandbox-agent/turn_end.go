package main

import (
	"context"
	"encoding/json"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// turnEnds knows how the turns of a session have ended in version 2 of the protocol, where
// the answer to a prompt says that it has begun, and the session's state says the rest. note
// is called by one goroutine.
type turnEnds struct {
	wake chan struct{} // holds a token when something has ended

	mu    sync.Mutex
	open  []string           // messages of people since a turn ended last
	ended map[string]turnEnd // by the message that the turn began with
	gone  *acp.Error         // why the session is told of no more; nil while it is
}

// turnEnd is how a turn has ended.
type turnEnd struct {
	stopReason string
	err        *acp.Error // of a turn that failed
}

func newTurnEnds() *turnEnds {
	return &turnEnds{wake: make(chan struct{}, 1), ended: map[string]turnEnd{}}
}

// note takes a message of the session; those of its subagents are of other sessions.
func (e *turnEnds) note(m acp.Message) {
	kind := string(m.UpdateKind())
	if kind != "user_message" && kind != "state_update" {
		return
	}
	u := m.Update()
	e.mu.Lock()
	defer e.mu.Unlock()
	if kind == "user_message" {
		e.open = append(e.open, rawjson.MemberString(u, "messageId"))
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
	for _, message := range e.open {
		e.ended[message] = end
	}
	e.open = nil
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// of waits for the end of the turn that the message began. The error of a turn that failed is
// an *acp.Error, as that of a request.
func (e *turnEnds) of(ctx context.Context, l *link, message string) (stopReason string, err error) {
	for {
		e.mu.Lock()
		end, ok := e.ended[message]
		gone := e.gone
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
		case <-e.wake:
		case <-l.ended:
			return "", l.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// fail ends all turns that have not ended: the session is told of no more.
func (e *turnEnds) fail(why *acp.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = why
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
