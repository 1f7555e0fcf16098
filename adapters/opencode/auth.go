package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// user is the name that the server wants with the password.
const user = "opencode"

// kind is what a process is for.
type kind string

// The kinds of processes.
const (
	asConfigured kind = ""     // the user's rules about permissions
	asksCommands kind = "asks" // commands ask first, those of subagents too
)

// methodKey is the way to log in.
const methodKey = "provider-api-key"

// providers are the providers whose keys are known by how they begin; the first
// that fits counts. The last one has any.
var providers = []struct{ prefix, id, env string }{
	{"sk-ant-", "anthropic", "ANTHROPIC_API_KEY"},
	{"sk-or-", "openrouter", "OPENROUTER_API_KEY"},
	{"sk-", "openai", "OPENAI_API_KEY"},
	{"AIza", "google", "GOOGLE_GENERATIVE_AI_API_KEY"},
	{"gsk_", "groq", "GROQ_API_KEY"},
	{"xai-", "xai", "XAI_API_KEY"},
	{"", "opencode", "OPENCODE_API_KEY"},
}

func keyVars() []string {
	var out []string
	for _, p := range providers {
		out = append(out, p.env)
	}
	return out
}

const remedy = "run `opencode auth login` in a terminal on the agent's machine, set a provider's variable such as ANTHROPIC_API_KEY, or give the session credentials"

func authRequired(reason string) *acp.Error {
	return acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", reason, remedy).WithData(map[string]any{
		"reason": reason, "remedy": remedy, "authMethods": []string{methodKey},
	})
}

func authMethods() []schema.AuthMethod {
	about := "Set the variable of a model provider in the agent's environment, send credentials with the session, or run `opencode auth login` in a terminal."
	return []schema.AuthMethod{{Agent: &schema.AuthMethodAgent{ID: methodKey, Name: "API key of a model provider", Description: &about}}}
}

// environ is the environment of a process. Its configuration goes there, where
// it is merged over the user's files, and so do a session's own credentials. open
// says why commands can see what is hidden from them; nil when they cannot.
func (a *agent) environ(ctx context.Context, k kind, password string) (env []string, open, err error) {
	own := []string{"OPENCODE_SERVER_PASSWORD=" + password, "OPENCODE_SERVER_USERNAME=" + user, "OPENCODE_DISABLE_AUTOUPDATE=1"}
	var drop []string
	config := map[string]any{}
	c := a.o.Credentials
	if key := bridge.FirstOf(c.APIKey, c.OAuthToken); key != "" || c.BaseURL != "" {
		i := slices.IndexFunc(providers, func(p struct{ prefix, id, env string }) bool { return strings.HasPrefix(key, p.prefix) })
		id := providers[i].id
		if key != "" {
			drop = append(keyVars(), "OPENCODE_AUTH_CONTENT")
			content, err := schema.Encode(map[string]any{id: map[string]string{"type": "api", "key": key}})
			if err != nil {
				return nil, nil, fmt.Errorf("encode the credentials: %w", err)
			}
			own = append(own, "OPENCODE_AUTH_CONTENT="+string(content))
		}
		if c.BaseURL != "" {
			config["provider"] = map[string]any{id: map[string]any{"options": map[string]string{"baseURL": c.BaseURL}}}
		}
	}
	env = bridge.Environ(a.o, drop)
	shell, set, open := a.veil(ctx, env)
	if open == nil {
		// The setting goes before the variable, and the user may have it.
		own = append(append(own, "SHELL="+shell), set...)
		config["shell"] = shell
	}
	if k == asksCommands {
		rules, err := merged(bridge.Lookup(env, "OPENCODE_PERMISSION"), map[string]any{"bash": "ask"})
		if err != nil {
			return nil, nil, fmt.Errorf("OPENCODE_PERMISSION: %w", err)
		}
		own = append(own, "OPENCODE_PERMISSION="+rules)
	}
	if len(config) > 0 {
		all, err := merged(bridge.Lookup(env, "OPENCODE_CONFIG_CONTENT"), config)
		if err != nil {
			return nil, nil, fmt.Errorf("OPENCODE_CONFIG_CONTENT: %w", err)
		}
		own = append(own, "OPENCODE_CONFIG_CONTENT="+all)
	}
	return append(env, own...), open, nil
}

// merged adds members to a JSON object in a variable.
func merged(was string, more map[string]any) (string, error) {
	all := map[string]any{}
	if was != "" {
		if err := json.Unmarshal([]byte(was), &all); err != nil {
			return "", fmt.Errorf("it is in the environment and no JSON object, so nothing can be added to it: %w", err)
		}
	}
	merge(all, more)
	b, err := schema.Encode(all)
	return string(b), err
}

func merge(into, more map[string]any) {
	for name, v := range more {
		inner, both := into[name].(map[string]any)
		if next, ok := v.(map[string]any); ok && both {
			inner = maps.Clone(inner)
			merge(inner, next)
			into[name] = inner
			continue
		}
		into[name] = v
	}
}

// Authenticate checks that there is a provider to talk to: OpenCode's own logins
// write the user's files, so they are left to its command line.
func (a *agent) Authenticate(ctx context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	if r.MethodID != methodKey {
		return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q: it is %s", r.MethodID, methodKey)
	}
	srv, done, err := a.use(ctx, asConfigured)
	if err != nil {
		return nil, err
	}
	defer done()
	var list providerList
	if err := srv.call(ctx, "GET", "/config/providers", nil, &list); err != nil {
		return nil, err
	}
	if len(list.Providers) == 0 {
		return nil, authRequired("opencode has no provider with credentials")
	}
	return nil, nil
}
