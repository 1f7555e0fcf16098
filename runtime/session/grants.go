package session

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Grant is what a client has allowed the session's agent for more than one call.
type Grant struct {
	ID        string              `json:"id"` // within the session
	Title     string              `json:"title"`
	Kind      string              `json:"kind,omitempty"` // of the tools that it is about, as in ACP
	GivenAt   *time.Time          `json:"givenAt,omitempty"`
	Key       string              `json:"key"` // what is allowed, as the agent or its bridge says it
	Where     adapters.GrantPlace `json:"where"`
	File      string              `json:"file,omitempty"` // that holds it
	Revocable bool                `json:"revocable"`
	Reason    string              `json:"reason,omitempty"` // why it cannot be taken back
}

// granted is a grant of an agent that keeps what it is allowed in a way of its own: that a client has chosen it.
type granted struct {
	ID    string    `json:"id"`
	Title string    `json:"title"`
	Kind  string    `json:"kind,omitempty"`
	At    time.Time `json:"at"`
	Key   string    `json:"key"` // of the option
}

// maxGranted bounds those that are kept, the newest, and maxGrantTitle the title of each in bytes.
const (
	maxGranted    = 64
	maxGrantTitle = 200
)

// Grants lists what counts in the session, the oldest first. It may read a file.
func (s *Session) Grants() []Grant {
	s.mu.Lock()
	rec, served, over := s.rec, s.m.hosting == serving, s.m.life == ended || s.m.life == deleted
	s.mu.Unlock()
	a := s.set.o.Agents.Find(rec.Agent)
	if over || a == nil {
		return []Grant{}
	}
	list, known := a.Grants(rec.AgentSessionID)
	if !known {
		return atAgent(rec.Agent, rec.Granted)
	}
	out := []Grant{}
	for _, g := range list {
		if g.Where == adapters.GrantInProcess && !served {
			continue // it ended with the process
		}
		one := Grant{ID: g.ID, Title: g.Title, Kind: g.Kind, Key: g.Key, Where: g.Where, File: g.File, Revocable: g.Reason == "", Reason: g.Reason}
		if !g.GivenAt.IsZero() {
			one.GivenAt = &g.GivenAt
		}
		out = append(out, one)
	}
	return out
}

// atAgent are grants of which nobody knows how the agent keeps them.
func atAgent(agent string, list []granted) []Grant {
	out := []Grant{}
	for _, g := range list {
		out = append(out, Grant{
			ID: g.ID, Title: g.Title, Kind: g.Kind, GivenAt: &g.At, Key: g.Key, Where: adapters.GrantAtAgent,
			Reason: "agent " + agent + " keeps it itself, in a way that the gateway does not know: take it back there, or go on in a new session",
		})
	}
	return out
}

// noteGrantLocked notes that a client has allowed something for more than one call, if nobody else does. decision is how it answered.
func (s *Session) noteGrantLocked(a *ask, decision string, m *acp.Message, x *after) {
	if a.Method != acp.MethodSessionRequestPermission || decision != string(schema.PermissionOptionKindAllowAlways) || a.process.Agent().KeepsGrants() {
		return
	}
	chosen := rawjson.MemberString(m.Result(), "outcome", "optionId")
	title := rawjson.MemberString(a.Params, "toolCall", "title")
	options, _ := rawjson.Member(a.Params, "options")
	for _, o := range rawjson.Elements(options) {
		if name := rawjson.MemberString(o, "name"); rawjson.MemberString(o, "optionId") == chosen && name != "" {
			title = name + map[bool]string{true: ": " + title}[title != ""]
		}
	}
	title = begins(oneLine(title), maxGrantTitle)
	// An agent that asks for the same again has forgotten the former.
	all := slices.DeleteFunc(slices.Clone(s.rec.Granted), func(g granted) bool { return g.Title == title && g.Key == chosen })
	all = append(all, granted{
		ID: "ask-" + strconv.FormatInt(a.ID, 10), Title: title, Kind: rawjson.MemberString(a.Params, "toolCall", "kind"),
		At: time.Now().UTC().Truncate(time.Millisecond), Key: chosen,
	})
	s.rec.Granted = all[max(0, len(all)-maxGranted):]
	s.unsaved, x.save = true, true
}

