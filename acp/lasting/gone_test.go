package lasting

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// What a session asks is withdrawn when the session cannot be attached to again.
func TestConn_TheSessionIsGone(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.asks(7, 3)
		m, err := p.c.Read(t.Context())
		if err != nil || m.Method() != acp.MethodSessionRequestPermission {
			t.Fatalf("the client was given %s, %v", m.Frame(), err)
		}
		p.breaks()
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.toClient <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeResourceNotFound, "gone"))
		p.got(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, string(m.ID()))
	})
}
