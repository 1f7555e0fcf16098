package amp

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The ways to log in.
const (
	methodKey   = "amp-api-key"
	methodLogin = "amp-login"
)

const (
	varKey = "AMP_API_KEY"
	varURL = "AMP_URL"
)

const remedy = "set AMP_API_KEY (an access token of ampcode.com/settings), give the session credentials, or run `amp login` in a terminal on the agent's machine"

func authRequired(reason string) *acp.Error {
	return acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", reason, remedy).WithData(map[string]any{
		"reason": reason, "remedy": remedy, "authMethods": []string{methodKey, methodLogin},
	})
}

// authMethods lists the ways to log in. Only a client that can run a terminal
// is offered one.
func authMethods(c *schema.ClientCapabilities, program string) []schema.AuthMethod {
	about := "Set AMP_API_KEY in the agent's environment, or send credentials with the session."
	key := &schema.AuthMethodAgent{ID: methodKey, Name: "Amp access token", Description: &about}
	what := "Run `amp login` in a terminal on the agent's machine."
	command := bridge.Meta(map[string]any{"command": []string{program, "login"}})
	if c != nil && c.Auth != nil && c.Auth.Terminal {
		return []schema.AuthMethod{{Agent: key}, {Terminal: &schema.AuthMethodTerminal{
			ID: methodLogin, Name: "Amp login", Description: &what, Args: []string{"login"}, Meta: command,
		}}}
	}
	return []schema.AuthMethod{{Agent: key}, {Agent: &schema.AuthMethodAgent{ID: methodLogin, Name: "Amp login", Description: &what, Meta: command}}}
}

// Authenticate checks that there is a key, or what a login leaves in a file. A
// login that is kept by the system's keyring is found only by a start.
func (a *agent) Authenticate(_ context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	switch r.MethodID {
	case methodKey:
		if bridge.Lookup(a.environ(), varKey) == "" {
			return nil, authRequired("there is no access token")
		}
	case methodLogin:
		if !a.loggedIn() {
			return nil, authRequired("nobody is logged in")
		}
	default:
		return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q: it is %s or %s", r.MethodID, methodKey, methodLogin)
	}
	return nil, nil
}

// loggedIn reports whether a login has left its file.
func (a *agent) loggedIn() bool {
	b, err := os.ReadFile(filepath.Join(bridge.DataDir(a.environ(), ID), "secrets.json"))
	if err != nil {
		return false
	}
	var secrets map[string]json.RawMessage
	return json.Unmarshal(b, &secrets) == nil && len(secrets) > 0
}

// environ is the environment of the program.
func (a *agent) environ() []string {
	var drop, set []string
	if c := a.o.Credentials; c.APIKey != "" {
		drop, set = append(drop, varKey), append(set, varKey+"="+c.APIKey)
	}
	if c := a.o.Credentials; c.BaseURL != "" {
		drop, set = append(drop, varURL), append(set, varURL+"="+c.BaseURL)
	}
	return bridge.Environ(a.o, drop, append(set, "AMP_SKIP_UPDATE_CHECK=1", "NO_COLOR=1")...)
}
