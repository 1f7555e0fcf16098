package codex

import (
	"context"
	"errors"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// running is a prompt that codex works on.
type running struct {
	// Guarded by the session's mu.
	ids       map[string]bool // of its turn: a review has several
	begun     bool            // started is closed
	ended     bool
	cancelled bool // the client wants it to end
	refused   int  // attempts with bad credentials
	auth      string

	started chan struct{}
	done    chan verdict // cap 1
}

// verdict is how a turn ended.
type verdict struct {
	reason  schema.StopReason
	err     error
	usage   *schema.Usage
	ids     map[string]bool
	aborted bool
}

// known notes a turn's id.
func (s *session) known(t *running, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		t.ids[id] = true
	}
}

// owns reports whether a turn is the session's and runs.
func (s *session) owns(turn string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && s.running.ids[turn] || s.alone[turn]
}

// observe notes what a notification means for the turn, before it is shown.
func (s *session) observe(e *event) {
	if e.Thread != s.thread {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.running
	switch {
	case e.Method == "turn/started" && e.Turn != nil:
		// It may come before the response to the prompt, which it answers then.
		if t == nil || t.ended || len(s.alone) > 0 && !t.ids[e.Turn.ID] {
			s.aloneLocked(e.Turn.ID)
			return
		}
		t.ids[e.Turn.ID] = true
		if e.Turn.Root != "" {
			t.ids[e.Turn.Root] = true
		}
		if !t.begun {
			t.begun = true
			close(t.started)
		}
	case e.Method == "error" && e.Retry && t != nil:
		f := e.failure()
		if f == nil || !f.unauthorized() {
			return
		}
		if t.refused++; t.refused >= s.srv.attempts() && t.auth == "" {
			t.auth = f.Message
			if f.Details != "" {
				t.auth = f.Details
			}
			s.nudgeLocked() // further attempts would fail as well
		}
	}
}

func (s *server) attempts() int {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.account.attempts()
}

// aloneLocked notes a turn that nobody prompted.
func (s *session) aloneLocked(id string) {
	if len(s.alone) == 0 {
		s.idle = make(chan struct{})
	}
	s.alone[id] = true
}

// settle ends the turn that codex says is over.
func (s *session) settle(one *turn) {
	s.out.Lock()
	used := s.tr.usage.ofTurn()
	s.out.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alone) > 0 {
		delete(s.alone, one.ID)
		delete(s.alone, one.Root)
		if len(s.alone) == 0 {
			close(s.idle)
			s.idle = nil
		}
	}
	t := s.running
	if t == nil || t.ended || len(t.ids) > 0 && !t.ids[one.ID] {
		return
	}
	t.ended = true
	v := t.judge(one)
	v.usage, v.ids, v.aborted = used, t.ids, one.Status == "interrupted"
	t.done <- v
}

// judge turns the end of a turn into what the prompt's response says.
func (t *running) judge(one *turn) verdict {
	if t.auth != "" {
		return verdict{err: authRequired(t.auth)}
	}
	switch {
	case one.Status == "interrupted":
		return verdict{reason: schema.StopReasonCancelled}
	case one.Status != "failed":
		return verdict{reason: schema.StopReasonEndTurn}
	}
	f := one.Error
	if f == nil {
		f = &turnError{Message: "the turn failed"}
	}
	if t.cancelled {
		return verdict{reason: schema.StopReasonCancelled}
	}
	kind, status := f.kind()
	switch {
	case f.unauthorized():
		return verdict{err: authRequired(f.Message)}
	case strings.Contains(f.Message, "max_output_tokens"):
		return verdict{reason: schema.StopReasonMaxTokens}
	case kind == "cyberPolicy" || kind == "misalignmentPolicyViolation" || strings.Contains(f.Message, "content_filter"):
		return verdict{reason: schema.StopReasonRefusal}
	}
	data := map[string]any{"type": "urn:sandbox-agent:error:agent_error", "kind": kind}
	if status != 0 {
		data["status"] = status
	}
	if f.Details != "" {
		data["details"] = f.Details
	}
	return verdict{err: acp.Errorf(acp.CodeInternal, "%s", f.Message).WithData(data)}
}

