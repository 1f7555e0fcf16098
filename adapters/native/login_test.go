package native

import (
	"encoding/json"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// TestLogin has errors as agents were seen to give them.
func TestLogin(t *testing.T) {
	for name, c := range map[string]struct {
		err    string
		reason string // "" for an error about something else
	}{
		"Gemini without a key":     {`{"code":-32000,"message":"Gemini API key is missing or not configured."}`, "Gemini API key is missing or not configured."},
		"Gemini with a wrong key":  {`{"code":401,"message":"{\"error\":{\"code\":401,\"message\":\"API key not valid\",\"status\":\"UNAUTHENTICATED\"}}"}`, "API key not valid"},
		"Qwen without a key":       {`{"code":-32000,"message":"Authentication required: Use Qwen Code CLI to authenticate first.","data":{"authMethods":[{"id":"openai"}]}}`, "Authentication required: Use Qwen Code CLI to authenticate first."},
		"Qwen with a wrong key":    {`{"code":-32603,"message":"Internal error","data":{"details":"401 Incorrect API key"}}`, "401 Incorrect API key"},
		"Copilot without a login":  {`{"code":-32000,"message":"Authentication required"}`, "Authentication required"},
		"says what helps already":  {`{"code":-32000,"message":"no","data":{"remedy":"do this"}}`, ""},
		"another number":           {`{"code":-32603,"message":"line 401 of the file is empty"}`, ""},
		"another error of the API": {`{"code":-32603,"message":"Internal error","data":{"details":"429 too many requests"}}`, ""},
		"a wrong parameter":        {`{"code":-32602,"message":"cwd is missing"}`, ""},
	} {
		frame := `{"jsonrpc":"2.0","id":"x-1","error":` + c.err + `}`
		conn := mend(newScript(frame), nil)
		conn.login = login{"the agent", adapters.Login{Env: []string{"ONE_API_KEY", "OTHER_API_KEY"}}}
		m, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := m.Err()
		if c.reason == "" {
			if string(m.Frame()) != frame {
				t.Errorf("%s: %s", name, m.Frame())
			}
			continue
		}
		if string(m.ID()) != `"x-1"` || e.Code != acp.CodeAuthRequired || rawjson.MemberString(e.Data, "reason") != c.reason {
			t.Errorf("%s: %s", name, m.Frame())
		}
		for _, helps := range []string{e.Message, rawjson.MemberString(e.Data, "remedy")} {
			if !strings.Contains(helps, "ONE_API_KEY or OTHER_API_KEY") || !strings.Contains(helps, "log in with the agent") {
				t.Errorf("%s: %q does not say what helps", name, helps)
			}
		}
		if methods, _ := rawjson.Member(e.Data, "authMethods"); strings.Contains(c.err, "authMethods") && !json.Valid(methods) {
			t.Errorf("%s: without its methods: %s", name, e.Data)
		}
	}
}
