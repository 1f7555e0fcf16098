package runtime

import (
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// extensionMethods are the gateway's own requests, in alphabetical order.
var extensionMethods = []string{
	"_sandboxagent/session/detach", "_sandboxagent/session/events", "_sandboxagent/session/forget_permissions", "_sandboxagent/session/get",
	"_sandboxagent/session/list_models", "_sandboxagent/session/pending", "_sandboxagent/session/permissions",
	"_sandboxagent/session/set_metadata", "_sandboxagent/session/terminate",
}

// extensions is what initialize advertises of them.
func (r *Runtime) extensions() map[string]any {
	methods := extensionMethods
	if r.o.Files != nil {
		methods = append(r.o.Files.Methods(), methods...)
	}
	return map[string]any{
		"sessionDetach": true, "sessionEvents": true, "sessionGet": true, "sessionListModels": true,
		"sessionPending": true, "sessionPermissions": true, "sessionForgetPermissions": true, "sessionSetMetadata": true, "sessionTerminate": true,
		"sessionEnded": true, "sessionReleased": true, "sessionMcpServers": true, "agentUnparsed": true, "agentInstallProgress": true, "requestQuestion": true, "eventIds": true, "watch": true, "requestedSessionId": true,
		"files": r.o.Files != nil, "hostTools": r.o.HostTools != nil,
		"methods": methods,
	}
}

// extension handles the gateway's own requests.
func (c *Client) extension(q *viewer.Request, m *acp.Message) {
	if c.r.answersFiles(q.Method()) {
		c.files(q, m)
		return
	}
	if !slices.Contains(extensionMethods, q.Method()) {
		q.Fail(nil, acp.Errorf(acp.CodeMethodNotFound, "method %s is unknown: the extension methods are in initialize's agentCapabilities._meta", q.Method()))
		return
	}
	if q.Method() == "_sandboxagent/session/list_models" && !m.HasSession() {
		own := m.Clone()
		c.r.tasks.Go(func() { c.agentModels(q, &own) })
		return
	}
	s := c.sessionOf(q, m)
	if s == nil {
		return
	}
	switch q.Method() {
	case "_sandboxagent/session/detach":
		c.Detach(s)
		q.Result(nil, []byte("{}"))
	case "_sandboxagent/session/terminate":
		went, terminated := s.BeginTerminate("client")
		c.r.tasks.Go(func() {
			already, end, err := terminated(c.r.ctx)
			if err != nil {
				q.Fail(nil, err)
				return
			}
			c.awaitEnd(s)
			told := map[string]any{"terminated": !already, "alreadyEnded": already, "reason": end.Reason, "terminatedBy": end.TerminatedBy}
			if went != "" {
				told["_meta"] = map[string]any{acp.MetaKey: map[string]any{"movedTo": went}}
			}
			q.Encode(nil, told)
		})
	case "_sandboxagent/session/set_metadata":
		c.setMetadata(q, m, s)
	case "_sandboxagent/session/get":
		q.Encode(nil, s.Details())
	case "_sandboxagent/session/list_models":
		q.Encode(nil, session.ModelsOf(s.About().ConfigOptions))
	case "_sandboxagent/session/pending":
		q.Encode(nil, map[string]any{"pending": s.Pending()})
	case "_sandboxagent/session/permissions":
		c.r.tasks.Go(func() { q.Encode(nil, map[string]any{"permissions": s.Grants()}) })
	case "_sandboxagent/session/forget_permissions":
		c.forgetPermissions(q, m, s)
	case "_sandboxagent/session/events":
		own := m.Clone()
		c.r.tasks.Go(func() { c.events(q, &own, s) })
	}
}

// forgetPermissions takes back what a session's agent was allowed. All has to be said: who forgets the ids means some.
func (c *Client) forgetPermissions(q *viewer.Request, m *acp.Message, s *session.Session) {
	var p struct {
		IDs []string `json:"ids"`
		All bool     `json:"all"`
	}
	if err := json.Unmarshal(m.Params(), &p); err != nil {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "ids and all cannot be read: %s", problem.InJSON(err)))
		return
	}
	if p.All == (len(p.IDs) > 0) {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "params must have either ids, a list that is not empty, or all true"))
		return
	}
	await := s.BeginForget(p.IDs) // before the client's next request, such as a prompt
	c.r.tasks.Go(func() {
		forgotten, err := await(c.r.ctx)
		if err != nil {
			q.Fail(nil, err)
			return
		}
		q.Encode(nil, map[string]any{"forgotten": forgotten})
	})
}

