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
