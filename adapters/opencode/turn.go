package opencode

import (
	"context"
	"errors"
	"net/http/httptrace"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// Bounds of a turn's end. Tests lower them.
var (
	// cancelBound limits how long a cancelled turn may go on; then the prompt ends
	// without it, and the next one waits for it in OpenCode.
	cancelBound = 20 * time.Second
	// abortBound is how long the server may leave an abort unanswered; then it hangs,
	// and its process is ended. It is less than cancelBound, since that takes seconds.
	abortBound = 15 * time.Second
	// sweepBound limits how long it is asked for what an aborted turn has left open.
	sweepBound = 5 * time.Second
	// abortPause is the time between two attempts to abort: one that comes before
	// the turn has begun has no effect.
	abortPause = 400 * time.Millisecond
	// endPause is how long the last events may take behind the answer: with many
	// turns at once the stream is seconds late. Those of a turn that was broken off
	// are not worth it.
	endPause, abortedPause = 30 * time.Second, 3 * time.Second
	// reasonPause is how long the event may take that explains a refusal.
	reasonPause = 2 * time.Second
	// lostPause is the time between two looks at a turn whose connection broke.
	lostPause = 2 * time.Second
)

// work is what is known of a prompt that OpenCode works on. The session's mu
// guards it, but for the channels.
type work struct {
	id        string    // of the user's message, unless the request has none: those that it makes are above it
	named     bool      // the request has a message
	asked     bool      // OpenCode is about to have the request
	since     time.Time // OpenCode was asked then
	answered  bool
	answer    stored          // the last message, where the request has one
	begun     bool            // the user's message was seen
	idle      bool            // then the session was idle
	completed map[string]bool // messages
	trailed   map[string]bool // messages after whose end the session was idle
	failure   *failure        // the newest error that was reported

	taken  func()        // says that the server may have read the request
	posted chan struct{} // closed when the request was answered, or failed
	before bool          // the answer is of an earlier prompt: OpenCode did not take this one up
	all    bool          // shown is closed
	shown  chan struct{} // closed when everything of the turn was shown
}

// sent reports whether a message is the running prompt's.
func (s *session) sent(id string) bool {
	t := s.turns.Current()
	return t != nil && t.Work.id == id
}

// observe notes what an event means for the turn, after it was shown.
func (s *session) observe(e *event) {
	if e.Session != string(s.id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.turns.Current()
	if one == nil {
		return
	}
	t := &one.Work
	switch e.Type {
	case "message.updated":
		t.begun = t.begun || e.message.ID == t.id || !t.named && e.message.ID > t.id
		if e.message.Role == "assistant" && e.message.Time.Completed != 0 {
			t.completed[e.message.ID] = true
		}
	case "session.error":
		if e.Error != nil && !e.before(t.since) { // the stream may be late: it is of the turn before
			t.failure = e.Error
		}
	case "session.idle":
		t.idle = t.idle || t.begun || t.answered
		for id := range t.completed {
			t.trailed[id] = true
		}
	}
	t.completeLocked()
}

// completeLocked notes when the turn was answered and everything of it came. The
// answer comes before the last events. So may an idle, on errors, and when the
// stream is late the news that a message was completed: OpenCode sends a message
// as it is at the time of sending. Both together, in this order, are the end.
func (t *work) completeLocked() {
	if t.all || !t.answered {
		return
	}
	m := &t.answer.Info
	// It looks for the newest message by its time. Of a session that has one of a time to come, as when it was held on a
	// machine whose clock is ahead, that is not the prompt, and there is nothing to do.
	t.before = m.Role == "assistant" && m.Parent != t.id && t.begun && t.idle && !t.completed[m.ID]
	if !t.before && (m.Role == "assistant" && !t.trailed[m.ID] || m.Role != "assistant" && !t.idle) {
		return
	}
	t.all = true
	close(t.shown)
}

// breakOff ends the turn of a question because of the client's answer, and with the turn the
// question. It reports false when the turn is over, or there was none: another one may run by
// now, and the question is still open.
func (q *asked) breakOff() bool { return q.of != nil && q.of.Stop() }

// begin asks OpenCode for something. carryOut goes on with it.
func (s *session) begin(t *turn.Turn[work], c *call) error {
	s.chosen(c)
	if c.turn {
		c.body["messageID"] = t.Work.id
	}
	s.out.Lock()
	s.tr.usage.begin()
	s.tr.changes = newChanges()
	s.out.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return bridge.ErrClosed
	}
	t.Work.since = time.Now()
	t.Work.taken = s.a.conn.Offer(string(s.id))
	s.work.Go(func() { s.carryOut(t, c) })
	return nil
}

// carryOut waits until OpenCode has done what it was asked for. It is not asked when the turn is stopped
// before that: it would do it for nobody.
func (s *session) carryOut(t *turn.Turn[work], c *call) {
	s.prepare(t)
	if t.Stopping() {
		close(t.Work.posted)
		t.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
		return
	}
	err := s.post(c, &t.Work)
	close(t.Work.posted)
	t.Go(func(ctx context.Context) { s.conclude(ctx, t, c, err) }) // behind the turn it would close what the next one does
}

// prepare is renew until the turn is stopped.
func (s *session) prepare(t *turn.Turn[work]) {
	ctx, over := context.WithCancel(s.ctx)
	defer over()
	s.work.Go(func() {
		select {
		case <-t.Stopped():
			over()
		case <-ctx.Done():
		}
	})
	s.renew(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Work.asked = true
	})
}

