package version

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Agent translates between the gateway, which speaks version 1, and one agent that speaks
// version 2. What the agent says comes out in version 1; what version 1 says otherwise
// comes out twice, once for the clients of each version, see [acp.Message.For]. It is used
// by one goroutine at a time.
type Agent struct {
	asked    map[acp.ID]asked   // open requests of the gateway; at most maxAsked
	sessions map[string]*spoken // by the JSON token of the session's id; at most maxSessions
	roots    map[string]string  // of children: the token of the session that the gateway knows; at most maxChildren
}

// asked is a request of the gateway that the agent has not answered.
type asked struct {
	method, session string // the method in version 1
	mode            bool   // it sets a mode
}

// The bounds of what is known. What comes of more children is passed on under their own
// ids, which nobody knows. Of more requests and sessions, an old one that nothing was heard
// of is forgotten: its answer, or what is said of it, is read as if it were the first.
const (
	maxChildren = 1024
	maxAsked    = 4096
	maxSessions = 4096
)

// NewAgent returns the translation for an agent that has answered the gateway's initialize
// in version 2.
func NewAgent() *Agent {
	return &Agent{asked: map[acp.ID]asked{}, sessions: map[string]*spoken{}, roots: map[string]string{}}
}

// Offer returns the gateway's initialize, of version 1, as it asks for version 2. An agent
// that has version 1 alone finds in it what it needs.
func Offer(m *acp.Message) acp.Message {
	params := rawjson.SetMember(m.Params(), []byte("2"), "protocolVersion")
	info, ok := rawjson.Member(params, "clientInfo")
	if !ok || !isString(info, "name") || !isString(info, "version") {
		info = []byte(`{"name":"sandbox-agent","version":"unknown"}`)
	}
	caps, _ := rawjson.Member(params, "clientCapabilities")
	own := rawjson.Object{}
	if rawjson.MemberBool(caps, "auth", "terminal") {
		own = own.Raw("auth", []byte(`{"terminal":{}}`))
	}
	if v, ok := rawjson.Member(caps, "elicitation"); ok && v[0] == '{' {
		own = own.Raw("elicitation", v)
	}
	params = rawjson.SetMember(params, info, "info")
	params = rawjson.SetMember(params, withMeta(own, caps).End(), "capabilities")
	return acp.NewRequest(m.ID(), m.Method(), params)
}

// Offered returns the answer to an [Offer] as version 1 has it, and false when the agent
// has chosen another version than 2.
func Offered(m *acp.Message) (acp.Message, bool) {
	if v, _ := rawjson.Member(m.Result(), "protocolVersion"); string(v) != "2" {
		return acp.Message{}, false
	}
	return acp.NewResult(ownID(m), lowerInitialized(m.Result())), true
}

func ownID(m *acp.Message) acp.ID { return acp.ID(strings.Clone(string(m.ID()))) }

// lowerInitialized returns the result of initialize as version 1 has it. What it says of
// the agent in version 2 is kept for clients of that.
func lowerInitialized(result json.RawMessage) json.RawMessage {
	caps, _ := rawjson.Member(result, "capabilities")
	can := func(path ...string) json.RawMessage {
		if v, ok := rawjson.Member(caps, path...); ok && v[0] == '{' {
			return []byte("true")
		}
		return []byte("false")
	}
	prompt := rawjson.Object{}.Raw("image", can("session", "prompt", "image")).Raw("audio", can("session", "prompt", "audio")).
		Raw("embeddedContext", can("session", "prompt", "embeddedContext"))
	mcp := rawjson.Object{}.Raw("http", can("session", "mcp", "http")).Raw("sse", []byte("false"))
	session := rawjson.Object{}.Raw("list", []byte("{}")).Raw("resume", []byte("{}")).Raw("close", []byte("{}"))
	for _, name := range []string{"delete", "additionalDirectories", "systemPrompt", "fork", "archive", "status", "title"} {
		if v, ok := rawjson.Member(caps, "session", name); ok && v[0] == '{' {
			session = session.Raw(name, v)
		}
	}
	auth := rawjson.Object{}.Raw("logout", []byte("{}"))
	if v, ok := rawjson.Member(caps, "auth", "status"); ok && v[0] == '{' {
		auth = auth.Raw("status", v)
	}
	lowered := rawjson.Object{}.Raw("loadSession", []byte("true")).Raw("promptCapabilities", prompt.End()).
		Raw("mcpCapabilities", mcp.End()).Raw("sessionCapabilities", session.End()).Raw("auth", auth.End())
	if v, ok := rawjson.Member(caps, "providers"); ok && v[0] == '{' {
		lowered = lowered.Raw("providers", v)
	}
	out := rawjson.Object{}.Raw("protocolVersion", []byte("1")).Raw("agentCapabilities", withMeta(lowered, caps).End())
	if info, ok := rawjson.Member(result, "info"); ok && info[0] == '{' {
		out = out.Raw("agentInfo", info)
	}
	methods, _ := rawjson.Member(result, "authMethods")
	out = out.Raw("authMethods", list(methods, lowerAuthMethod))
	all := withMeta(out, result).End()
	if len(caps) == 0 || caps[0] != '{' {
		caps = []byte("{}")
	}
	return rawjson.SetMember(all, caps, append(original, "capabilities")...)
}

