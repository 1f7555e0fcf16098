package relay

import (
	"encoding/json"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// errAway is the error with which a node could not be reached, as loadCopy takes it.
func errAway(res *acp.Message) error {
	if rawjson.MemberString(res.Err().Data, "type") != problem.NodeOffline.Type() {
		return res.Err()
	}
	return problem.New(problem.NodeOffline, "%s", res.Err().Message)
}

// loadCopy answers a session/load whose node cannot be asked, for the reason given, with
// what the store has of the session. It can be read and nothing else: it is none of the
// connection's sessions until it is loaded or resumed at its node. Copies have the updates of
// version 1 of the protocol.
func (c *Client) loadCopy(q *viewer.Request, m *acp.Message, why error) error {
	switch kind := problem.From(why).Kind; {
	case q.Method() != acp.MethodSessionLoad || c.two, kind != problem.NodeOffline && kind != problem.SessionNotFound:
		return why
	}
	id := m.Session()
	at, err := selectionIn(m.Meta())
	if err != nil {
		return err
	}
	after := uint64(0)
	if raw, ok := rawjson.Member(m.Meta(), acp.MetaKey, "after"); ok {
		if after, err = strconv.ParseUint(string(raw), 10, 64); err != nil {
			return acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].after must be a sequence number of the session`, acp.MetaKey)
		}
	}
	c.mu.Lock()
	open := c.sessions[id] != nil
	c.mu.Unlock()
	if open { // it goes on when the node is back
		return why
	}
	from, err := c.g.fleet.Copy(c.ctx, c.token, id, at.name, after)
	if err != nil {
		return why
	}
	s := newSession(c, nil, id)
	c.mu.Lock()
	if len(c.sessions)+len(c.lost) >= maxSessions {
		c.mu.Unlock()
		return why
	}
	before := c.overLocked(id)
	c.lost[id] = lost{s: s, why: "it was loaded from the hub's copy while its node was away"}
	c.mu.Unlock()
	c.attachInPlaceOf(before, s)
	if !c.begin(func() {
		for m, err := range from.Updates {
			if err != nil {
				q.Fail(nil, err)
				return
			}
			if m.Session() == id { // nodes write what they like
				s.show(c.ctx, nil, m)
			}
		}
		from.Meta["historyIncomplete"] = !from.Whole()
		meta, err := schema.Encode(from.Meta)
		if err != nil {
			q.Fail(nil, err)
			return
		}
		c.opened(q, s, rawjson.SetMember(json.RawMessage("{}"), meta, "_meta", acp.MetaKey))
	}) {
		return errEnded
	}
	return nil
}
