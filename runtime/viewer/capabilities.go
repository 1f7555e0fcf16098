package viewer

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// Capabilities is what the client said in initialize, as far as the gateway acts on it.
type Capabilities struct {
	Raw     json.RawMessage // for the agent
	Version int             // of the protocol that the connection speaks; 0 is the first
	Watch   bool            // it only looks: it is asked nothing, and counts as nobody who could answer

	fsRead, fsWrite, terminal         bool
	form, url, question, eventNumbers bool
	turns                             bool // it wants to know how turns of others end
	notices                           bool // it knows the gateway's own notifications
	subagents                         bool // it knows that subagents are sessions of their own
	knows                             version.Knows
}

// ReadCapabilities reads the clientCapabilities of initialize.
func ReadCapabilities(caps json.RawMessage) Capabilities {
	has := func(path ...string) bool {
		v, ok := rawjson.Member(caps, path...)
		return ok && string(v) != "null" && string(v) != "false"
	}
	own, _ := rawjson.Member(caps, "_meta", acp.MetaKey)
	no, _ := rawjson.Member(own, "notices")
	return Capabilities{
		// Who asks for anything of the gateway's own knows them, unless it says no.
		notices: len(own) > 0 && own[0] == '{' && !rawjson.IsEmptyObject(own) && string(no) != "false",
		Raw:     forAgent(caps),
		Watch:   has("_meta", acp.MetaKey, "watch"),
		fsRead:  has("fs", "readTextFile"), fsWrite: has("fs", "writeTextFile"), terminal: has("terminal"),
		form: has("elicitation", "form"), url: has("elicitation", "url"),
		question:     has("_meta", acp.MetaKey, "requestQuestion"),
		eventNumbers: has("_meta", acp.MetaKey, "eventIds"),
		turns:        has("_meta", acp.MetaKey, "turns"),
		subagents:    has("subagents"),
		knows:        version.KnownBy(caps),
	}
}

// Can reports whether the client offers a method that agents call, with these params.
func (c Capabilities) Can(method string, params json.RawMessage) bool {
	if c.Watch {
		return false
	}
	switch method {
	case acp.MethodFSReadTextFile:
		return c.fsRead
	case acp.MethodFSWriteTextFile:
		return c.fsWrite
	case acp.MethodTerminalCreate, acp.MethodTerminalOutput, acp.MethodTerminalWaitForExit, acp.MethodTerminalKill, acp.MethodTerminalRelease:
		return c.terminal
	case acp.MethodElicitationCreate:
		switch rawjson.MemberString(params, "mode") {
		case "form":
			return c.form
		case "url":
			return c.url
		}
		return c.form || c.url
	}
	return true
}

// forAgent returns the client capabilities that an agent process is started with: the
// client's own, without what is between it and the gateway.
func forAgent(caps json.RawMessage) json.RawMessage {
	if len(caps) == 0 || json.Unmarshal(caps, new(schema.ClientCapabilities)) != nil { // as the protocol says of what cannot be read
		return json.RawMessage("{}")
	}
	caps = rawjson.DeleteMember(caps, "_meta", acp.MetaKey)
	if meta, ok := rawjson.Member(caps, "_meta"); ok && string(meta) == "{}" {
		caps = rawjson.DeleteMember(caps, "_meta")
	}
	return caps
}

// Notices is the begin of the methods of the gateway's own notifications. Clients of
// the protocol that do not know them would show them as errors.
const Notices = "_sandboxagent/"

// Two reports whether the client speaks version 2 of the protocol: what it is given is
// translated.
func (c Capabilities) Two() bool { return c.Version == version.Two }

// viewed reports whether what the client is given of a session is made from its log, and
// not the log's own frames.
func (c Capabilities) viewed() bool { return c.Two() || c.subagents }

// WantsNotices reports whether the client knows the gateway's own notifications.
func (c Capabilities) WantsNotices() bool { return c.notices }

// WantsTurns reports whether the client wants to know how turns of others end.
func (c Capabilities) WantsTurns() bool { return c.turns }
