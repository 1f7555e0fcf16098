package bridgetest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Client is an event of a client with a session that is open. Where there is none it opens one.
func (p *Play) Client(name string, weight int, do func(rng *rand.Rand, s *PlaySession)) PlayEvent {
	return PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		if s := p.Some(rng); s != nil {
			do(rng, s)
			return
		}
		p.Connect()
		p.OpenSession(acp.MethodSessionNew, nil)
	}}
}

// ClientEvents are what a client does with any agent. prompt sends a prompt, and may wait for what comes of it.
func (p *Play) ClientEvents(prompt func(rng *rand.Rand, s *PlaySession)) []PlayEvent {
	return []PlayEvent{
		p.Client("prompt", 10, prompt),
		p.Client("two prompts", 3, func(rng *rand.Rand, s *PlaySession) {
			p.SendPrompt(s, "")
			prompt(rng, s)
		}),
		p.Client("cancel", 7, p.CancelAndWait),
		p.Client("cancel twice", 2, func(rng *rand.Rand, s *PlaySession) {
			p.Cancel(s)
			p.CancelAndWait(rng, s)
		}),
		p.Client("prompt and cancel", 3, func(rng *rand.Rand, s *PlaySession) {
			p.SendPrompt(s, "")
			p.CancelAndWait(rng, s)
		}),
		p.Client("cancel and prompt", 3, func(rng *rand.Rand, s *PlaySession) {
			p.Cancel(s)
			prompt(rng, s)
		}),
		p.Client("withdraw a prompt", 1, func(rng *rand.Rand, s *PlaySession) {
			p.Mu.Lock()
			open := p.Open(s)
			p.Mu.Unlock()
			if len(open) > 0 {
				p.Withdraw(open[rng.IntN(len(open))])
			}
		}),
		{Name: "answer", Weight: 8, Do: func(rng *rand.Rand) { p.AnswerOne(rng, true) }},
		{Name: "answer late", Weight: 2, Do: func(rng *rand.Rand) { p.AnswerOne(rng, false) }},
		p.Client("close", 1, func(_ *rand.Rand, s *PlaySession) { p.EndSession("session/close", s) }),
		p.Client("delete and load", 1, func(_ *rand.Rand, s *PlaySession) {
			p.Mu.Lock()
			here := !s.Closing // else it may be opened before it is deleted
			p.Mu.Unlock()
			p.EndSession("session/delete", s)
			p.Mu.Lock()
			s.leaves = here
			p.Mu.Unlock()
			p.opens(s)
		}),
		p.Client("new", 1, func(*rand.Rand, *PlaySession) { p.OpenSession("session/new", nil) }),
		{Name: "load", Weight: 4, Do: p.Reopen},
		{Name: "reconnect", Weight: 1, Do: func(*rand.Rand) { p.Disconnect(); p.Connect() }},
	}
}

// OpenSession opens a session, and waits until it is answered.
func (p *Play) OpenSession(method string, of *PlaySession) {
	over := false
	params := map[string]any{"cwd": p.Cwd, "mcpServers": []any{}}
	if of != nil {
		params["sessionId"] = of.ID
	}
	p.Request(method, params, func(result json.RawMessage, e *acp.Error) {
		over = true
		if e != nil {
			return
		}
		id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
		if id == "" {
			id = of.ID
		}
		s := p.Add(id)
		if p.Opened != nil {
			p.Opened(s)
		}
	})
	p.Expect(method+" is answered", func() bool { return over })
}

// opens opens a session that is being deleted. Who succeeds has it behind the deletion, where the agent keeps it, or begins anew.
func (p *Play) opens(of *PlaySession) {
	params := map[string]any{"cwd": p.Cwd, "mcpServers": []any{}, "sessionId": of.ID}
	p.Request(acp.MethodSessionResume, params, func(_ json.RawMessage, e *acp.Error) {
		if e == nil {
			s := p.Add(of.ID)
			if p.Opened != nil {
				p.Opened(s)
			}
		}
	})
}

