package codex

import (
	"context"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The ways to log in.
const (
	methodKey     = "openai-api-key"
	methodChatGPT = "chatgpt"
	methodDevice  = "chatgpt-device-code"
)

// Variables that hold a key. The app-server reads neither by itself.
const (
	varOpenAI = "OPENAI_API_KEY"
	varCodex  = "CODEX_API_KEY"
)

const remedy = "set OPENAI_API_KEY, give the session credentials, authenticate with chatgpt or chatgpt-device-code, or run `codex login` in a terminal on the agent's machine"

func authRequired(reason string) *acp.Error {
	return acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", reason, remedy).WithData(map[string]any{
		"reason": reason, "remedy": remedy, "authMethods": []string{methodKey, methodChatGPT, methodDevice},
	})
}

func authMethods() []schema.AuthMethod {
	about := func(s string) *string { return &s }
	return []schema.AuthMethod{
		{Agent: &schema.AuthMethodAgent{
			ID: methodKey, Name: "OpenAI API key",
			Description: about("Set OPENAI_API_KEY in the agent's environment, or send credentials with the session. The key stays in memory."),
		}},
		{Agent: &schema.AuthMethodAgent{
			ID: methodChatGPT, Name: "ChatGPT",
			Description: about("The result's _meta has an address to open in a browser on the agent's machine."),
		}},
		{Agent: &schema.AuthMethodAgent{
			ID: methodDevice, Name: "ChatGPT, by a code",
			Description: about("The result's _meta has an address to open on any machine, and the code to enter there."),
		}},
	}
}

// account is what codex says of its credentials.
type account struct {
	Account *struct {
		Type  string `json:"type"`
		Email string `json:"email"`
		Plan  string `json:"planType"`
	} `json:"account"`
	Needed bool `json:"requiresOpenaiAuth"`
}

func (a *account) missing() bool { return a.Account == nil && a.Needed }

// state is the account's state in the gateway's words.
func (a *account) state() string {
	if a.missing() {
		return "required"
	}
	return "authenticated"
}

// attempts is how many attempts must fail before the credentials count as bad.
// Those that codex can renew by itself get a second chance.
func (a *account) attempts() int {
	if a.Account != nil && a.Account.Type == "chatgpt" {
		return 2
	}
	return 1
}

// environ is the environment of the program.
func (a *agent) environ() []string {
	if a.o.Credentials.APIKey != "" {
		return bridge.Environ(a.o, []string{varOpenAI, varCodex})
	}
	return bridge.Environ(a.o, nil)
}

// key is the key that the program is given, which it keeps in memory. A login on
// disk goes before one of the environment.
func (a *agent) key(env []string) string {
	if k := a.o.Credentials.APIKey; k != "" {
		return k
	}
	k := bridge.FirstOf(bridge.Lookup(env, varCodex), bridge.Lookup(env, varOpenAI))
	if _, err := os.Stat(filepath.Join(home(env), "auth.json")); err == nil {
		return ""
	}
	return k
}

// Authenticate begins a login. That of ChatGPT goes on in a browser: its end is
// an auth/status_update.
func (a *agent) Authenticate(ctx context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	s, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	kind := "chatgpt"
	switch r.MethodID {
	case methodKey:
		now, err := s.readAccount(ctx)
		if err != nil {
			return nil, err
		}
		if now.missing() {
			return nil, authRequired("there is no API key")
		}
		return nil, nil
	case methodChatGPT:
	case methodDevice:
		kind = "chatgptDeviceCode"
	default:
		return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q: it is %s, %s or %s", r.MethodID, methodKey, methodChatGPT, methodDevice)
	}
	var login struct {
		ID   string `json:"loginId,omitempty"`
		URL  string `json:"authUrl,omitempty"`
		Page string `json:"verificationUrl,omitempty"`
		Code string `json:"userCode,omitempty"`
	}
	if err := s.call(ctx, "account/login/start", map[string]string{"type": kind}, &login); err != nil {
		return nil, acp.Errorf(acp.CodeInternal, "codex cannot begin the login: %v", err)
	}
	return &schema.AuthenticateResponse{Meta: bridge.Meta(map[string]any{"login": login})}, nil
}

// Logout forgets the credentials.
func (a *agent) Logout(ctx context.Context, _ *schema.LogoutRequest) (*schema.LogoutResponse, error) {
	s, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, "account/logout", nil, nil); err != nil {
		return nil, acp.Errorf(acp.CodeInternal, "codex cannot log out: %v", err)
	}
	return nil, nil
}

func (s *server) readAccount(ctx context.Context) (account, error) {
	var now account
	if err := s.call(ctx, "account/read", struct{}{}, &now); err != nil {
		return now, err
	}
	s.a.mu.Lock()
	s.account = now
	s.a.mu.Unlock()
	return now, nil
}

func statusOf(now *account) *schema.AuthStatusResponse {
	if now.missing() {
		return &schema.AuthStatusResponse{State: schema.AuthStateUnauthenticated}
	}
	out := &schema.AuthStatusResponse{State: schema.AuthStateAuthenticated}
	if own := now.Account; own != nil {
		one := schema.AuthAccount{Label: bridge.FirstOf(own.Email, own.Type, ID), Active: new(true)}
		if own.Email != "" {
			one.Email = &own.Email
		}
		out.Accounts = []schema.AuthAccount{one}
	}
	return out
}

// authChanged tells the client of a login, one that failed as well, or a logout.
func (s *server) authChanged(e *event) {
	ctx := context.Background()
	note := &schema.AuthStatusUpdateNotification{State: schema.AuthStateUnknown}
	login := map[string]any{"loginId": e.LoginID, "success": e.Success}
	if why := bridge.Text(e.Error); why != "" {
		login["error"] = why
	}
	if now, err := s.readAccount(ctx); err != nil {
		login["error"] = err.Error()
	} else {
		st := statusOf(&now)
		note.State, note.Accounts = st.State, st.Accounts
	}
	if e.Method == "account/login/completed" {
		note.Meta = bridge.Meta(map[string]any{"login": login})
	}
	if err := s.a.peer.Notify(ctx, acp.MethodAuthStatusUpdate, note); err != nil {
		s.log.Debug("report the login", "err", err)
	}
}