// setMetadata gives a session its metadata, or a title, or both.
func (c *Client) setMetadata(q *viewer.Request, m *acp.Message, s *session.Session) {
	meta, noted := rawjson.Member(m.Params(), "metadata")
	title, named := rawjson.Member(m.Params(), "title")
	switch {
	case noted && meta[0] != '{' || !noted && !named:
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "params.metadata must be an object"))
		return
	case named && title[0] != '"':
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "params.title must be a text; an empty one is the agent's own title"))
		return
	}
	went := s.Went()
	answer := func(err error) { finish(q)(went, s.Unwritten(err)) }
	if !noted {
		s.Rename(rawjson.MemberString(m.Params(), "title"), answer)
		return
	}
	if !named {
		s.SetMetadata(meta, answer)
		return
	}
	var unkept error
	s.SetMetadata(meta, func(err error) { unkept = err })
	s.Rename(rawjson.MemberString(m.Params(), "title"), func(err error) { answer(errors.Join(unkept, err)) }) // told behind the other
}

func (c *Client) events(q *viewer.Request, m *acp.Message, s *session.Session) {
	var p struct {
		After uint64 `json:"after"`
		Limit int    `json:"limit"`
	}
	if err := json.Unmarshal(m.Params(), &p); err != nil {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "after and limit cannot be read: %s", problem.InJSON(err)))
		return
	}
	share := c.r.o.Memory.Open(nil) // from here on the answer is the connection's
	defer share.Close()
	events, more, err := c.r.Events(memory.With(c.r.ctx, share), s.ID(), p.After, p.Limit)
	if err != nil {
		q.Fail(nil, err)
		return
	}
	q.Encode(nil, map[string]any{"events": events, "hasMore": more})
}

// agentModels answers list_models for an agent. Agents report their models with
// a session, so one is opened for the question when none has been yet.
func (c *Client) agentModels(q *viewer.Request, m *acp.Message) {
	a := c.agent
	if err := acp.NeedTexts(m.Params(), "params", "agent"); err != nil {
		q.Fail(nil, err)
		return
	}
	if name := rawjson.MemberString(m.Params(), "agent"); name != "" {
		var err error
		if a, err = c.r.agents.Named(name); err != nil {
			q.Fail(nil, err)
			return
		}
	}
	for _, s := range c.r.sessions.All() {
		if about := s.About(); about.Agent == a.ID() && len(about.ConfigOptions) > 0 {
			q.Encode(nil, session.ModelsOf(about.ConfigOptions))
			return
		}
	}
	ctx, cancel := agents.Within(c.r.ctx, c.r.o.RequestTimeout)
	defer cancel()
	n := c.needs
	n.Alone = a.Info().PerSession
	p, err := a.Process(ctx, n)
	if err != nil {
		q.Fail(nil, err)
		return
	}
	defer p.Release()
	cwd, err := c.r.scratch()
	if err != nil {
		q.Fail(nil, err)
		return
	}
	params := rawjson.Object{}.Raw("mcpServers", []byte("[]")).String("cwd", cwd).End()
	var gaveUp atomic.Bool
	made := make(chan json.RawMessage, 1)
	discardLate := func() {
		select {
		case late := <-made:
			p.Discard(late)
		default:
		}
	}
	res, err := p.AskThen(ctx, acp.MethodSessionNew, params, func(res json.RawMessage, err error) {
		if made <- res; gaveUp.Load() && err == nil {
			discardLate()
		}
	})
	if err != nil {
		gaveUp.Store(true)
		discardLate()
		q.Fail(nil, err)
		return
	}
	opts, _ := rawjson.Member(res, "configOptions")
	q.Encode(nil, session.ModelsOf(opts))
	id := rawjson.Object{}.String("sessionId", rawjson.MemberString(res, "sessionId")).End()
	for _, end := range []struct {
		method string
		can    bool
	}{{acp.MethodSessionClose, p.Capabilities().Close}, {acp.MethodSessionDelete, p.Capabilities().Delete}} {
		if end.can {
			if _, err := p.Ask(ctx, end.method, id); err != nil {
				c.r.log.Debug("end temporary session", "agent", a.ID(), "err", err)
			}
		}
	}
}
