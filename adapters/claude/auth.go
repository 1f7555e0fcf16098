package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The ways to log in.
const (
	methodKey   = "anthropic-api-key"
	methodLogin = "claude-login"
)

const remedy = "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, give the session credentials, or run `claude auth login` in a terminal on the agent's machine"

// Variables that hold credentials. A session's own replace all of them.
const (
	varKey   = "ANTHROPIC_API_KEY"
	varToken = "ANTHROPIC_AUTH_TOKEN"
	varOAuth = "CLAUDE_CODE_OAUTH_TOKEN"
	varURL   = "ANTHROPIC_BASE_URL"
)

func authRequired(reason string) *acp.Error {
	return acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", reason, remedy).WithData(map[string]any{
		"reason": reason, "remedy": remedy, "authMethods": []string{methodKey, methodLogin},
	})
}

// authMethods lists the ways to log in. Only a client that can run a terminal
// is offered one.
func authMethods(c *schema.ClientCapabilities, program string) []schema.AuthMethod {
	about := "Set ANTHROPIC_API_KEY in the agent's environment, or send credentials with the session."
	key := &schema.AuthMethodAgent{ID: methodKey, Name: "Anthropic API key", Description: &about}
	what := "Run `claude auth login` in a terminal on the agent's machine."
	command := bridge.Meta(map[string]any{"command": []string{program, "auth", "login"}})
	if c != nil && c.Auth != nil && c.Auth.Terminal {
		return []schema.AuthMethod{{Agent: key}, {Terminal: &schema.AuthMethodTerminal{
			ID: methodLogin, Name: "Claude login", Description: &what, Args: []string{"auth", "login"}, Meta: command,
		}}}
	}
	return []schema.AuthMethod{{Agent: key}, {Agent: &schema.AuthMethodAgent{ID: methodLogin, Name: "Claude login", Description: &what, Meta: command}}}
}

// account is what the program says of its credentials.
type account struct {
	TokenSource  string `json:"tokenSource"`
	APIKeySource string `json:"apiKeySource"`
	Provider     string `json:"apiProvider"`
	Email        string `json:"email"`
	Organization string `json:"organization"`
	Subscription string `json:"subscriptionType"`
}

// missing reports whether there are no credentials at all.
func (a *account) missing() bool {
	none := func(s string) bool { return s == "" || s == "none" }
	return none(a.TokenSource) && none(a.APIKeySource) && (a.Provider == "firstParty" || a.Provider == "")
}

// attempts is how many attempts must fail before the credentials count as bad.
// Those that the program can renew by itself get a second chance.
func (a *account) attempts() int {
	switch a.TokenSource {
	case "", "none", varToken, varOAuth:
		if a.APIKeySource != "apiKeyHelper" {
			return 1
		}
	}
	return 2
}

// state is the account for a session's _meta. It holds no secret.
func (a *account) state() map[string]string {
	out := map[string]string{"state": string(schema.AuthStateAuthenticated)}
	if a.missing() {
		out["state"] = string(schema.AuthStateUnauthenticated)
	}
	for k, v := range map[string]string{
		"apiKeySource": a.APIKeySource, "tokenSource": a.TokenSource, "provider": a.Provider,
		"email": a.Email, "organization": a.Organization, "subscription": a.Subscription,
	} {
		if v != "" && v != "none" {
			out[k] = v
		}
	}
	return out
}

// statusBound limits how long the program may take to say whether it is logged
// in.
const statusBound = 15 * time.Second

// authStatus asks the program whether it has credentials. It asks no network.
func (a *agent) authStatus(ctx context.Context) (*schema.AuthStatusResponse, error) {
	ctx, cancel := bridge.Within(ctx, statusBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.o.Program.Path, append(a.o.Program.Args, "auth", "status")...)
	cmd.Env = a.environ()
	cmd.WaitDelay = time.Second
	raw, err := cmd.Output() // logged out is an exit status as well
	var s struct {
		LoggedIn bool   `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Email    string `json:"email"`
		Org      string `json:"orgName"`
	}
	if jsonErr := json.Unmarshal(raw, &s); jsonErr != nil {
		if err == nil {
			err = jsonErr
		}
		return nil, fmt.Errorf("ask claude for its login: %w", err)
	}
	if !s.LoggedIn {
		return &schema.AuthStatusResponse{State: schema.AuthStateUnauthenticated}, nil
	}
	one := schema.AuthAccount{Label: bridge.FirstOf(s.Email, s.Method, "claude"), Active: new(true)}
	if s.Email != "" {
		one.Email = &s.Email
	}
	if s.Org != "" {
		one.Organization = &s.Org
	}
	return &schema.AuthStatusResponse{State: schema.AuthStateAuthenticated, Accounts: []schema.AuthAccount{one}}, nil
}

// Authenticate checks that the chosen way to log in was gone. Credentials come
// with the session or the environment, a login is made in a terminal.
func (a *agent) Authenticate(ctx context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	switch r.MethodID {
	case methodKey:
		env := a.environ()
		if bridge.Lookup(env, varKey) == "" && bridge.Lookup(env, varToken) == "" && bridge.Lookup(env, varOAuth) == "" {
			return nil, authRequired("there is no API key")
		}
		return nil, nil
	case methodLogin:
		s, err := a.authStatus(ctx)
		if err != nil {
			return nil, err
		}
		if s.State != schema.AuthStateAuthenticated {
			return nil, authRequired("nobody is logged in")
		}
		return nil, nil
	}
	return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q: it is %s or %s", r.MethodID, methodKey, methodLogin)
}

// environ is the environment of the program.
func (a *agent) environ() []string {
	var drop []string
	set := []string{"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1"} // see rests
	if c := a.o.Credentials; c.APIKey != "" || c.OAuthToken != "" {
		drop = []string{varKey, varToken, varOAuth}
		if c.APIKey != "" {
			set = append(set, varKey+"="+c.APIKey)
		}
		if c.OAuthToken != "" {
			set = append(set, varOAuth+"="+c.OAuthToken)
		}
	}
	if url := a.o.Credentials.BaseURL; url != "" {
		drop = append(drop, varURL, "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
		set = append(set, varURL+"="+url)
	}
	return bridge.Environ(a.o, drop, set...)
}