// works reports whether OpenCode does something for the session, or is about to. A prompt before which it is to read credentials again
// is not with it yet.
func (s *session) works() bool {
	t := s.turns.Current()
	if t == nil {
		return s.turns.Busy()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Work.asked
}

// conclude ends a turn that OpenCode has answered, or refused with err.
func (s *session) conclude(ctx context.Context, t *turn.Turn[work], c *call, err error) {
	switch {
	case t.Stopping(): // abort goes on
	case err != nil:
		t.Settle(s.failed(c, &t.Work, err))
	case !c.turn && c.path != "/summarize":
		s.emit(func(*translator) []schema.SessionUpdate {
			return []schema.SessionUpdate{schema.AgentMessage(schema.TextBlock(c.done))}
		})
		t.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
	default:
		s.trail(ctx, &t.Work, endPause)
		if ctx.Err() != nil {
			return // it was broken off
		}
		s.showReplaced(ctx, &t.Work, t.Stopping)
		t.Settle(s.judge(&t.Work))
	}
}

// post sends a prompt and notes its answer. It lasts as long as the turn.
func (s *session) post(c *call, t *work) error {
	if c.path == "/revert" {
		id, err := s.lastPrompt()
		if err != nil {
			return err
		}
		c.body["messageID"] = id
	}
	var answer stored
	var result any = &answer
	if !c.turn {
		result = nil
	}
	var body any
	if c.body != nil {
		body = c.body
	}
	connected := httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.taken() }})
	err := s.srv.sendBy(s.srv.prompts, connected, "POST", s.path(c.path), body, result)
	if err != nil && refused(err) == nil && s.ctx.Err() == nil && c.turn {
		if _, dead := errors.AsType[*adapters.ExitError](err); !dead {
			s.log.Warn("a prompt's connection broke", "err", err)
			answer, err = s.lost(t)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.answered, t.answer = true, answer
	t.completeLocked()
	return nil
}

// lost waits for the end of a turn whose connection broke: OpenCode goes on with
// it.
func (s *session) lost(t *work) (stored, error) {
	tick := time.NewTicker(lostPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return stored{}, s.ctx.Err()
		case <-s.srv.ended:
			return stored{}, s.srv.exit
		}
		var busy map[string]status
		if err := s.srv.call(s.ctx, "GET", at("/session/status", s.cwd), nil, &busy); err != nil {
			continue
		}
		if _, ok := busy[string(s.id)]; ok {
			continue
		}
		var list []stored
		if err := s.srv.call(s.ctx, "GET", at("/session/"+string(s.id)+"/message", s.cwd, "limit", recent), nil, &list); err != nil {
			return stored{}, err
		}
		for i := len(list) - 1; i >= 0; i-- {
			if m := list[i]; m.Info.Role == "assistant" && m.Info.Parent >= t.id {
				return m, nil
			}
		}
		return stored{}, acp.Errorf(acp.CodeInternal, "the connection to opencode broke before the prompt arrived: send it again")
	}
}

