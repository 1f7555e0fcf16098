package session

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// maxQueued bounds the prompts that wait for another to end, and the requests that
// wait for a process. More are refused.
const maxQueued = 64

// turn is one prompt from its arrival to its response. The session's mu guards it.
type turn struct {
	req       *viewer.Request
	others    []*viewer.Request // that asked for it on earlier connections
	needs     agents.Needs      // of the connection it came by
	prompt    acp.Message       // as the client sent it; dropped when the agent has shown something
	held      int               // bytes of the memory for prompts
	place     uint64            // in the order of what was asked
	named     *named            // nil if its client gave it no name
	same      *named            // the prompt that this one repeats, nil if none
	phase     phase
	stale     bool         // when it came, the agent's record had what the process does not know
	refused   bool         // it was not taken when it came
	recorded  bool         // the log has the prompt, or will with what the machine says next
	seq       uint64       // of the prompt in the log; 0 before it is there
	answered  bool         // its client was answered when it began, and is told of its end
	withdrawn bool         // its client has taken it back, and the agent was told
	cancelled bool         // over: the agent was told to end it
	strayed   error        // cancelling: why, where the agent was not in the mode that it must be in; it is what the turn ends with
	used      *acp.Message // over, and strayed: what the agent has answered; nil for nothing
	missed    bool         // a process has ended that was to be given it
	handsOver bool         // it was given with the text of another conversation
	agentID   int64        // the request's id at the agent
	shown     bool         // the agent has shown something
	watchdog  *awake.Timer // of silence; nil without
	hushed    awake.Moment // when the watchdog has cancelled it; 0 before
	worked    func()       // says that the process works on it no more; nil before it does
	span      observe.Span
}

var cancelledResult = []byte(`{"stopReason":"cancelled"}`)

// UnbegunResult is the answer to a prompt that was cancelled while it waited for another turn,
// which may go on, or for a load: its client must not take that turn's end for this one's.
var UnbegunResult = []byte(`{"stopReason":"cancelled","_meta":{"` + acp.MetaKey + `":{"began":false}}}`)

// Prompt takes a prompt: it begins a turn, or waits behind the running one.
func (s *Session) Prompt(ctx context.Context, req *viewer.Request, m *acp.Message, n agents.Needs) {
	s.EndLostCalls()
	t := &turn{req: req, needs: n, prompt: m.Clone(), stale: s.overtaken(), span: observe.NoSpan{}}
	if t.readName(); t.named != nil {
		s.recallNamed()
	}
	t.held = len(t.prompt.Frame())
	s.set.prompts.Count(t.held) // what is there already; at the bound no more arrives
	req.OnWithdraw(func(context.Context) { s.handle(event{kind: withdrawn, turn: t}) })
	s.mu.Lock()
	if s.m.refusal() == nil && s.m.before(t) == nil { // else it is no turn
		t.span = s.set.o.Observer.Begin(ctx, observe.Work{Name: m.Method(), Agent: s.rec.Agent, Session: s.id, Meta: m.Meta()})
	}
	s.handleLocked(event{kind: prompted, turn: t})
}

// Cancel is a client's session/cancel: it ends the running turn, everything that
// waits behind it, and what the agent does by itself. One that names prompts ends
// those alone, wherever they are.
func (s *Session) Cancel(by journal.Recipient, m *acp.Message) {
	s.Log().Append(journal.Client, by, m.Frame())
	e := event{kind: cancelled}
	if ids, named := acp.PromptIDs(m); named {
		e.names = append([]string{}, ids...) // not nil
	}
	s.handle(e)
	s.Flush()
}

// recordLocked makes the turn's prompt part of the history. In version 2 of the protocol
// this is what its client waits for.
func (s *Session) recordLocked(t *turn, x *after) {
	s.m.working = false
	num := t.req.Client().Number()
	log := s.Log()
	prompt := log.Append(journal.Client, num, t.prompt.Frame())
	t.seq = prompt
	blocks, _ := rawjson.Member(t.prompt.Params(), "prompt")
	s.gistLocked(gistOf(blocks))
	for i := range rawjson.Elements(blocks) {
		// The sender knows what it sent; everybody else, and everybody later,
		// is shown it as ACP shows a user's words.
		log.AppendEcho(journal.Except(num), prompt, i)
	}
	if t.named != nil {
		t.named.seq = prompt
	}
	for _, q := range t.all() {
		if deliver, answered := q.Begun(s, prompt); answered {
			t.answered = true
			x.then(deliver)
		}
	}
}

