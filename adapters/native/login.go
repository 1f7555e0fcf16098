package native

import (
	"encoding/json"
	"fmt"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// noLogin finds errors about credentials among those that agents give other codes.
var noLogin = pattern.New(`(?i)^401\b|(http|status|code|error)[^a-z0-9]{0,3}401\b|unauthori[sz]ed|unauthenticated|authentication (is )?(required|failed)|not logged in|log ?in required|(invalid|incorrect|missing) api[ _-]?key|api[ _-]?key (is |was )?(not valid|invalid|missing|required)`)

// login gives errors about credentials the code that the protocol has for them, and
// says what helps. Agents name neither the variable nor the command.
type login struct {
	name string
	info adapters.Login
}

// explain returns the response that says what helps, and false for a response that is
// about something else.
func (l login) explain(m *acp.Message) (acp.Message, bool) {
	e := m.Err()
	if e == nil {
		return acp.Message{}, false
	}
	details := rawjson.MemberString(e.Data, "details")
	if e.Code != acp.CodeAuthRequired && e.Code != 401 && !noLogin.MatchString(e.Message) && !noLogin.MatchString(details) {
		return acp.Message{}, false
	}
	if rawjson.MemberString(e.Data, "remedy") != "" {
		return acp.Message{}, false
	}
	// Some agents pass on the provider's JSON.
	reason := e.Message
	if said := rawjson.MemberString(json.RawMessage(reason), "error", "message"); said != "" {
		reason = said
	}
	if e.Code == acp.CodeInternal && details != "" {
		reason = details
	}
	remedy := l.remedy()
	data := map[string]any{"reason": reason, "remedy": remedy}
	if len(l.info.Env) > 0 {
		data["variables"] = l.info.Env
	}
	if methods, ok := rawjson.Member(e.Data, "authMethods"); ok {
		data["authMethods"] = methods
	}
	said := acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", strings.TrimRight(reason, ". \n"), remedy)
	return acp.NewError(acp.ID(strings.Clone(string(m.ID()))), said.WithData(data)), true
}

// remedy says what a person can do.
func (l login) remedy() string {
	log := fmt.Sprintf("log in with %s in a terminal on the agent's machine", l.name)
	if len(l.info.Env) == 0 {
		return log
	}
	return fmt.Sprintf("set %s in the agent's environment, give the session credentials, or %s", strings.Join(l.info.Env, " or "), log)
}