// BeginForget begins to take grants back, all that can be if there are no ids: the agent asks again at the next such call. The
// process that serves the session is given back for it, since it may have them in its memory, so that it is refused while something goes on
// in the session. What a client asks for next comes behind it. The function returned waits until it is done, and
// returns what does not count any more: some agents forget more than they were asked to.
func (s *Session) BeginForget(ids []string) (await func(ctx context.Context) ([]Grant, error)) {
	at := func(forgotten []Grant, err error) func(context.Context) ([]Grant, error) {
		return func(context.Context) ([]Grant, error) { return forgotten, err }
	}
	before := s.Grants()
	if first, err := s.takenBack(before, ids); err != nil || len(first) == 0 {
		return at([]Grant{}, err)
	}
	s.mu.Lock()
	agent, native := s.rec.Agent, s.rec.AgentSessionID
	s.mu.Unlock()
	a := s.set.o.Agents.Find(agent)
	if l := s.served(); l != nil {
		if reason := l.reopens(); reason != "" {
			return at(nil, problem.New(problem.Conflict, "agent %s %s, and may have in its memory what it was allowed: close session %s first", agent, reason, s.id))
		}
		if l.p.LeftRunning() {
			return at(nil, problem.New(problem.Conflict, "commands run that the agent of session %s has left running, and that end with its process: end them, or close the session, and try again", s.id))
		}
	}
	type result struct {
		forgotten []Grant
		err       error
	}
	over, forgotten := make(chan result, 1), []Grant{}
	p := &pause{done: func(err error) { over <- result{forgotten, err} }}
	p.run = func() error {
		// Another request may have taken some of it back. What was in the process is forgotten by who had it given back.
		still := s.Grants()
		before := slices.DeleteFunc(before, func(g Grant) bool {
			return !(g.Where == adapters.GrantInProcess && p.took) && !has(still, g.ID)
		})
		ids, err := s.takenBack(before, ids)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := a.ForgetGrants(native, ids); err != nil {
			return problem.Wrap(problem.Unavailable, err, "what was allowed in session %s cannot be taken back", s.id)
		}
		now := s.Grants()
		forgotten = slices.DeleteFunc(before, func(g Grant) bool { return has(now, g.ID) })
		s.tellForgotten(forgotten)
		return nil
	}
	s.handle(event{kind: paused, pause: p})
	return func(ctx context.Context) ([]Grant, error) {
		select {
		case r := <-over:
			return r.forgotten, r.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func has(list []Grant, id string) bool {
	return slices.ContainsFunc(list, func(g Grant) bool { return g.ID == id })
}

// takenBack returns the ids of those grants that are to be taken back. No ids are those of all that can be.
func (s *Session) takenBack(list []Grant, ids []string) ([]string, error) {
	if len(ids) == 0 {
		for _, g := range list {
			if g.Revocable {
				ids = append(ids, g.ID)
			}
		}
		return ids, nil
	}
	for _, id := range ids {
		i := slices.IndexFunc(list, func(g Grant) bool { return g.ID == id })
		switch {
		case i < 0:
			return nil, problem.New(problem.NotFound, "in session %s nothing is allowed with the id %q: list what is", s.id, id).With("sessionId", s.id)
		case !list[i].Revocable:
			return nil, problem.New(problem.Conflict, "%s cannot be taken back: %s", cmp.Or(list[i].Title, id), list[i].Reason)
		}
	}
	return ids, nil
}

// tellForgotten tells everybody what is asked again. It is an event: what was allowed is one, too.
func (s *Session) tellForgotten(list []Grant) {
	type forgotten struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	var out []forgotten
	for _, g := range list {
		out = append(out, forgotten{g.ID, g.Title})
	}
	if len(out) == 0 {
		return
	}
	if b, err := schema.Encode(out); err == nil {
		s.tell(rawjson.Object{}.String("sessionUpdate", "session_info_update").Raw("_meta",
			rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.Raw("permissionsForgotten", b).End()).End()).End())
	}
}
