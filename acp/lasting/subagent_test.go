package lasting

import (
	"fmt"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// of sends the client a message of a subagent of session s, which has a place in its log.
func (w *wire) of(format string, seq int, args ...any) string {
	f := fmt.Sprintf(format, args...)
	f = f[:len(f)-2] + fmt.Sprintf(`,"_meta":{"sandboxagent.dev":{"seq":%d,"rootSessionId":"s"}}}}`, seq)
	w.toClient <- acp.MustParse([]byte(f))
	return f
}

// What a subagent asks is shown once, and what it says comes once, also when it was announced before the client came.
// The answer goes to the request as the new connection knows it.
func TestConn_SubagentMeetsABreak(t *testing.T) {
	const (
		ask  = `{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"c","toolCall":{}}}`
		says = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"c","update":{"n":%d}}}`
	)
	for name, hello := range map[string]string{
		"version 1":                      `{"protocolVersion":1}`,
		"version 1 that knows subagents": `{"protocolVersion":1,"clientCapabilities":{"subagents":{}}}`,
		"version 2":                      `{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pair{t: t, one: newWire(), two: newWire()}
				p.c = New(Options{Dial: dials(p.one, p.two)})
				defer p.c.Close()
				welcome := func(w *wire) {
					m := w.takes(t, acp.MethodInitialize)
					v, _ := rawjson.Member(m.Params(), "protocolVersion")
					w.says(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":%s}}`, v)
				}
				p.sends(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`, hello)
				welcome(p.one)
				reads(t, p.c)
				p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
				p.got("%s", p.one.of(ask, 5, 7)) // it was open before
				p.one.replies(t, acp.MethodSessionResume, `{"_meta":{"sandboxagent.dev":{"seq":8}}}`)
				reads(t, p.c)
				p.got("%s", p.one.of(says, 9, 1))
				p.one.breakRead()
				p.one.breakWrite()
				welcome(p.two)
				p.two.of(ask, 5, 8)
				resume := p.two.reattached(t, `[{"requestId":8,"seq":5}]`)
				if after, _ := uintOf(resume.Meta(), "after"); after == 8 {
					p.two.of(says, 9, 1)
				} else if after != 9 {
					t.Errorf("it goes on behind %d", after)
				}
				p.got("%s", p.two.of(says, 10, 2))
				p.sends(`{"jsonrpc":"2.0","id":7,"result":{}}`)
				if m := p.two.takes(t, ""); frame(m) != `{"jsonrpc":"2.0","id":8,"result":{}}` {
					t.Errorf("the gateway is answered %s", m.Frame())
				}
				p.quiet(p.two)
			})
		})
	}
}

// An event of a subagent is several frames in version 1, too, for a client that knows subagents.
func TestConn_SubagentInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		defer p.c.Close()
		p.sends(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"subagents":{}}}}`)
		hello := p.one.takes(t, acp.MethodInitialize)
		p.one.toClient <- acp.NewResult(hello.ID(), []byte(`{"protocolVersion":1}`))
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.replies(t, acp.MethodSessionLoad, `{}`)
		reads(t, p.c)
		p.got("%s", p.one.tells("s", 5, `{"sessionUpdate":"tool_call","toolCallId":"t"}`))
		p.got("%s", p.one.tells("s", 5, `{"sessionUpdate":"subagent_update","sessionId":"c"}`))
		p.one.breakRead()
		p.one.breakWrite()
		hello = p.two.takes(t, acp.MethodInitialize)
		p.two.toClient <- acp.NewResult(hello.ID(), []byte(`{"protocolVersion":1}`))
		resume := p.two.reattached(t, `[]`)
		if after, _ := uintOf(resume.Meta(), "after"); after != 4 {
			t.Errorf("it goes on behind %d, and not all of 5 may have come", after)
		}
		p.two.tells("s", 5, `{"sessionUpdate":"tool_call","toolCallId":"t"}`)
		p.two.tells("s", 5, `{"sessionUpdate":"subagent_update","sessionId":"c"}`)
		p.got("%s", p.two.tells("s", 5, `{"sessionUpdate":"session_message"}`))
		p.quiet(p.two)
	})
}