// trail waits for the events behind the answer. Where they do not come, what the
// answer says is shown.
func (s *session) trail(ctx context.Context, t *work, most time.Duration) {
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-t.shown:
	case <-s.srv.ended:
	case <-ctx.Done():
	case <-limit.C:
		s.log.Debug("the end of a turn was not reported")
		s.mu.Lock()
		m := t.answer
		s.mu.Unlock()
		s.emit(func(tr *translator) []schema.SessionUpdate {
			if m.Info.ID == "" {
				return nil
			}
			out := tr.messaged(&m.Info)
			for i := range m.Parts {
				out = append(out, tr.parted(&m.Parts[i], 0)...)
			}
			return out
		})
	}
}

// abort breaks a turn off.
func (s *session) abort(ctx context.Context, t *turn.Turn[work]) {
	s.dropAsks()
	again := time.NewTicker(abortPause)
	defer again.Stop()
	for answered := false; !answered; {
		asked, cancel := bridge.Within(ctx, s.a.abortBound)
		err := s.srv.call(asked, "POST", s.path("/abort"), nil, nil)
		hangs := ctx.Err() == nil && asked.Err() != nil
		cancel()
		if err != nil {
			s.log.Debug("abort a turn", "err", err)
		}
		if hangs {
			s.log.Warn("opencode does not answer, so its process is ended")
			s.srv.child.Stop(ladder)
			return
		}
		select {
		case <-t.Work.posted:
			answered = true
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
	s.trail(ctx, &t.Work, abortedPause)
	t.Settle(turn.Verdict{Reason: schema.StopReasonCancelled})
}

// closeTurn closes what a turn has left open: one that was broken off, or one that failed while it asked something.
func (s *session) closeTurn(t *turn.Turn[work], v turn.Verdict) turn.Verdict {
	if !t.Stopping() {
		s.refused(v.Err)
		s.dropAsksOf(t)
		return v
	}
	s.sweep(t)
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandon() })
	v.Usage = s.used()
	return v
}

// sweep rejects what an aborted turn still asks: OpenCode lists it for ever.
func (s *session) sweep(t *turn.Turn[work]) {
	ctx, cancel := bridge.Within(s.ctx, sweepBound)
	defer cancel()
	s.takeBackAsksOf(ctx, t)
	for _, kind := range []string{"permission", "question"} {
		var list []struct {
			ID      string `json:"id"`
			Session string `json:"sessionID"`
		}
		if err := s.srv.call(ctx, "GET", at("/"+kind, s.cwd), nil, &list); err != nil {
			s.log.Debug("ask what is open", "err", err)
			continue
		}
		for _, one := range list {
			if s.a.owner(one.Session) != s {
				continue
			}
			s.rejectLeft(ctx, one.ID, kind == "permission")
		}
	}
}

// rejectLeft rejects what nobody waits for any more.
func (s *session) rejectLeft(ctx context.Context, id string, permission bool) {
	path, body := "/question/"+id+"/reject", any(nil)
	if permission {
		path, body = "/permission/"+id+"/reply", map[string]string{"reply": "reject"}
	}
	if err := s.srv.call(ctx, "POST", at(path, s.cwd), body, nil); err != nil && !unknown(err) {
		s.log.Debug("reject what is open", "err", err)
	}
}

// owner is the session that a native one belongs to.
func (a *agent) owner(native string) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.natives[native]
}

func (s *session) used() *schema.Usage {
	s.out.Lock()
	defer s.out.Unlock()
	return s.tr.usage.ofTurn()
}

// lastPrompt is the last message of the user's that was not taken back.
func (s *session) lastPrompt() (string, error) {
	i, err := s.srv.find(s.ctx, s.id)
	if err != nil {
		return "", err
	}
	var list []stored
	if err := s.srv.call(s.ctx, "GET", s.path("/message"), nil, &list); err != nil {
		return "", err
	}
	for n := len(list) - 1; n >= 0; n-- {
		m := &list[n].Info
		if m.Role == "user" && (i.undone() == "" || m.ID < i.undone()) {
			return m.ID, nil
		}
	}
	return "", acp.Errorf(acp.CodeInvalidParams, "there is no prompt to take back")
}