// ofClient marks the words of a client's prompt, with which its turn begins: agents show words
// of people, too.
var ofClient = rawjson.Object{}.Raw(acp.MetaKey, []byte(`{"prompt":true}`)).End()

// echo returns the message that shows others a block of a prompt.
func (s *Session) echo(block []byte) []byte {
	update := rawjson.Object{}.String("sessionUpdate", "user_message_chunk").Raw("content", block).Raw("_meta", ofClient).End()
	m := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", s.quoted).Raw("update", update).End())
	return m.Frame()
}

// blocksOf returns the blocks of a prompt as the log has it.
func blocksOf(prompt []byte) []json.RawMessage {
	blocks, _ := rawjson.Member(prompt, "params", "prompt")
	return rawjson.Elements(blocks)
}

// giveLocked queues the turn's prompt for the agent. The error is why the process is
// ending.
func (s *Session) giveLocked(t *turn, l *link) error {
	prompt, native := s.handedOverLocked(t), l.nativeID()
	working := l.p.Working()
	id, err := l.p.Prompt(l.native,
		func(id acp.ID) acp.Message { return observe.WithTrace(prompt.Rewritten(id, native), t.span) },
		func(res *acp.Message, err error) {
			if err == nil && res.Err() == nil {
				l.p.Worked()
			}
			if err == nil && !l.p.OwnLogin() {
				l.p.Agent().LearnAuth(acp.MethodSessionPrompt, res)
			}
			s.handle(event{kind: answered, turn: t, res: res, err: err})
		})
	t.agentID = id
	t.worked = func() {
		working()
		l.p.Drop(id) // the agent may not have answered
	}
	if limit := s.set.o.TurnIdleTimeout; limit > 0 && err == nil {
		t.watchdog = awake.AfterFunc(limit, func() { s.watchSilence(t, limit) })
	}
	return err
}

// handedOverLocked puts the text of another conversation before the first prompt, as the
// agent sees it. A command is given alone: its agent would not know it behind a text.
func (s *Session) handedOverLocked(t *turn) acp.Message {
	prompt := t.prompt
	if s.rec.Handover == "" || s.rec.HandedOver {
		return prompt
	}
	blocks, _ := rawjson.Member(prompt.Params(), "prompt")
	if strings.HasPrefix(gistOf(blocks), "/") {
		return prompt
	}
	s.rec.HandedOver, s.unsaved, t.handsOver = true, true, true
	all := append([]byte{'['}, rawjson.Object{}.String("type", "text").String("text", s.rec.Handover).End()...)
	for _, block := range rawjson.Elements(blocks) {
		all = append(append(all, ','), block...)
	}
	return acp.NewRequest(prompt.ID(), prompt.Method(), rawjson.SetMember(prompt.Params(), append(all, ']'), "prompt"))
}

// rest ends what goes on while an agent has the turn's prompt.
func (t *turn) rest() {
	if t.watchdog != nil {
		t.watchdog.Stop()
	}
	if t.worked != nil {
		t.worked()
	}
	t.watchdog, t.worked = nil, nil
}

// dropPromptLocked lets go of a prompt that the agent has, or that nobody wants any more.
func (s *Session) dropPromptLocked(t *turn) {
	s.set.prompts.Give(t.held)
	t.prompt, t.held = acp.Message{}, 0
}

// takeBackLocked makes a prompt again one that no agent has been given.
func (s *Session) takeBackLocked(t *turn) {
	t.rest()
	if t.handsOver {
		s.rec.HandedOver, s.unsaved, t.handsOver = false, true, false
	}
}

// deafBound is how long an agent may stay silent that was told to end a silent turn. The
// bridges end a program that takes no notice sooner, so that the turn has their error.
const deafBound = 30 * time.Second

