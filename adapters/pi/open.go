package pi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// sessionMeta is what a result says of a session beyond the protocol.
func (s *session) sessionMeta() map[string]json.RawMessage {
	m := map[string]any{}
	s.mu.Lock()
	if s.version != "" {
		m["agentVersion"] = s.version
	}
	s.mu.Unlock()
	if len(s.launch.Unsupported) > 0 {
		m["unsupported"] = s.launch.Unsupported
	}
	if s.launch.anew {
		m["continuity"] = bridge.Fresh
	}
	if len(m) == 0 {
		return nil
	}
	return bridge.Meta(m)
}

// NewSession starts a conversation.
func (a *agent) NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	l, err := newLaunch(bridge.OfNew(r))
	if err != nil {
		return nil, err
	}
	s, err := a.make(ctx, l, record{})
	if err != nil {
		return nil, err
	}
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.sessionMeta()}, nil
}

// make starts a conversation of the connection's, with what was chosen of the one that it goes
// on from.
func (a *agent) make(ctx context.Context, l *launch, from record, args ...string) (*session, error) {
	anew := func() *session { return a.newSession(l) }
	s, g, err := begin(ctx, anew(), anew, &from, args...)
	if err != nil {
		return nil, err
	}
	s.name(schema.SessionID(g.Session))
	err = a.store.Change(g.Session, func(r *record) {
		*r = record{Cwd: l.Cwd, Made: true, File: g.File, Mode: bridge.In(l.mode, l.PermissionMode), Model: from.Model, Thinking: from.Thinking}
	})
	if err == nil && s.noModel() {
		err = authRequired("pi has no credentials for any model")
	}
	if err == nil && l.Title != "" {
		if err = s.entitle(ctx, l.Title); err != nil {
			err = s.startError(s.program(), err)
		}
	}
	if err != nil {
		s.end()
		_ = a.store.Forget(g.Session) // err is why there is no session
		return nil, err
	}
	return s, a.add(s, g)
}

// begin starts the process of a session that anew makes, with what was chosen before. That may
// not be there any more, the conversation is: then it starts without, and from has none of it.
func begin(ctx context.Context, s *session, anew func() *session, from *record, args ...string) (*session, *greeting, error) {
	g, err := s.start(ctx, slices.Concat(args, chosen(*from))...)
	if refused, ok := errors.AsType[*acp.Error](err); ok && len(chosen(*from)) > 0 {
		s.launch.Cannot("model", "pi does not start with what was chosen before: %s", refused.Message)
		from.Model, from.Thinking = "", ""
		s = anew()
		g, err = s.start(ctx, args...)
	}
	return s, g, err
}

// LoadSession opens a conversation of Pi, wherever it was made, and replays it.
func (a *agent) LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, err := a.reopen(ctx, r.SessionID, bridge.OfLoad(r), true)
	if err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.sessionMeta()}, nil
}

// ResumeSession opens a conversation and replays nothing.
func (a *agent) ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, err := a.reopen(ctx, r.SessionID, bridge.OfResume(r), false)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.sessionMeta()}, nil
}

// reopen starts Pi with a conversation that was held before. One in which nothing
// was said has no file, and begins anew.
func (a *agent) reopen(ctx context.Context, id schema.SessionID, from bridge.Request, replay bool) (*session, error) {
	over, err := a.sessions.Claim(ctx, id)
	if err != nil {
		return nil, err
	}
	defer over()
	l, err := newLaunch(from)
	if err != nil {
		return nil, err
	}
	known, made := a.store.Load(string(id))
	if mode := known.Again(l.PermissionMode); modeKnown(mode) {
		l.mode = mode
	}
	file, err := a.files.of(&known, string(id))
	if err == nil {
		err = a.files.check(file, id, from.Cwd)
	}
	if err != nil {
		if !bridge.IsNotFound(err) || !made || !known.Made || !bridge.SameDir(known.Cwd, from.Cwd) {
			return nil, err
		}
		file, l.anew = "", true // nothing was said yet, or it is lost
	}
	var args []string
	if file != "" {
		args = append(args, "--session", file)
	}
	anew := func() *session {
		s := a.newSession(l)
		s.name(id)
		s.granted = known.Granted
		return s
	}
	s := anew()
	if replay && file != "" {
		if err := s.replay(file); err != nil {
			s.end()
			return nil, err
		}
	}
	s, g, err := begin(ctx, s, anew, &known, args...)
	if err != nil {
		return nil, err
	}
	s.title.Given(file != "")
	s.keep(func(r *record) {
		r.File, r.Theirs, r.Mode = g.File, r.Theirs && !l.anew, bridge.In(s.mode(), l.PermissionMode)
	})
	return s, a.add(s, g)
}

// chosen are the flags that restore what was chosen of a session before.
func chosen(r record) []string {
	var args []string
	if r.Model != "" {
		args = append(args, "--model", r.Model)
	}
	if r.Thinking != "" {
		args = append(args, "--thinking", r.Thinking)
	}
	return args
}

// ForkSession starts a conversation that knows all of another one.
func (a *agent) ForkSession(ctx context.Context, r *schema.ForkSessionRequest) (*schema.ForkSessionResponse, error) {
	l, err := newLaunch(bridge.OfFork(r))
	if err != nil {
		return nil, err
	}
	known, made := a.store.Load(string(r.SessionID))
	file, err := a.files.of(&known, string(r.SessionID))
	if err != nil && (!made || !bridge.IsNotFound(err)) {
		return nil, err
	}
	var args []string
	if file != "" {
		args = append(args, "--fork", file)
	} else {
		l.anew = true
	}
	s, err := a.make(ctx, l, known, args...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.title.Given(file != "")
	s.mu.Unlock()
	return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.sessionMeta()}, nil
}
