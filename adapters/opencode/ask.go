package opencode

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// maxAsks bounds OpenCode's open questions of a session. At the bound a question
// is rejected with the reason.
const maxAsks = turn.MaxAsks

// asked is a question that is open.
type asked struct {
	*ask
	native  string           // the session that asks, which may be a subagent's
	of      *turn.Turn[work] // that ran then; nil for none
	cancel  context.CancelFunc
	decided bool          // guarded by the session's mu
	done    chan struct{} // closed when decided is set
}

// asked takes a question. It runs on the goroutine that reads, which must not
// wait: the answer is found, and given, by a goroutine of its own.
func (s *session) asked(e *event) {
	q := &asked{ask: &e.ask, native: e.Session, of: s.turns.Current(), done: make(chan struct{})}
	var ctx context.Context
	ctx, q.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	// A turn that is being cancelled asks nothing any more; what is open then is
	// rejected at its end.
	late := s.turns.Stopping()
	if s.stopped || late || s.asks[q.ID] != nil || q.ID == "" {
		s.mu.Unlock()
		q.cancel()
		return
	}
	full := len(s.asks) >= maxAsks
	granted := s.grant.covers(q.ask) || covers(s.granted, q.ask)
	if !full {
		s.asks[q.ID] = q
	}
	s.mu.Unlock()
	var req *schema.RequestPermissionRequest
	if !full && !granted && len(q.Questions) == 0 {
		s.emit(func(t *translator) []schema.SessionUpdate {
			var before []schema.SessionUpdate
			req, before = t.permission(s.id, q.native, q.ask)
			return before
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		q.cancel()
		return
	}
	s.work.Go(func() {
		defer q.cancel()
		defer s.forget(q)
		switch {
		case full:
			s.reply(ctx, q, "reject", "Too many questions are open. Ask again later.")
		case granted:
			s.reply(ctx, q, "once", "")
		case len(q.Questions) > 0:
			s.inquire(ctx, q)
		default:
			s.decide(ctx, q, req)
		}
	})
}

func (s *session) forget(q *asked) {
	s.decided(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asks[q.ID] == q {
		delete(s.asks, q.ID)
	}
}

func (s *session) decided(q *asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.decided {
		q.decided = true
		close(q.done)
	}
}

// withdrawn takes back a question: it was answered, or nobody waits any more.
func (s *session) withdrawn(id string) {
	s.mu.Lock()
	q := s.asks[id]
	s.mu.Unlock()
	if q != nil {
		q.cancel()
	}
}

// dropAsks takes back all questions.
func (s *session) dropAsks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asks {
		q.cancel()
	}
}

// dropAsksOf takes back what a turn has asked that is over, and rejects it: OpenCode would list it for ever.
func (s *session) dropAsksOf(t *turn.Turn[work]) {
	ctx, cancel := bridge.Within(s.ctx, sweepBound)
	defer cancel()
	for _, q := range s.takeBackAsksOf(ctx, t) {
		s.rejectLeft(ctx, q.ID, len(q.Questions) == 0)
	}
}

// takeBackAsksOf takes back what a turn has asked, and waits until the client knows: nothing of a turn comes behind its end.
func (s *session) takeBackAsksOf(ctx context.Context, t *turn.Turn[work]) (left []*asked) {
	s.mu.Lock()
	for _, q := range s.asks {
		if q.of == t && !q.decided {
			q.cancel()
			left = append(left, q)
		}
	}
	s.mu.Unlock()
	for _, q := range left {
		select {
		case <-q.done:
		case <-ctx.Done():
		}
	}
	return left
}

// reply answers a request for a permission.
func (s *session) reply(ctx context.Context, q *asked, how, message string) {
	body := map[string]string{"reply": how}
	if message != "" {
		body["message"] = message
	}
	err := s.srv.call(ctx, "POST", at("/permission/"+q.ID+"/reply", s.cwd), body, nil)
	if err != nil && !unknown(err) && ctx.Err() == nil {
		s.log.Warn("answer a request for a permission", "err", err)
	}
}

// decide asks the client for a permission.
func (s *session) decide(ctx context.Context, q *asked, req *schema.RequestPermissionRequest) {
	var resp schema.RequestPermissionResponse
	err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, req, &resp)
	if ctx.Err() != nil {
		s.emit(func(t *translator) []schema.SessionUpdate { return t.decided(q.ask, false) })
		return
	}
	option := schema.PermissionOptionID("")
	if resp.Outcome.Selected != nil {
		option = resp.Outcome.Selected.OptionID
	}
	allowed := option == optionOnce || option == optionAlways && len(q.Always) > 0
	s.emit(func(t *translator) []schema.SessionUpdate { return t.decided(q.ask, allowed) })
	switch {
	case err != nil:
		s.log.Debug("ask the client for a permission", "err", err)
		s.refuse(ctx, q, "The client did not answer the request for a permission.")
	case allowed && option == optionAlways:
		s.mu.Lock()
		grant := func(g *bridge.Grants) {
			for _, p := range q.Always {
				g.Add(bridge.Given(grantKey(q.Permission, p), scope(q.Permission, []string{p}), req.ToolCall.Kind))
			}
		}
		grant(&s.granted)
		var now []*asked
		for _, other := range s.asks {
			if other != q && covers(s.granted, other.ask) {
				now = append(now, other)
			}
		}
		s.mu.Unlock()
		s.keep(func(r *record) { grant(&r.Granted) })
		s.reply(ctx, q, "once", "")
		for _, other := range now {
			s.grantNow(other)
		}
	case allowed:
		s.reply(ctx, q, "once", "")
	case option == optionReject:
		message := rejected
		if said := rawjson.MemberString(resp.Meta[acp.MetaKey], "message"); said != "" {
			message = said
		}
		s.refuse(ctx, q, message)
	case option == optionStop:
		s.decided(q)
		s.reply(ctx, q, "reject", "")
	case resp.Outcome.Cancelled != nil:
		if !q.breakOff() {
			s.refuse(ctx, q, "") // and not what a turn that runs by now asks
		}
	default:
		s.log.Warn("the client chose what was not offered", "option", option)
		s.refuse(ctx, q, rejected)
	}
}

// grantNow allows what a question is about that the client need not answer any more. The event about it withdraws
// the question. It does not end with the question that was answered, which its own event withdraws.
func (s *session) grantNow(q *asked) {
	s.mu.Lock()
	open := s.asks[q.ID] == q && !s.turns.Stopping()
	s.mu.Unlock()
	if open {
		s.reply(s.ctx, q, "once", "")
	}
}

// besidesPause is how long a rejection waits for the questions of calls that the
// model has made at the same time.
const besidesPause = 1500 * time.Millisecond

// refuse rejects, and tells the model why, so that the turn goes on; "" ends what asks. OpenCode
// rejects with it whatever else the same session asks at that time, so it waits
// until the client has decided about that.
func (s *session) refuse(ctx context.Context, q *asked, message string) {
	s.decided(q)
	s.out.Lock()
	besides := s.tr.besides(q.ask)
	s.out.Unlock()
	if besides {
		pause := time.NewTimer(besidesPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
	s.mu.Lock()
	var open []*asked
	for _, other := range s.asks {
		if other != q && other.native == q.native && !other.decided && len(other.Questions) == 0 {
			open = append(open, other)
		}
	}
	s.mu.Unlock()
	for _, other := range open {
		select {
		case <-other.done:
		case <-ctx.Done():
			return
		}
	}
	s.reply(ctx, q, "reject", message)
}

// inquire asks the client what the model wants to know.
func (s *session) inquire(ctx context.Context, q *asked) {
	req := &acp.QuestionRequest{SessionID: s.id, Questions: []acp.Question{}}
	s.out.Lock()
	if call := s.tr.asking(q.ask); call != nil {
		req.ToolCallID = schema.ToolCallID(call.id)
	}
	s.out.Unlock()
	for i, one := range q.Questions {
		next := acp.Question{
			ID: questionID(i), Header: one.Header, Question: one.Question, MultiSelect: one.Multiple,
			OwnWords: one.Custom == nil || *one.Custom, Options: []acp.QuestionOption{},
		}
		for _, o := range one.Options {
			next.Options = append(next.Options, acp.QuestionOption{Label: o.Label, Description: o.Description})
		}
		req.Questions = append(req.Questions, next)
	}
	var resp acp.QuestionResponse
	err := s.a.peer.Ask(ctx, acp.MethodRequestQuestion, req, &resp)
	path := "/question/" + q.ID
	var body any
	switch {
	case ctx.Err() != nil:
		return
	case err == nil && resp.Outcome == acp.QuestionCancelled:
		if q.breakOff() {
			return
		}
		path += "/reject"
	case err == nil && resp.Outcome == acp.QuestionAnswered:
		path, body = path+"/reply", map[string]any{"answers": answers(q.Questions, resp.Answers)}
	default:
		if err != nil {
			s.log.Debug("ask the client a question", "err", err)
		}
		path += "/reject"
	}
	if err := s.srv.call(ctx, "POST", at(path, s.cwd), body, nil); err != nil && !unknown(err) && ctx.Err() == nil {
		s.log.Warn("answer a question", "err", err)
	}
}

func questionID(i int) string { return "q" + string(rune('0'+i%10)) + strings.Repeat("_", i/10) }

// answers has one list for each question.
func answers(questions []question, given [][]string) [][]string {
	out := make([][]string, len(questions))
	for i := range out {
		out[i] = []string{}
		if i < len(given) && given[i] != nil {
			out[i] = given[i]
		}
	}
	return out
}

// grantKey names what is allowed of a permission: a pattern.
func grantKey(permission, pattern string) string { return permission + "\x00" + pattern }

// covers reports whether grants allow everything that a question is about.
func covers(granted bridge.Grants, q *ask) bool {
	if q.Permission == "" || len(q.Patterns) == 0 {
		return false
	}
	for _, p := range q.Patterns {
		if !slices.ContainsFunc(granted, func(g bridge.Grant) bool {
			pattern, same := strings.CutPrefix(g.Key, grantKey(q.Permission, ""))
			return same && matches(pattern, p)
		}) {
			return false
		}
	}
	return true
}

// matches is OpenCode's way to compare: * is anything, ? is one character, and
// arguments may be missing.
func matches(pattern, s string) bool {
	expr := regexp.QuoteMeta(pattern)
	expr = strings.ReplaceAll(strings.ReplaceAll(expr, `\*`, `.*`), `\?`, `.`)
	if rest, ok := strings.CutSuffix(expr, " .*"); ok {
		expr = rest + "( .*)?"
	}
	re, err := regexp.Compile("^(?s:" + expr + ")$")
	return err == nil && re.MatchString(s)
}