// watchSilence cancels a turn that has been silent for limit, and gives the process back
// if nothing follows.
func (s *Session) watchSilence(t *turn, limit time.Duration) {
	silent := s.silent()
	s.mu.Lock()
	if t.hushed != 0 {
		limit, silent = deafBound, min(silent, t.hushed.Ago())
	}
	switch {
	case s.m.turn != t || t.watchdog == nil:
		s.mu.Unlock()
	case silent < limit:
		t.watchdog.Reset(limit - silent)
		s.mu.Unlock()
	case t.hushed != 0:
		err := problem.New(problem.Timeout, "the agent said nothing for %s and did not end its turn when it was told to: it is started anew for the next prompt", s.set.o.TurnIdleTimeout)
		s.handleLocked(event{kind: overdue, turn: t, err: err})
		s.logger().Warn("silent turn did not end, so its process is given back", "silent", silent)
	default:
		t.hushed = awake.Now()
		t.watchdog.Reset(deafBound)
		s.handleLocked(event{kind: cancelled, now: true})
		s.logger().Warn("cancel silent turn", "silent", silent)
	}
}

// endTurnLocked answers the turn's client, and tells the session's other clients how
// the turn ended. The response follows and is written with it.
func (s *Session) endTurnLocked(t *turn, res *acp.Message, err error, x *after) {
	t.rest()
	s.dropPromptLocked(t)
	var end acp.Message
	outcome := observe.Outcome{Result: observe.Cancelled}
	switch {
	case res == nil && err == nil && !t.recorded:
		end = acp.NewResult(t.req.ID(), UnbegunResult)
	case res == nil && err == nil:
		end = acp.NewResult(t.req.ID(), cancelledResult)
	case err != nil:
		failure := viewer.ErrorOf(err)
		if failure.Code != acp.CodeCancelled || errors.Is(err, context.Canceled) {
			outcome = observe.OutcomeOf(err)
		}
		end = acp.NewError(t.req.ID(), failure)
	default:
		outcome = observe.OutcomeOfTurn(res)
		end = *res
		s.rec.noteTurn(time.Now(), outcome.Usage)
		s.unsaved = true
	}
	if t.used != nil { // what it has cost is so nevertheless
		outcome.Usage = observe.OutcomeOfTurn(t.used).Usage
		s.rec.noteTurn(time.Now(), outcome.Usage)
		s.unsaved = true
	}
	if t.cancelled || t.withdrawn && outcome.Result == observe.Cancelled {
		s.calls.leave()
		s.countCallsLocked()
	}
	t.span.End(outcome)
	s.noteTurnEndLocked(t, &end)
	if t.named != nil {
		t.named.over(&end)
	}
	for _, q := range t.all() {
		x.then(q.Record(s, q.Rewritten(&end), viewer.TimedOut(err), outcome)) // nothing for who was answered when it began
	}
	x.then(func() { s.set.syncer.soon(s) })
	x.flush = true
}

// all are the requests that the turn's end answers.
func (t *turn) all() []*viewer.Request { return append([]*viewer.Request{t.req}, t.others...) }

// noteTurnEndLocked tells the session's other clients, the turn's own on a later
// connection among them, how it ended, if one may want to know. For a turn whose client
// was answered when it began this is its end, for all. It says whether the turn began: one
// that waited ends before the turn that runs. Of one that was refused when it came nobody is told.
func (s *Session) noteTurnEndLocked(t *turn, end *acp.Message) {
	if t.refused || !t.answered && t.named == nil && !s.watchedLocked(t.req.Client()) {
		return
	}
	params := rawjson.Object{}.String("sessionId", s.id)
	if t.named != nil {
		params = params.Raw("promptId", t.named.name)
	}
	if failure := end.ErrorRaw(); failure != nil {
		params = params.Raw("error", failure)
	} else {
		params = params.Raw("result", end.Result())
	}
	params = params.Raw("began", strconv.AppendBool(nil, t.recorded))
	n := acp.NewNotification("_sandboxagent/session/turn_ended", params.End())
	to := journal.Except(t.req.Client().Number())
	if t.answered {
		to = journal.Everyone
	}
	s.Log().Append(journal.TurnEnd, to, n.Frame())
}

// watchedLocked reports whether a client other than c wants to know how turns end.
func (s *Session) watchedLocked(c *viewer.Client) bool {
	for f := range s.feeds {
		if f.Client() != c && f.Client().Capabilities().WantsTurns() {
			return true
		}
	}
	return false
}
