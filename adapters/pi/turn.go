package pi

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// stage is how far Pi is with a prompt. It says that it takes one before it begins its run.
//
//	offered ── taken ──> taken ── agent_start ──> running ── settled ──> its verdict
//	 │    ^                                          ^
//	 │    └── settled ────┐                          │
//	 └── agent_start ──> beside ── a command did it ─┘
//
// A run that begins before that is Pi's own, and Pi refuses the prompt while it goes on;
// unless the prompt is a command, which has begun it.
type stage int

const (
	offered stage = iota // Pi has not said whether it takes it
	beside               // likewise, and a run has begun
	taken                // it takes it
	running              // its run has begun
)

// What Pi does that nobody prompted, as its turns know it.
const (
	ownRun        = ""
	ownCompaction = "compaction" // an extension can begin one where no run goes on; Pi ends its run before
)

// work is what is known of a prompt that Pi works on. The session's lock guards it.
type work struct {
	stage   stage
	compact bool         // it is a compaction, and no run
	last    *message     // of the model
	used    schema.Usage // of all calls
	counted bool         // used counts something
}

// verdict is how the turn ended, by its last message or because of err.
func (t *work) verdict(err error) turn.Verdict {
	v := t.judge()
	if err != nil {
		v = turn.Verdict{Err: err}
	}
	if t.counted {
		used := t.used
		v.Usage = &used
	}
	return v
}

func (t *work) judge() turn.Verdict {
	if t.last == nil {
		return turn.Verdict{Reason: schema.StopReasonEndTurn}
	}
	switch t.last.Stop {
	case "aborted":
		return turn.Verdict{Reason: schema.StopReasonCancelled}
	case "length":
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}
	case "error":
		if t.last.refused() {
			return turn.Verdict{Reason: schema.StopReasonRefusal}
		}
		return turn.Verdict{Err: failed(bridge.FirstOf(t.last.Failure, "the model's provider failed and did not say why"))}
	}
	return turn.Verdict{Reason: schema.StopReasonEndTurn}
}

// refused reports whether the model, or who watches it, did not want to answer.
// Early versions say so in words only.
func (m *message) refused() bool {
	switch strings.ToLower(m.RawStop) {
	case "content_filter", "refusal", "safety":
		return true
	}
	return strings.Contains(m.Failure, "finish_reason: content_filter")
}

// count adds a call's tokens.
func (t *work) count(u *usage) {
	if u == nil || u.total() == 0 { // it failed, or was broken off
		return
	}
	add := func(to **uint64, n uint64) {
		if *to == nil {
			*to = new(uint64)
		}
		**to += n
	}
	t.counted = true
	t.used.InputTokens += u.Input
	t.used.OutputTokens += u.Output
	t.used.TotalTokens += u.total()
	add(&t.used.CachedReadTokens, u.CacheRead)
	add(&t.used.CachedWriteTokens, u.CacheWrite)
	if u.Reasoning != nil {
		add(&t.used.ThoughtTokens, *u.Reasoning)
	}
}

// statusForm finds the HTTP status with which Pi's errors begin.
var statusForm = pattern.New(`^\s*(?:HTTP )?([1-5]\d\d)\b`)

// failed is the error of a turn that the provider ended.
func failed(reason string) error {
	status := 0
	if m := statusForm.FindStringSubmatch(reason); m != nil {
		status, _ = strconv.Atoi(m[1])
	}
	if status == 401 || status == 403 || noKey(reason) {
		return authRequired(reason)
	}
	data := map[string]any{"type": adapters.ErrorType("agent_error")}
	if status != 0 {
		data["status"] = status
	}
	return acp.Errorf(acp.CodeInternal, "%s", reason).WithData(data)
}

func noKey(reason string) bool {
	for _, s := range []string{"No API key found", "No API key for", "No model selected", "No models available", "Authentication failed", "/login"} {
		if strings.Contains(reason, s) {
			return true
		}
	}
	return false
}

// refused is the error of a prompt that Pi did not take.
func refused(err error) error {
	if e, ok := errors.AsType[*acp.Error](err); ok {
		if noKey(e.Message) {
			first, _, _ := strings.Cut(e.Message, "\n")
			return authRequired(first)
		}
		return acp.Errorf(acp.CodeInternal, "pi refused the prompt: %s", e.Message)
	}
	return err
}

// take acts on a line of Pi. It runs on the reader, in order.
func (s *session) take(p *program, e *event) {
	if e.Type == "response" {
		return
	}
	if e.Type == "extension_ui_request" {
		s.dialog(p, e)
		return
	}
	s.observe(e)
	s.emit(func(t *translator) []schema.SessionUpdate { return t.translate(e) })
	s.conclude(p, e)
}

// observe notes what a line means for the turn, before it is shown.
func (s *session) observe(e *event) {
	s.mu.Lock()
	t := s.turns.Current()
	again := false
	switch e.Type {
	case "agent_start":
		s.retry = false
		s.runs++
		switch {
		case t == nil:
			s.turns.Own(ownRun)
		case t.Work.stage == offered:
			t.Work.stage = beside
			s.turns.Own(ownRun)
		case t.Work.stage == taken:
			t.Work.stage = running
		}
		again = t != nil && t.Stopping() // the abort came before there was a run
	case "auto_retry_start":
		s.retry = true
	case "auto_retry_end":
		s.retry = false
	case "compaction_start":
		// That of a run, or of a prompt that is about to run, has another reason than this one.
		if t == nil || e.Reason == "manual" && !t.Work.compact {
			s.turns.Own(ownCompaction)
		}
	case "compaction_end":
		s.retry = s.retry || e.WillRetry
		s.turns.OwnOver(ownCompaction)
	case "message_end":
		if m := e.message(); t != nil && m != nil && m.Role == "assistant" {
			// An aborted call leaves a message that says nothing of the turn.
			t.Work.last = m
			t.Work.count(m.Usage)
		}
	case "tool_execution_end":
		// Whatever was asked about the call, its answer changes nothing any more.
		s.asks.Withdraw(s.calls[e.Call])
	case "thinking_level_changed":
		s.levelled++
		s.set.thinking = bridge.FirstOf(e.Level, s.set.thinking)
	}
	s.mu.Unlock()
	if again {
		t.Go(func(context.Context) { s.abort() }) // and not behind it: it would end the next
	}
}

