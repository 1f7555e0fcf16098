package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// extensionMethods are the gateway's own requests, in alphabetical order.
var extensionMethods = []string{
	"_sandboxagent/session/detach", "_sandboxagent/session/events", "_sandboxagent/session/get",
	"_sandboxagent/session/list_models", "_sandboxagent/session/pending",
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
		"sessionPending": true, "sessionSetMetadata": true, "sessionTerminate": true,
		"sessionEnded": true, "agentUnparsed": true, "agentInstallProgress": true, "requestQuestion": true, "eventIds": true, "requestedSessionId": true,
		"files": r.o.Files != nil, "hostTools": r.o.HostTools != nil,
		"methods": methods,
	}
}

// extension handles the gateway's own requests.
func (c *Client) extension(q *request, m *acp.Message) {
	if c.r.answersFiles(q.method) {
		c.files(q, m)
		return
	}
	if !slices.Contains(extensionMethods, q.method) {
		q.fail(nil, acp.Errorf(acp.CodeMethodNotFound, "method %s is unknown: the extension methods are in initialize's agentCapabilities._meta", q.method))
		return
	}
	if q.method == "_sandboxagent/session/list_models" && !m.HasSession() {
		own := m.Clone()
		c.r.work.Go(func() { c.agentModels(q, &own) })
		return
	}
	s := c.sessionOf(q, m)
	if s == nil {
		return
	}
	switch q.method {
	case "_sandboxagent/session/detach":
		c.leave(s)
		q.result(nil, []byte("{}"))
	case "_sandboxagent/session/terminate":
		c.r.work.Go(func() {
			already := s.terminate(c.r.ctx, "client")
			s.mu.Lock()
			end := *s.rec.Ended
			s.mu.Unlock()
			q.encode(nil, map[string]any{
				"terminated": !already, "alreadyEnded": already, "reason": end.Reason, "terminatedBy": end.TerminatedBy,
			})
		})
	case "_sandboxagent/session/set_metadata":
		meta, ok := rawjson.Member(m.Params(), "metadata")
		if !ok || meta[0] != '{' {
			q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "params.metadata must be an object"))
			return
		}
		own := append(json.RawMessage(nil), meta...)
		c.r.work.Go(func() {
			s.change(func(rec *record) { rec.Metadata = own })
			q.result(nil, []byte("{}"))
		})
	case "_sandboxagent/session/get":
		q.encode(nil, s.info())
	case "_sandboxagent/session/list_models":
		s.mu.Lock()
		opts := s.rec.ConfigOptions
		s.mu.Unlock()
		q.encode(nil, modelsOf(opts))
	case "_sandboxagent/session/pending":
		q.encode(nil, map[string]any{"pending": s.pending()})
	case "_sandboxagent/session/events":
		own := m.Clone()
		c.r.work.Go(func() { c.events(q, &own, s) })
	}
}

func (c *Client) events(q *request, m *acp.Message, s *Session) {
	var p struct {
		After uint64 `json:"after"`
		Limit int    `json:"limit"`
	}
	if err := json.Unmarshal(m.Params(), &p); err != nil {
		q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "after and limit must be numbers: %s", err))
		return
	}
	events, more, err := c.r.Events(c.r.ctx, s.id, p.After, p.Limit)
	if err != nil {
		q.fail(nil, err)
		return
	}
	q.encode(nil, map[string]any{"events": events, "hasMore": more})
}

