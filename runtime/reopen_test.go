package runtime

import (
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// A conversation that an agent has, and cannot open in this moment, is not given up for a new one.
func TestOpen_AgentCannotOpenItNow(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  adapters.Kind
		code  int64
		why   string
		said  bool // something, before
		stays bool
	}{
		"no room":                                   {adapters.Bridge, acp.CodeInternal, "why not", true, true},
		"open in a terminal":                        {adapters.Bridge, acp.CodeInvalidRequest, "why not", true, true},
		"not there any more":                        {adapters.Bridge, acp.CodeResourceNotFound, "why not", true, false},
		"nothing was said":                          {adapters.Bridge, acp.CodeInternal, "why not", false, false},
		"a bridge has a code for it":                {adapters.Bridge, acp.CodeInternal, "session not found", true, true},
		"an agent that speaks ACP":                  {adapters.Native, acp.CodeInternal, "ENOSPC: no space left on device", true, true},
		"an agent that speaks ACP, of its settings": {adapters.Native, acp.CodeInternal, "cannot open the session: model not found", true, true},
		"an agent that speaks ACP, of a login":      {adapters.Native, acp.CodeInternal, "Session not found for this login. Please sign in again", true, true},
		"an agent that speaks ACP, of a server":     {adapters.Native, acp.CodeInternal, "MCP error: Session not found", true, true},
		"an agent that speaks ACP, of a directory":  {adapters.Native, acp.CodeInternal, "The working directory of session ID does not exist", true, true},
		"an agent that speaks ACP, of a pool":       {adapters.Native, acp.CodeInternal, "unknown thread-pool", true, true},
		"an agent that speaks ACP, lost":            {adapters.Native, acp.CodeResourceNotFound, "why not", true, false},
		"an agent that speaks ACP, lost in words":   {adapters.Native, acp.CodeInternal, "Session not found: ID", true, false},
		"an agent that speaks ACP, opens none":      {adapters.Native, acp.CodeMethodNotFound, "why not", true, false},
		"an agent of the user's, lost in words":     {adapters.Custom, acp.CodeInvalidParams, `Invalid session identifier \"ID\". It was looked for in /workspace/files.`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{id: "fake", info: adapters.Info{Kind: tt.kind}, caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
			r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "")
			s := tc.session()
			if tt.said {
				id := tc.request("session/prompt", prompt(s, "remember"))
				a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
				tc.until(id)
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			r = newRuntime(t, dir, a)
			tc = connect(t, r, "")
			id := tc.request("session/prompt", prompt(s, "what?"))
			m := a.nextOf(t, "session/resume")
			m.to.send(`{"jsonrpc":"2.0","id":` + string(m.m.ID()) + `,"error":{"code":` + strconv.FormatInt(tt.code, 10) + `,"message":"` + strings.ReplaceAll(tt.why, "ID", m.m.Session()) + `","data":{"a":1}}}`)
			if !tt.stays {
				a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
				tc.until(id)
				if info, err := r.Session(s); err != nil || info.Continuity != ContinuityFresh {
					t.Errorf("continuity is %s, %v", info.Continuity, err)
				}
				return
			}
			if _, res := tc.until(id); res.Err() == nil || res.Err().Code != tt.code || !strings.Contains(res.Err().Message, "cannot open its conversation now: "+strings.ReplaceAll(tt.why, "ID", m.m.Session())) {
				t.Errorf("the prompt: %s", res.Frame())
			}
			id = tc.request("session/prompt", prompt(s, "what?"))
			again := a.nextOf(t, "session/resume")
			if again.m.Session() != m.m.Session() {
				t.Errorf("it was %s, and is %s now", m.m.Session(), again.m.Session())
			}
			a.answer(again, `{}`)
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			if info, err := r.Session(s); err != nil || info.Continuity != ContinuityNative {
				t.Errorf("continuity is %s, %v", info.Continuity, err)
			}
		})
	}
}

// Whoever wants to go on without what the agent remembers says so, when the session is made or opened.
func TestOpen_AgentMayBeginAnew(t *testing.T) {
	for name, when := range map[string]string{"as it is made": "session/new", "as it is loaded": "session/load", "as it is resumed": "session/resume"} {
		t.Run(name, func(t *testing.T) {
			const may = `,"_meta":{"sandboxagent.dev":{"beginAnew":true}}`
			meta := func(method string) string {
				if method == when {
					return may
				}
				return ""
			}
			dir := t.TempDir()
			a := &fakeAgent{id: "fake", info: adapters.Info{Kind: adapters.Bridge}, caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 64)}
			r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "")
			_, res := tc.until(tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+meta("session/new")+`}`))
			s := rawjson.MemberString(res.Result(), "sessionId")
			id := tc.request("session/prompt", prompt(s, "remember"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			r = newRuntime(t, dir, a)
			tc = connect(t, r, "")
			if when != "session/new" {
				tc.until(tc.request(when, `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]`+may+`}`))
			}
			id = tc.request("session/prompt", prompt(s, "what?"))
			m := a.nextOf(t, "session/resume")
			m.to.send(`{"jsonrpc":"2.0","id":` + string(m.m.ID()) + `,"error":{"code":-32603,"message":"why not"}}`)
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			if _, res := tc.until(id); res.Err() != nil {
				t.Errorf("the prompt: %s", res.Frame())
			}
			if info, err := r.Session(s); err != nil || info.Continuity != ContinuityFresh {
				t.Errorf("continuity is %s, %v", info.Continuity, err)
			}
		})
	}
}

// An agent that opens a session anew and does not say with which settings is told what was chosen: it may have begun with its own.
func TestReopen_AgentDoesNotSayHowItIs(t *testing.T) {
	for name, tt := range map[string]struct{ asked, method, value string }{
		"reads only":           {`"permissionMode":"readonly"`, "session/set_mode", "plan"},
		"a model":              {`"model":"small"`, "session/set_config_option", "small"},
		"the model that it is": {`"model":"big"`, "session/set_config_option", "big"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc, id := offering(t, adapters.Info{}, own(tt.asked))
			if tt.value != "big" {
				a.answer(a.nextOf(t, tt.method), `{}`)
			}
			_, res := tc.until(acp.ID(id))
			tc.ends(a)
			_, opened := tc.begins(t, a, rawjson.MemberString(res.Result(), "sessionId"))
			a.answer(opened, `{}`)
			again := a.nextOf(t, tt.method)
			if got := rawjson.MemberString(again.m.Params(), "modeId") + rawjson.MemberString(again.m.Params(), "value"); got != tt.value {
				t.Errorf("the agent is told %q, want %q", got, tt.value)
			}
			a.answer(again, `{}`)
			a.nextOf(t, "session/prompt")
		})
	}
}
