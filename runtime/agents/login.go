package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/credentials"
)

// LoggedIn remembers what a client authenticated with, and the agent has answered with result: a process that is
// started later must be told again, and nobody may be there to do it. A login that was only begun, which goes on in a
// browser, is not begun again: its end is in the agent's own files.
func (a *Agent) LoggedIn(method string, params, result json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch method {
	case acp.MethodAuthenticate:
		if !loginBegun(result) {
			a.login = params
		}
	case acp.MethodLogout:
		a.login = nil
	}
}

// loginBegun reports whether the result of authenticate says where to go on with the login.
func loginBegun(result json.RawMessage) bool {
	_, begun := rawjson.Member(result, "_meta", acp.MetaKey, "login")
	return begun
}

// loginFor returns the params of the authenticate that a new process is sent before anything else, nil for none: what
// the agent needs to be told of a session's own key, else what a client did last, else what the agent needs to be told of
// the gateway's key.
func (a *Agent) loginFor(n *Needs) json.RawMessage {
	l := a.adapter.Info().Login
	key := n.Credentials.APIKey != "" || slices.ContainsFunc(n.Env, func(kv string) bool {
		name, v, _ := strings.Cut(kv, "=")
		return v != "" && slices.Contains(l.Env, name)
	})
	if !key && n.Credentials.OAuthToken == "" {
		a.mu.Lock()
		last := a.login
		a.mu.Unlock()
		if last != nil {
			return last
		}
		key = slices.ContainsFunc(l.Env, func(name string) bool { return os.Getenv(name) != "" })
	}
	if !key || l.Method == "" {
		return nil
	}
	return rawjson.Object{}.String("methodId", l.Method).End()
}

// loginFound reports whether there are credentials where the agent looks, and
// have not expired as far as that can be seen.
func loginFound(agent string, l adapters.Login) bool {
	for _, name := range l.Env {
		if os.Getenv(name) != "" {
			return true
		}
	}
	if credentials.Known(agent) {
		return credentials.Available(agent, "")
	}
	for _, path := range l.Files {
		if rest, below := strings.CutPrefix(path, "~/"); below {
			home, err := os.UserHomeDir()
			if err != nil {
				continue
			}
			path = filepath.Join(home, rest)
		}
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return true
		}
	}
	return false
}

// LearnAuth takes from an agent's answer what it says of its login. Of one that was only begun the end is heard later.
func (a *Agent) LearnAuth(method string, res *acp.Message) {
	state, err := AuthState(""), res.Err()
	switch {
	case err != nil && err.Code == acp.CodeAuthRequired:
		state = AuthRequired
	case err == nil && (method == acp.MethodSessionPrompt || method == acp.MethodAuthenticate && !loginBegun(res.Result())):
		state = AuthAuthenticated
	case err == nil && method == acp.MethodLogout:
		state = AuthUnknown
	default:
		return
	}
	a.setAuth(state)
}

// hearAuth takes from what a process says unasked how the login of its agent is.
func (p *Process) hearAuth(m *acp.Message) {
	state := AuthState("")
	switch schema.AuthState(rawjson.MemberString(m.Params(), "state")) {
	case schema.AuthStateAuthenticated:
		state = AuthAuthenticated
	case schema.AuthStateUnauthenticated:
		state = AuthRequired
	}
	if state != "" && !p.OwnLogin() {
		p.agent.setAuth(state)
	}
}

func (a *Agent) setAuth(state AuthState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.auth = state
}
