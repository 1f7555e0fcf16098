package runtime

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// listBound is how long an agent may take to list its sessions.
const listBound = 5 * time.Second

// listed is a session in the result of session/list.
type listed struct {
	SessionID string         `json:"sessionId"`
	Cwd       string         `json:"cwd"`
	Title     string         `json:"title,omitempty"`
	UpdatedAt string         `json:"updatedAt"`
	Meta      map[string]any `json:"_meta"`
}

// listResult is the result of session/list. Sessions are listed ones, or an
// agent's own bytes.
type listResult struct {
	Sessions []any          `json:"sessions"`
	Next     string         `json:"nextCursor,omitempty"`
	Meta     map[string]any `json:"_meta,omitempty"`
}

// nativeCursor is where a page of an agent's own list ended.
type nativeCursor struct {
	Native *string `json:"n"`
}

// listSessions handles session/list: the gateway answers for all agents. Behind
// the last of its own sessions come those that the connection's agent has from
// elsewhere, such as a terminal; session/load opens them.
func (c *Client) listSessions(q *viewer.Request, m *acp.Message) {
	if err := cmp.Or(acp.NeedTexts(m.Params(), "params", "cwd", "cursor"), acp.NeedOwnTexts(m.Meta(), "agent")); err != nil {
		q.Fail(nil, err)
		return
	}
	cwd, cursor := rawjson.MemberString(m.Params(), "cwd"), rawjson.MemberString(m.Params(), "cursor")
	agent := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent")
	res := listResult{Sessions: []any{}}
	var at nativeCursor
	if b, err := base64.RawURLEncoding.DecodeString(cursor); cursor != "" && err == nil {
		_ = json.Unmarshal(b, &at) // one of the gateway's own has no such member
	}
	if at.Native == nil {
		page, err := c.r.Sessions(c.r.ctx, SessionFilter{Cwd: cwd, Cursor: cursor, Agent: agent})
		if err != nil {
			q.Fail(nil, err)
			return
		}
		for _, s := range page.Sessions {
			res.Sessions = append(res.Sessions, listed{s.ID, s.Cwd, s.Title, s.UpdatedAt.Format(time.RFC3339Nano), map[string]any{acp.MetaKey: listMeta(s)}})
		}
		res.Next = page.NextCursor
	}
	p := c.process.Load()
	if res.Next != "" || p == nil || agent != "" && agent != c.agent.ID() || !p.Capabilities().List {
		q.Encode(nil, res)
		return
	}
	c.r.tasks.Go(func() {
		ctx, cancel := agents.Within(c.r.ctx, listBound)
		defer cancel()
		if err := c.listNative(ctx, p, cwd, at, &res); err != nil {
			c.r.log.Warn("agent did not list its sessions", "agent", c.agent.ID(), "err", err)
			res.Meta = map[string]any{acp.MetaKey: map[string]string{
				"incomplete": fmt.Sprintf("agent %s did not list the sessions that it has from elsewhere: %s", c.agent.ID(), viewer.ErrorOf(err).Message),
			}}
		}
		q.Encode(nil, res)
	})
}

// listNative adds a page of the agent's own list to res, without what the
// gateway has.
func (c *Client) listNative(ctx context.Context, p *agents.Process, cwd string, at nativeCursor, res *listResult) error {
	if !p.Alive() {
		var err error
		if p, err = c.restart(ctx); err != nil {
			return err
		}
	}
	params := map[string]string{}
	if cwd != "" {
		params["cwd"] = cwd
	}
	if at.Native != nil {
		params["cursor"] = *at.Native
	}
	b, err := schema.Encode(params)
	if err != nil {
		return err
	}
	own, err := p.Ask(ctx, acp.MethodSessionList, b)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, s := range c.r.sessions.All() {
		known[s.ID()] = true
		if about := s.About(); about.Agent == c.agent.ID() {
			known[about.AgentSessionID] = true
		}
	}
	sessions, _ := rawjson.Member(own, "sessions")
	for _, one := range rawjson.Elements(sessions) {
		if id := rawjson.MemberString(one, "sessionId"); id != "" && !known[id] {
			res.Sessions = append(res.Sessions, json.RawMessage(rawjson.SetMember(one, rawjson.AppendQuoted(nil, c.agent.ID()), "_meta", acp.MetaKey, "agent")))
		}
	}
	if next := rawjson.MemberString(own, "nextCursor"); next != "" {
		b, err := json.Marshal(nativeCursor{&next})
		if err != nil {
			return err
		}
		res.Next = base64.RawURLEncoding.EncodeToString(b)
	}
	return nil
}

func listMeta(s SessionInfo) json.RawMessage {
	meta := map[string]any{
		"agent": s.Agent, "agentSessionId": s.AgentSessionID, "createdAt": s.CreatedAt, "updatedAt": s.UpdatedAt,
		"ended": s.Ended != nil, "eventCount": s.EventCount, "model": s.Model, "continuity": s.Continuity, "state": s.State,
		"clients": s.Clients, "pending": s.Pending,
	}
	if len(s.Metadata) > 0 {
		meta["metadata"] = s.Metadata
	}
	b, err := schema.Encode(meta)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