// failed explains a request that was refused. OpenCode gives the reason in an
// event.
func (s *session) failed(c *call, t *work, err error) turn.Verdict {
	r := refused(err)
	if r == nil {
		if s.ctx.Err() != nil {
			return turn.Verdict{Reason: schema.StopReasonCancelled}
		}
		return turn.Verdict{Err: err}
	}
	if r.vague() {
		for end := time.Now().Add(reasonPause); ; {
			s.mu.Lock()
			f := t.failure
			s.mu.Unlock()
			if f != nil {
				return s.blamed(f)
			}
			wait := time.Until(end)
			if wait <= 0 {
				break
			}
			pause := time.NewTimer(min(wait, 20*time.Millisecond))
			select {
			case <-pause.C:
			case <-s.srv.ended:
				pause.Stop()
				return turn.Verdict{Err: s.srv.exit}
			}
		}
	}
	return turn.Verdict{Err: acp.Errorf(acp.CodeInvalidParams, "opencode refused %s: %s", strings.TrimPrefix(c.path, "/"), r.Message)}
}

// judge turns the end of a turn into what the prompt's response says.
func (s *session) judge(t *work) turn.Verdict {
	s.mu.Lock()
	v := t.answer.Info.verdict(false, t.failure)
	if t.before {
		v = turn.Verdict{Err: errNotTakenUp}
	}
	s.mu.Unlock()
	if v.Usage = s.used(); v.Err != nil || v.Reason == schema.StopReasonCancelled {
		s.emit(func(t *translator) []schema.SessionUpdate { return t.abandon() })
	}
	return v
}

var errNotTakenUp = acp.Errorf(acp.CodeInternal, "opencode did not take the prompt up: the session has messages of a time that this machine's clock has not reached, so it holds them for the newer ones. Go on in a new session, or when that time has come")

// verdict is how the turn ended whose last message this is. off says that it was
// broken off; f is what was reported beside it, nil for nothing.
func (m *message) verdict(off bool, f *failure) turn.Verdict {
	switch {
	case off || m.Error != nil && m.Error.Name == "MessageAbortedError":
		return turn.Verdict{Reason: schema.StopReasonCancelled}
	case m.Finish == "content-filter" || m.Error != nil && m.Error.Name == "ContentFilterError":
		return turn.Verdict{Reason: schema.StopReasonRefusal}
	case m.Finish == "length" || m.Error != nil && m.Error.Name == "MessageOutputLengthError":
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}
	case m.Error != nil:
		return turn.Verdict{Err: m.Error.explain()}
	case m.ID == "" && f != nil:
		return turn.Verdict{Err: f.explain()}
	}
	return turn.Verdict{Reason: schema.StopReasonEndTurn}
}

// blamed is the verdict of a turn that failed.
func (s *session) blamed(f *failure) turn.Verdict {
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandon() })
	return turn.Verdict{Err: f.explain()}
}

// explain is an error for the client. Details that only programmers read, such
// as a stack, are left out.
func (f *failure) explain() *acp.Error {
	text, _, _ := strings.Cut(f.Data.Message, "\n    at ")
	text = bridge.FirstOf(reason(strings.TrimSpace(text)), f.Name)
	if f.Name == "ProviderAuthError" || f.Data.Status == 401 {
		return authRequired(text)
	}
	data := map[string]any{"type": adapters.ErrorType("agent_error"), "kind": f.Name}
	if f.Data.Status != 0 {
		data["status"] = f.Data.Status
	}
	if f.Data.Provider != "" {
		data["provider"] = f.Data.Provider
	}
	if f.Data.Body != "" {
		data["details"] = bridge.Capped(f.Data.Body, 4<<10)
	}
	code := int64(acp.CodeInternal)
	if f.Name == "UnknownError" && (strings.Contains(text, "not found") || strings.Contains(text, "Model")) {
		code = acp.CodeInvalidParams
	}
	return acp.Errorf(code, "%s", text).WithData(data)
}
