package bridgetest

import (
	"encoding/json"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Mode is a mode in which a test expects a session.
type Mode struct {
	Under  string // the permissionMode with which the session is made, "" for none
	Chosen string // by session/set_mode then, "" for none
	Again  string // the permissionMode with which it is opened again, "" for none
	Fork   bool   // it is not opened again: a fork of it is made
	Want   string
}

// Modes checks in which mode an agent opens sessions again that got into another one before. open is called for each of them.
func Modes(t *testing.T, open func(t *testing.T) *Client, modes []Mode) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.Under+" "+m.Chosen+" "+m.Again, func(t *testing.T) {
			c := open(t)
			params := func(id schema.SessionID, wish string) json.RawMessage {
				p := rawjson.Object{}.String("cwd", c.W.Cwd).Raw("mcpServers", []byte("[]"))
				if id != "" {
					p = p.String("sessionId", string(id))
				}
				if wish != "" {
					p = p.Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.String("permissionMode", wish).End()).End())
				}
				return p.End()
			}
			id := schema.SessionID(rawjson.MemberString(c.Must(acp.MethodSessionNew, params("", m.Under)), "sessionId"))
			if m.Chosen != "" {
				c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: schema.SessionModeID(m.Chosen)})
			}
			method := acp.MethodSessionFork
			if !m.Fork {
				method = acp.MethodSessionResume
				c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
			}
			if is := rawjson.MemberString(c.Must(method, params(id, m.Again)), "modes", "currentModeId"); is != m.Want {
				t.Errorf("it is in mode %q, want %q", is, m.Want)
			}
		})
	}
}