// SaidByTwo reports whether an agent of version 2 has said the result of initialize, which
// is in version 1.
func SaidByTwo(result json.RawMessage) bool {
	_, two := rawjson.Member(result, original...)
	return two
}

// CancelsCalls is the member of the gateway's part of an agent's agentCapabilities._meta that
// says that the agent, which speaks version 1, takes tool_call/cancel all the same.
const CancelsCalls = "cancelsCalls"

// CancelsOne reports whether an agent of version 1, whose result of initialize this is,
// cancels calls by themselves.
func CancelsOne(result json.RawMessage) bool {
	_, can := rawjson.Member(result, "agentCapabilities", "_meta", acp.MetaKey, CancelsCalls)
	return can
}

func lowerAuthMethod(m json.RawMessage) json.RawMessage {
	m = rename(m, "methodId", "id")
	switch rawjson.MemberString(m, "type") {
	case "agent":
		m = rawjson.DeleteMember(m, "type")
	case "terminal":
		if env, ok := rawjson.Member(m, "env"); ok && env[0] == '[' {
			vars := rawjson.Object{}
			for _, e := range rawjson.Elements(env) {
				if name := rawjson.MemberString(e, "name"); e[0] == '{' && name != "" {
					vars = vars.String(name, rawjson.MemberString(e, "value"))
				}
			}
			m = rawjson.SetMember(m, vars.End(), "env")
		}
	}
	return m
}

// Tell returns what the agent is told in place of a message of the gateway, and false when
// that is nothing: a session that does nothing is not cancelled, as agents would keep that
// for their next prompt. One that goes on though it was said to be idle is.
func (a *Agent) Tell(m *acp.Message) (acp.Message, bool) {
	switch {
	case m.IsResponse():
		return *m, true // the answers that agents get are the same
	case m.Method() == acp.MethodCancelRequest:
		return a.cancelRequest(m), true
	case m.Method() == acp.MethodSessionCancel:
		s := a.sessions[string(m.SessionRaw())]
		works := s == nil || s.prompt != nil || s.alone || s.behind || s.shown || s.child != ""
		if s != nil {
			s.shown = false
		}
		return *m, works
	case m.IsRequest():
		return a.ask(m), true
	}
	return *m, true
}

// cancelRequest withdraws a request. A prompt that the agent has taken is answered
// already: its turn is cancelled.
func (a *Agent) cancelRequest(m *acp.Message) acp.Message {
	id, _ := rawjson.Member(m.Params(), "requestId")
	for token, s := range a.sessions {
		if p := s.prompt; p != nil && p.taken && string(p.id) == string(id) {
			return acp.NewNotification(acp.MethodSessionCancel, rawjson.Object{}.Raw("sessionId", []byte(token)).End())
		}
	}
	return *m
}

// ask takes a request of the gateway.
func (a *Agent) ask(m *acp.Message) acp.Message {
	token := string(m.SessionRaw())
	if len(a.asked) >= maxAsked {
		a.forgetAsked()
	}
	a.asked[ownID(m)] = asked{method: m.Method(), session: token, mode: m.Method() == acp.MethodSessionSetMode}
	switch m.Method() {
	case acp.MethodSessionPrompt:
		blocks, _ := rawjson.Member(m.Params(), "prompt")
		s := a.session(token)
		s.prompt, s.shown = &taken{id: ownID(m)}, false
		for _, b := range rawjson.Elements(blocks) {
			s.prompt.blocks = append(s.prompt.blocks, blockText(b))
		}
	case acp.MethodSessionNew, acp.MethodSessionFork:
		return acp.NewRequest(m.ID(), m.Method(), raiseServers(m.Params()))
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		delete(a.sessions, token) // it is shown anew
		params := raiseServers(m.Params())
		if m.Method() == acp.MethodSessionLoad {
			params = rawjson.SetMember(params, []byte(`{"type":"start"}`), "replayFrom")
		}
		return acp.NewRequest(m.ID(), acp.MethodSessionResume, params)
	case acp.MethodSessionSetMode:
		mode, _ := rawjson.Member(m.Params(), "modeId")
		params := rawjson.Object{}.Raw("sessionId", []byte(token)).String("configId", a.session(token).modeOption()).String("type", "id").Raw("value", mode)
		return acp.NewRequest(m.ID(), acp.MethodSessionSetConfigOption, withMeta(params, m.Params()).End())
	case acp.MethodSessionSetConfigOption:
		if _, typed := rawjson.Member(m.Params(), "type"); !typed {
			return acp.NewRequest(m.ID(), m.Method(), rawjson.SetMember(m.Params(), []byte(`"id"`), "type"))
		}
	case acp.MethodAuthenticate:
		return acp.NewRequest(m.ID(), MethodAuthLogin, m.Params())
	case acp.MethodLogout:
		return acp.NewRequest(m.ID(), MethodAuthLogout, m.Params())
	}
	return *m
}