// Deleted checks that nobody has opened a session that its agent is told to delete.
func (p *Play) Deleted(id string) {
	if s := p.session(id); s != nil && s.leaves && s.Open && !s.Closing {
		p.Wrong("session %s is deleted, and was opened", id)
	}
}

// Reopen opens one of the sessions that are closed.
func (p *Play) Reopen(rng *rand.Rand) {
	p.Connect()
	p.Mu.Lock()
	closed := slices.DeleteFunc(slices.Clone(p.Sessions), func(s *PlaySession) bool { return s.Open })
	p.Mu.Unlock()
	if len(closed) > 0 {
		method := []string{acp.MethodSessionLoad, acp.MethodSessionResume}[rng.IntN(2)]
		p.OpenSession(method, closed[rng.IntN(len(closed))])
	}
}

// EndSession closes or deletes a session.
func (p *Play) EndSession(method string, s *PlaySession) {
	p.Mu.Lock()
	p.End(s)
	p.Mu.Unlock()
	p.Request(method, map[string]any{"sessionId": s.ID}, func(_ json.RawMessage, e *acp.Error) {
		if e == nil {
			s.Open = false
		}
	})
}

// CancelAndWait is Cancel, and now and then waits until that comes to the prompts.
func (p *Play) CancelAndWait(rng *rand.Rand, s *PlaySession) {
	open := p.Cancel(s)
	if p.Waits(rng) {
		p.Expect("a cancel comes to its prompts", func() bool {
			return !slices.ContainsFunc(open, func(one *PlayPrompt) bool { return !one.Told && !one.Said && !one.Answered })
		})
	}
}

var answers = []string{
	`{"outcome":{"outcome":"selected","optionId":"allow"}}`, `{"outcome":{"outcome":"selected","optionId":"reject"}}`,
	`{"outcome":{"outcome":"selected","optionId":"allow_always"}}`, `{"outcome":{"outcome":"cancelled"}}`, `{"outcome":{"outcome":"selected","optionId":"other"}}`,
}

// answered is the answer to a question that is no permission.
const answered = `{"outcome":"answered","answers":[["a"]]}`

// AnswerOne answers one of the questions that are open, or that are not any more.
func (p *Play) AnswerOne(rng *rand.Rand, open bool) {
	p.Mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.Asks), func(a *PlayAsk) bool { return a.Open != open || a.Answered })
	p.Mu.Unlock()
	if len(list) == 0 {
		return
	}
	a := list[rng.IntN(len(list))]
	result := answers[rng.IntN(len(answers))]
	if a.Method != acp.MethodSessionRequestPermission {
		result = []string{answered, `{"outcome":"cancelled"}`}[rng.IntN(2)]
	}
	p.Answer(a, result)
}

// Finish lets everything come to its end. native has the native processes do what they can,
// and reports whether nothing is left for them. Questions are answered, or their turns are
// cancelled.
func (p *Play) Finish(rng *rand.Rand, native func() bool) {
	cancels := rng.IntN(2) == 0
	for range 100 {
		var asks []*PlayAsk
		idle := false
		if !p.Wait(func() bool {
			idle = native() && p.Idle()
			asks = slices.DeleteFunc(slices.Clone(p.Asks), func(a *PlayAsk) bool { return !a.Open || a.Session == nil || !a.Session.Open })
			return p.Down || idle || len(asks) > 0
		}) {
			p.Mu.Lock()
			p.Wrong("not everything is answered")
			p.Mu.Unlock()
			return
		}
		switch {
		case p.Down || idle:
			p.Expect("nothing works by itself any more", func() bool {
				return !slices.ContainsFunc(p.Sessions, func(s *PlaySession) bool { return s.Open && s.Working })
			})
			return
		case cancels:
			cancels = false
			for _, s := range p.Sessions {
				p.Cancel(s)
			}
			continue
		}
		for _, a := range asks {
			if a.Method == acp.MethodSessionRequestPermission {
				p.Answer(a, answers[0])
			} else {
				p.Answer(a, answered)
			}
		}
	}
}