// conclude ends the turn when Pi has settled. Versions that do not say so are
// asked for their state when they may have.
func (s *session) conclude(p *program, e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Type == "agent_settled":
		s.settles = true
		s.runOverLocked(e.Aborted)
	case e.Type == "compaction_start":
		// It may end without a sign.
		s.compactions++
		one := s.compactions
		s.probeLocked(p, func() bool { return s.compactions == one && s.turns.Owns(ownCompaction) }, func() { s.turns.OwnOver(ownCompaction) })
	case s.settles || s.retry:
	case e.Type == "agent_end", e.Type == "compaction_end", e.Type == "auto_retry_end":
		s.probeRunLocked(p)
	}
	if e.Type == "thinking_level_changed" {
		s.work.Go(s.showOptions)
	}
}

func (s *session) runOverLocked(aborted bool) {
	s.retry = false
	for _, id := range s.calls {
		s.asks.Withdraw(id) // no call of the run goes on
	}
	s.turns.OwnOver(ownRun)
	t := s.turns.Current()
	if t == nil {
		return
	}
	if last := t.Work.last; aborted && last != nil && last.Stop != "error" {
		last.Stop = "aborted"
	}
	switch t.Work.stage {
	case beside:
		t.Work.stage = offered
	case running:
		t.Settle(t.Work.verdict(nil))
	}
}

// taken takes Pi's answer to a prompt; slash says that it may be a command. It runs on the
// reader: what Pi says then is of the prompt's run, and what it said before was not, unless a
// command did it.
func (s *session) taken(p *program, t *turn.Turn[work], slash bool, e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns.Current() != t {
		return // it is over
	}
	if !e.Success {
		s.refusedLocked(p, t, e)
		return
	}
	disposition := rawjson.MemberString(e.Data, "disposition")
	handled := disposition == "handled"
	command := slash && disposition == "" // or a template: early versions do not say
	switch {
	case t.Work.stage == beside && (handled || command):
		// A command has begun the run, so it is the prompt's.
		t.Work.stage = running
		s.turns.OwnOver(ownRun)
	case handled:
		t.Settle(t.Work.verdict(nil))
	default:
		if !command {
			t.Work = work{}
		}
		t.Work.stage = taken
		if disposition == "" { // it may have been a command that starts no run
			s.probeLocked(p, func() bool { return s.turns.Current() == t && t.Work.stage == taken }, func() { t.Settle(t.Work.verdict(nil)) })
		}
	}
}

// refusedLocked ends a turn whose prompt Pi refuses behind an answer that took it, as early
// versions do. A run that goes on is Pi's own then. The first answer is taken by submit.
func (s *session) refusedLocked(p *program, t *turn.Turn[work], e *event) {
	switch t.Work.stage {
	case offered, beside:
		if isBusy(e.refusal("prompt")) {
			s.a.conn.Offer(string(s.id)) // it is given again, by the next process if this one ends
		}
		return
	case running:
		s.turns.Own(ownRun)
	}
	t.Settle(turn.Verdict{Err: refused(e.refusal("prompt"))})
	s.probeRunLocked(p) // what the prompt has begun may end without a sign
}

// worksLocked reports whether a run of Pi's goes on.
func (s *session) worksLocked() bool {
	t := s.turns.Current()
	return s.turns.Owns(ownRun) || t != nil && t.Work.stage == running
}

// probeRunLocked asks Pi whether its run has settled, until it has or begins anew. The prompt
// beside which a run of Pi's own has begun may end before it.
func (s *session) probeRunLocked(p *program) {
	run := s.runs
	s.probeLocked(p, func() bool { return s.runs == run && !s.settles && !s.retry && s.worksLocked() }, func() { s.runOverLocked(false) })
}

// probeLocked asks Pi whether it is idle while that matters, and calls over when it is: early
// versions give no sign. Both are called with mu held.
func (s *session) probeLocked(p *program, matters func() bool, over func()) {
	if !matters() {
		return
	}
	s.work.Go(func() {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
			var now state
			if err := p.ask(s.ctx, "get_state", nil, &now); err != nil {
				return
			}
			s.mu.Lock()
			goesOn := matters()
			if goesOn && !now.Streaming && !now.Compacting {
				goesOn = false
				over()
			}
			s.mu.Unlock()
			if !goesOn {
				return
			}
			wait := time.NewTimer(pause)
			select {
			case <-wait.C:
			case <-s.ctx.Done():
				wait.Stop()
				return
			}
		}
	})
}

// showOptions tells the clients what is in effect.
func (s *session) showOptions() {
	if errors.Is(s.ctx.Err(), context.Canceled) {
		return
	}
	s.emit(func(*translator) []schema.SessionUpdate {
		return []schema.SessionUpdate{{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.options()}}}
	})
}