// forgetAsked forgets a request that the agent has not answered: one of those that were
// made first, as ids grow.
func (a *Agent) forgetAsked() {
	oldest := acp.ID("")
	for id := range a.asked {
		if oldest == "" || len(id) < len(oldest) || len(id) == len(oldest) && id < oldest {
			oldest = id
		}
	}
	delete(a.asked, oldest)
}

// raiseServers returns params whose MCP servers are as version 2 has them.
func raiseServers(params json.RawMessage) json.RawMessage {
	servers, ok := rawjson.Member(params, "mcpServers")
	if !ok || servers[0] != '[' {
		return params
	}
	return rawjson.SetMember(params, list(servers, func(s json.RawMessage) json.RawMessage {
		if _, typed := rawjson.Member(s, "type"); !typed {
			s = rawjson.SetMember(s, []byte(`"stdio"`), "type")
		}
		return s
	}), "mcpServers")
}

// Hear adds to out what the gateway is told in place of a message of the agent. They refer
// to the message's bytes.
func (a *Agent) Hear(m *acp.Message, out []acp.Message) []acp.Message {
	switch {
	case m.IsResponse():
		return a.answered(m, out)
	case m.Method() == acp.MethodSessionUpdate && m.HasSession():
		return a.update(m, out)
	case m.IsRequest() && m.HasSession():
		return a.request(m, out)
	}
	if root, child := a.roots[string(m.SessionRaw())]; child {
		return append(out, m.For(Two, []byte(root)))
	}
	return append(out, *m)
}

// session returns what is known of a session of the agent.
func (a *Agent) session(token string) *spoken {
	s := a.sessions[token]
	if s == nil {
		if len(a.sessions) >= maxSessions {
			for old, s := range a.sessions {
				if s.prompt == nil {
					delete(a.sessions, old)
					break
				}
			}
		}
		s = newSpoken(token)
		a.sessions[token] = s
	}
	return s
}

// answered takes the agent's answer to a request of the gateway.
func (a *Agent) answered(m *acp.Message, out []acp.Message) []acp.Message {
	q, open := a.asked[m.ID()]
	if !open {
		return append(out, *m)
	}
	delete(a.asked, m.ID())
	if m.Result() == nil {
		if s := a.sessions[q.session]; s != nil && q.method == acp.MethodSessionPrompt {
			s.prompt = nil
		}
		return append(out, *m)
	}
	switch q.method {
	case acp.MethodSessionPrompt:
		return a.session(q.session).accepted(m, out)
	case acp.MethodSessionNew, acp.MethodSessionFork:
		q.session = tokenOf(m.Result())
		fallthrough
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		return a.session(q.session).opened(m, out)
	case acp.MethodSessionSetConfigOption, acp.MethodSessionSetMode:
		s := a.session(q.session)
		options, ok := rawjson.Member(m.Result(), "configOptions")
		if !ok || options[0] != '[' {
			return append(out, *m)
		}
		s.noteOptions(options)
		result := rawjson.SetMember(m.Result(), lowerOptions(options), "configOptions")
		if q.mode {
			result = rawjson.DeleteMember(result, "configOptions")
		}
		return append(out, acp.NewResult(ownID(m), result))
	case acp.MethodSessionClose, acp.MethodSessionDelete:
		delete(a.sessions, q.session)
		for child, root := range a.roots {
			if root == q.session {
				delete(a.roots, child)
				delete(a.sessions, child)
			}
		}
	}
	return append(out, *m)
}

func tokenOf(result json.RawMessage) string {
	id, _ := rawjson.Member(result, "sessionId")
	return string(id)
}

// request takes a request of the agent.
func (a *Agent) request(m *acp.Message, out []acp.Message) []acp.Message {
	token := string(m.SessionRaw())
	root, child := a.roots[token]
	if !child {
		root = token
	}
	kept := rawjson.Object{}
	params := m.Params()
	if child {
		kept = kept.Raw("sessionId", []byte(token))
		params = rawjson.SetMember(params, []byte(root), "sessionId")
	}
	if m.Method() == acp.MethodSessionRequestPermission {
		var call json.RawMessage
		params, call = a.session(token).lowerPermission(m, params)
		for _, name := range []string{"title", "description", "subject", "options"} {
			if v, ok := rawjson.Member(m.Params(), name); ok {
				kept = kept.Raw(name, v)
			}
		}
		out = a.session(token).introduce(call, root, out)
	}
	if said := kept.End(); string(said) != "{}" {
		params = rawjson.SetMember(params, said, original...)
		return append(out, acp.NewRequest(ownID(m), m.Method(), params))
	}
	return append(out, *m)
}
