package pi

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// methodKey is the way to log in.
const methodKey = "provider-api-key"

// providers are the providers whose keys are known by how they begin; the first
// that fits counts. The last one has any.
var providers = []struct{ prefix, id, env string }{
	{"sk-ant-oat", "anthropic", "ANTHROPIC_OAUTH_TOKEN"},
	{"sk-ant-", "anthropic", "ANTHROPIC_API_KEY"},
	{"sk-or-", "openrouter", "OPENROUTER_API_KEY"},
	{"sk-", "openai", "OPENAI_API_KEY"},
	{"AIza", "google", "GEMINI_API_KEY"},
	{"gsk_", "groq", "GROQ_API_KEY"},
	{"xai-", "xai", "XAI_API_KEY"},
	{"", "anthropic", "ANTHROPIC_API_KEY"},
}

func keyVars() []string {
	var out []string
	for _, p := range providers {
		if !slices.Contains(out, p.env) {
			out = append(out, p.env)
		}
	}
	return append(out, "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "CEREBRAS_API_KEY", "AI_GATEWAY_API_KEY", "ZAI_API_KEY", "OPENCODE_API_KEY")
}

const remedy = "run `pi` in a terminal on the agent's machine and /login there, set a provider's variable such as ANTHROPIC_API_KEY, or give the session credentials"

func authRequired(reason string) *acp.Error {
	return acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", reason, remedy).WithData(map[string]any{
		"reason": reason, "remedy": remedy, "authMethods": []string{methodKey},
	})
}

func authMethods() []schema.AuthMethod {
	about := "Set the variable of a model provider in the agent's environment, send credentials with the session, or run `pi` in a terminal and /login there."
	return []schema.AuthMethod{{Agent: &schema.AuthMethodAgent{ID: methodKey, Name: "API key of a model provider", Description: &about}}}
}

// provider is the provider that the session's own credentials are for.
func (a *agent) provider() (id, env, key string) {
	c := a.o.Credentials
	key = bridge.FirstOf(c.APIKey, c.OAuthToken)
	i := slices.IndexFunc(providers, func(p struct{ prefix, id, env string }) bool { return strings.HasPrefix(key, p.prefix) })
	return providers[i].id, providers[i].env, key
}

// environ is the environment of a process.
func (a *agent) environ() []string {
	set := []string{"PI_SKIP_VERSION_CHECK=1"}
	var drop []string
	if _, env, key := a.provider(); key != "" {
		drop = keyVars()
		set = append(set, env+"="+key)
	}
	return bridge.Environ(a.o, drop, set...)
}

// keys are the variables with the session's own credentials, by provider.
func (a *agent) keys() map[string]string {
	id, env, key := a.provider()
	if key == "" {
		return map[string]string{}
	}
	return map[string]string{id: env}
}

// redirected are the providers whose address the session's credentials change.
func (a *agent) redirected() map[string]any {
	out := map[string]any{}
	if url := a.o.Credentials.BaseURL; url != "" {
		id, _, _ := a.provider()
		out[id] = map[string]string{"baseUrl": url}
	}
	return out
}

// Authenticate checks that there may be credentials. Whether they are good, a
// prompt tells: Pi's own logins write the user's files, so they are left to it.
func (a *agent) Authenticate(_ context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	if r.MethodID != methodKey {
		return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q: it is %s", r.MethodID, methodKey)
	}
	env := a.environ()
	if slices.ContainsFunc(keyVars(), func(name string) bool { return bridge.Lookup(env, name) != "" }) {
		return nil, nil
	}
	for _, in := range [][]string{{"auth.json"}, {"models.json", "providers"}} {
		b, err := os.ReadFile(filepath.Join(a.files.config, in[0]))
		var some map[string]json.RawMessage
		if inner, ok := rawjson.Member(b, in[1:]...); err == nil && ok && json.Unmarshal(inner, &some) == nil && len(some) > 0 {
			return nil, nil
		}
	}
	return nil, authRequired("pi has no credentials")
}