// pendingAsk is an open permission request or question.
type pendingAsk struct {
	RequestID int64           `json:"requestId"`
	Seq       uint64          `json:"seq"`
	Since     time.Time       `json:"since"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
}

func (s *Session) pending() []pendingAsk {
	s.asksMu.Lock()
	defer s.asksMu.Unlock()
	out := []pendingAsk{}
	for _, a := range s.asks {
		if a.forPerson() {
			params := rawjson.SetMember(a.params, s.quoted, "sessionId")
			out = append(out, pendingAsk{RequestID: a.id, Seq: a.seq, Since: a.at.UTC(), Method: a.method, Params: params})
		}
	}
	slices.SortFunc(out, func(a, b pendingAsk) int { return int(a.RequestID - b.RequestID) })
	return out
}

// models is the result of list_models.
type models struct {
	Available []model `json:"availableModels"`
	Current   string  `json:"currentModelId"`
}

type model struct {
	ModelID        string   `json:"modelId"`
	Name           string   `json:"name"`
	Description    string   `json:"description,omitempty"`
	Variants       []string `json:"variants"`
	DefaultVariant string   `json:"defaultVariant,omitempty"`
}

// modelsOf reads the models, and the thought levels as their variants, from a
// session's config options, which the agent reported.
func modelsOf(options json.RawMessage) models {
	out := models{Available: []model{}}
	variants, current := []string{}, ""
	for _, o := range rawjson.Elements(options) {
		category := rawjson.MemberString(o, "category")
		if category == "thought_level" {
			current = rawjson.MemberString(o, "currentValue")
			for _, v := range choices(o) {
				variants = append(variants, rawjson.MemberString(v, "value"))
			}
		}
		if category == "model" {
			out.Current = rawjson.MemberString(o, "currentValue")
			for _, v := range choices(o) {
				out.Available = append(out.Available, model{
					ModelID: rawjson.MemberString(v, "value"), Name: rawjson.MemberString(v, "name"), Description: rawjson.MemberString(v, "description"),
				})
			}
		}
	}
	for i := range out.Available {
		out.Available[i].Variants, out.Available[i].DefaultVariant = variants, current
	}
	return out
}

// choices returns a select option's values, those in groups too.
func choices(option json.RawMessage) []json.RawMessage {
	raw, _ := rawjson.Member(option, "options")
	var out []json.RawMessage
	for _, v := range rawjson.Elements(raw) {
		if group, ok := rawjson.Member(v, "options"); ok {
			out = append(out, rawjson.Elements(group)...)
			continue
		}
		out = append(out, v)
	}
	return out
}

// agentModels answers list_models for an agent. Agents report their models with
// a session, so one is opened for the question when none has been yet.
func (c *Client) agentModels(q *request, m *acp.Message) {
	a := c.agent
	if name := rawjson.MemberString(m.Params(), "agent"); name != "" {
		var err error
		if a, err = c.r.agentNamed(name); err != nil {
			q.fail(nil, err)
			return
		}
	}
	for _, s := range c.r.allSessions() {
		s.mu.Lock()
		opts, agent := s.rec.ConfigOptions, s.rec.Agent
		s.mu.Unlock()
		if agent == a.id && len(opts) > 0 {
			q.encode(nil, modelsOf(opts))
			return
		}
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, c.r.o.RequestTimeout)
	defer cancel()
	w := c.wants()
	w.alone = a.adapter.Info().PerSession
	p, err := a.process(ctx, w)
	if err != nil {
		q.fail(nil, err)
		return
	}
	defer p.release()
	cwd, err := c.r.scratch()
	if err != nil {
		q.fail(nil, err)
		return
	}
	params := append(append([]byte(`{"mcpServers":[],"cwd":`), rawjson.AppendQuoted(nil, cwd)...), '}')
	res, err := p.ask(ctx, "session/new", params)
	if err != nil {
		q.fail(nil, err)
		return
	}
	opts, _ := rawjson.Member(res, "configOptions")
	q.encode(nil, modelsOf(opts))
	id := append(append([]byte(`{"sessionId":`), rawjson.AppendQuoted(nil, rawjson.MemberString(res, "sessionId"))...), '}')
	for _, end := range []struct {
		method string
		can    bool
	}{{"session/close", p.caps.closing}, {"session/delete", p.caps.deleting}} {
		if end.can {
			if _, err := p.ask(ctx, end.method, id); err != nil {
				c.r.log.Debug("end temporary session", "agent", a.id, "err", err)
			}
		}
	}
}
