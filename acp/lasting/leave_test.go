package lasting

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

const leaves = `{"jsonrpc":"2.0","id":8,"method":%q,"params":{"sessionId":"s"}}`

// A prompt behind a request to close its session is refused, and opens nothing: the session is left alone on the next connection.
func TestConn_PromptsBehindAClose(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		const refused = `{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"it is closed","data":{"type":"urn:sandbox-agent:error:not_found"}}}`
		p.sends(leaves, acp.MethodSessionClose)
		p.sends(prompt)
		p.one.replies(t, acp.MethodSessionClose, `{}`)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.one.says(refused)
		p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		p.got(refused)
		p.breaks()
		p.quiet(p.two)
	})
}

// A prompt behind a request to detach from its session attaches to that anew. What is refused behind it changes nothing: its turn goes on, also
// with the next connection.
func TestConn_PromptsAndLoadsBehindADetach(t *testing.T) {
	const refused = `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"no","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`
	behindADetach := func(t *testing.T, p pair) {
		p.sends(leaves, methodDetach)
		p.sends(prompt)
		p.sends(reload)
		p.one.replies(t, methodDetach, `{}`)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
	}
	t.Run("version 1", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			behindADetach(t, p)
			p.one.says(update, 5)
			p.got(update, 5)
			p.one.takes(t, acp.MethodSessionLoad)
			p.one.says(refused)
			p.got(refused)
			p.breaks()
			if resume := p.two.reattached(t, "[]"); after(resume) != 5 {
				t.Errorf("attached again by %s", resume.Frame())
			}
		})
	})
	t.Run("version 2", func(t *testing.T) {
		withPairTwo(t, func(t *testing.T, p pair) {
			behindADetach(t, p)
			p.one.says(`{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.6"}}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.6"}}`)
			p.one.takes(t, acp.MethodSessionLoad)
			p.one.says(refused)
			p.got(refused)
			p.quiet(p.one)
		})
	})
}

// The connection breaks before a request to detach is answered, with a prompt behind it. That is found again, and its end is told.
func TestConn_BreaksAtADetachBeforeAPrompt(t *testing.T) {
	const (
		begun  = `{"seq":6,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}`
		ended  = `{"seq":8,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}}}`
		answer = `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`
	)
	for name, events := range map[string]string{"it goes on": begun, "it has ended": begun + "," + ended} {
		t.Run(name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.sends(leaves, methodDetach)
				p.sends(prompt)
				p.one.takes(t, methodDetach)
				p.one.takes(t, acp.MethodSessionPrompt)
				p.breaks()
				p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
				p.two.reattached(t, "[]")
				p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
				p.two.replies(t, "_sandboxagent/session/events", `{"events":[`+events+`]}`)
				p.two.says(turnEnded, "mine", `"result":{"stopReason":"end_turn"},`, 8)
				p.got(answer)
				p.quiet(p.two)
			})
		})
	}
}

// A prompt that is refused attaches to nothing: a session that its client has left before is left alone on the next connection, unless
// another prompt was taken, something was told of the session since, or it was opened again.
func TestConn_RefusedPromptsBehindADetach(t *testing.T) {
	const (
		another = `{"jsonrpc":"2.0","id":31,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		refused = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no","data":{"type":"urn:sandbox-agent:error:unavailable"}}}`
	)
	type how struct {
		second, load string // how it is answered, "" for none
		told         bool
	}
	check := func(t *testing.T, p pair, h how, breaks func()) {
		p.sends(leaves, methodDetach)
		p.sends(prompt)
		if h.second != "" {
			p.sends(another)
		}
		if h.load != "" {
			p.sends(reload)
		}
		p.one.replies(t, methodDetach, `{}`)
		p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		answers := func(method string, id int, answer string) {
			p.one.takes(t, method)
			if method == acp.MethodSessionPrompt && id == 3 && h.told {
				p.one.says(update, 7)
				p.got(update, 7)
			}
			p.one.says(answer, id)
			p.got(answer, id)
		}
		answers(acp.MethodSessionPrompt, 3, refused)
		if h.second != "" {
			answers(acp.MethodSessionPrompt, 31, h.second)
		}
		if h.load != "" {
			answers(acp.MethodSessionLoad, 9, h.load)
		}
		breaks()
		if h.told || h.second != "" && h.second != refused || h.load != "" && h.load != refused {
			p.two.takes(t, acp.MethodSessionResume)
		} else if p.quiet(p.two); t.Failed() {
			t.Logf("%+v", h)
		}
	}
	each := func(taken string, run func(h how)) {
		for _, second := range []string{"", refused, taken} {
			for _, load := range []string{"", refused, `{"jsonrpc":"2.0","id":%d,"result":{}}`} {
				run(how{second, load, false})
				run(how{second, load, true})
			}
		}
	}
	each(`{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"}}`, func(h how) {
		t.Run("version 1", func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) { check(t, p, h, p.breaks) })
		})
	})
	each(`{"jsonrpc":"2.0","id":%d,"result":{"messageId":"sa.6"}}`, func(h how) {
		t.Run("version 2", func(t *testing.T) {
			withPairTwo(t, func(t *testing.T, p pair) {
				check(t, p, h, func() {
					p.one.breakRead()
					p.one.breakWrite()
					p.two.welcomeTwo(t)
				})
			})
		})
	})
}