// await waits for the end of a turn, and ends it when the client wants that.
func (s *session) await(ctx context.Context, t *running, cancelled <-chan struct{}) verdict {
	select {
	case v := <-t.done:
		return s.tidy(v)
	case <-s.srv.ended:
		return s.last(t)
	case <-cancelled:
	case <-ctx.Done():
	}
	s.mu.Lock()
	t.cancelled = true
	s.mu.Unlock()
	limit := time.NewTimer(cancelBound)
	defer limit.Stop()
	s.dropAsks()
	// Before it has begun there is nothing to interrupt.
	select {
	case <-t.started:
		s.mu.Lock()
		s.nudgeLocked()
		s.mu.Unlock()
	case v := <-t.done:
		return s.tidy(v)
	case <-s.srv.ended:
		return s.last(t)
	case <-limit.C:
	}
	select {
	case v := <-t.done:
		v = s.tidy(v)
		if v.reason == schema.StopReasonEndTurn || v.err == nil {
			v.reason = schema.StopReasonCancelled
		}
		return v
	case <-s.srv.ended:
		return s.last(t)
	case <-limit.C:
	}
	s.log.Warn("a cancelled turn does not end")
	s.mu.Lock()
	ids := t.ids
	s.mu.Unlock()
	return s.tidy(verdict{reason: schema.StopReasonCancelled, ids: ids, aborted: true})
}

// last is the verdict of a turn whose process has ended.
func (s *session) last(t *running) verdict {
	select {
	case v := <-t.done:
		return v
	default:
		return verdict{err: s.srv.exit}
	}
}

// interruptPauses are those between attempts to interrupt a turn, which codex
// refuses until it has really begun.
var interruptPauses = []time.Duration{
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
}

// interrupt breaks off whatever turn of the thread runs.
func (s *session) interrupt(ctx context.Context) error {
	for _, pause := range interruptPauses {
		err := s.srv.call(ctx, "turn/interrupt", map[string]string{"threadId": s.thread, "turnId": ""}, nil)
		if err == nil || !strings.Contains(refused(err), "no active turn") {
			return err
		}
		s.mu.Lock()
		t := s.running
		open := t != nil && !t.ended || len(s.alone) > 0
		s.mu.Unlock()
		if !open {
			return nil
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
	return errors.New("codex says that there is no turn to interrupt")
}

// nudgeLocked interrupts without waiting for it.
func (s *session) nudgeLocked() {
	if s.ctx.Err() != nil {
		return
	}
	s.work.Go(func() {
		if err := s.interrupt(s.ctx); err != nil {
			s.log.Debug("interrupt a turn", "err", err)
		}
	})
}

// tidy ends the commands that a turn left running when it was broken off, and
// closes what it left open. What earlier turns left in the background goes on.
func (s *session) tidy(v verdict) verdict {
	if !v.aborted {
		return v
	}
	s.out.Lock()
	processes := s.tr.running(v.ids)
	children := s.tr.working()
	s.out.Unlock()
	for _, child := range children {
		for _, method := range []string{"turn/interrupt", "thread/backgroundTerminals/clean"} {
			if err := s.srv.call(s.ctx, method, map[string]string{"threadId": child, "turnId": ""}, nil); err != nil {
				s.log.Debug("end a subagent", "method", method, "err", err)
			}
		}
	}
	for _, id := range processes {
		err := s.srv.call(s.ctx, "thread/backgroundTerminals/terminate", map[string]string{"threadId": s.thread, "processId": id}, nil)
		if err == nil {
			continue
		}
		s.log.Debug("end a command", "err", err)
		if err := s.srv.call(s.ctx, "thread/backgroundTerminals/clean", map[string]string{"threadId": s.thread}, nil); err != nil {
			s.log.Warn("end the commands of a turn", "err", err)
		}
		break
	}
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandonTurns(v.ids) })
	return v
}
