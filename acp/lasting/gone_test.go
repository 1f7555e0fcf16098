package lasting

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

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

// A prompt that was written before anybody could know that its session is gone is not sent: what it leads to would be shown behind a
// hole. Where the client has asked to open the session before the prompt it is.
func TestConn_TheSessionIsGone_AndPromptsWait(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		const one = `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"sessionId":"s","cwd":"/","prompt":[]}}`
		p.one.breakRead()
		p.one.breakWrite()
		synctest.Wait()
		p.sends(one, 3, acp.MethodSessionPrompt)
		p.sends(one, 4, acp.MethodSessionSetMode)
		p.sends(one, 5, acp.MethodSessionLoad)
		p.sends(one, 6, acp.MethodSessionPrompt)
		p.two.welcome(t)
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.toClient <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeResourceNotFound, "gone"))
		p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"gone","data":{"type":"urn:sandbox-agent:error:not_found"}}}`)
		for _, want := range []string{acp.MethodSessionSetMode, acp.MethodSessionLoad} {
			m := p.two.replies(t, want, `{}`)
			p.got(`{"jsonrpc":"2.0","id":%s,"result":{}}`, string(m.ID()))
		}
		if m := p.two.takes(t, acp.MethodSessionPrompt); m.ID() != "6" {
			t.Errorf("it was sent %s", m.Frame())
		}
	})
}

// How a turn ended is told also of a session that cannot be attached to again, if its log can be read, as when somebody has
// terminated it.
func TestConn_TheSessionIsGone_AndItsTurnHasEnded(t *testing.T) {
	const (
		both = `{"events":[{"seq":16,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}},{"seq":17,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"cancelled"}}}}]}`
		idle = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}`
	)
	refuses := func(t *testing.T, w *wire) {
		resume := w.takes(t, acp.MethodSessionResume)
		w.toClient <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeResourceNotFound, "it has ended"))
		w.replies(t, "_sandboxagent/session/get", `{"state":"ended"}`)
		w.replies(t, "_sandboxagent/session/events", both)
	}
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		refuses(t, p.two)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}`)
		p.quiet(p.two)
	})
	for _, answered := range []bool{false, true} {
		withPairTwo(t, func(t *testing.T, p pair) {
			const begun = `{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.16"}}`
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			if answered {
				p.one.says(begun)
				p.got(begun)
			}
			p.one.breakRead()
			p.one.breakWrite()
			p.two.welcomeTwo(t)
			refuses(t, p.two)
			if !answered {
				p.got(begun)
			}
			p.got(idle)
			p.quiet(p.two)
		})
	}
}

// What a session has said before the end of a turn, and cannot be given any more, is told as lost.
func TestConn_TheSessionIsGone_AndItsTurnHasSaidMore(t *testing.T) {
	const said = `{"events":[{"seq":16,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}},{"seq":17,"direction":"gateway","message":{"method":"session/update","params":{}}}%s,{"seq":20,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}}}]}`
	for name, more := range map[string]string{"it has": `,{"seq":18,"direction":"agent","message":{"method":"session/update","params":{}}}`, "it has not": ""} {
		t.Run(name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.c.notices = true // as its initialize says
				p.one.says(update, 15)
				p.got(update, 15)
				p.sends(prompt)
				p.one.takes(t, acp.MethodSessionPrompt)
				p.breaks()
				resume := p.two.takes(t, acp.MethodSessionResume)
				p.two.toClient <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeResourceNotFound, "it has ended"))
				p.two.replies(t, "_sandboxagent/session/get", `{"state":"ended"}`)
				p.two.replies(t, "_sandboxagent/session/events", fmt.Sprintf(said, more))
				if more != "" {
					p.got(gone, 16, 18)
				}
				p.got(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
				p.quiet(p.two)
			})
		})
	}
}

// The end of a turn was found, and its connection broke before it was told. The session is gone then: that end counts.
func TestConn_TheSessionIsGone_AndTheEndOfItsTurnWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		third := newWire()
		p.c = New(Options{Dial: dials(p.one, p.two, third)})
		defer p.c.Close()
		p.sends(helloTwo)
		p.one.welcomeTwo(t)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.replies(t, acp.MethodSessionResume, `{"_meta":{"sandboxagent.dev":{"seq":5}}}`)
		reads(t, p.c)
		p.sends(prompt)
		p.one.replies(t, acp.MethodSessionPrompt, `{"messageId":"sa.6"}`)
		reads(t, p.c)
		p.breaksTwo()
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		p.two.replies(t, "_sandboxagent/session/events", `{"events":[{"seq":7,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}}}]}`)
		synctest.Wait()
		p.two.breakRead()
		p.two.breakWrite()
		third.welcomeTwo(t)
		refuse := func(method string) {
			m := third.takes(t, method)
			third.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "it is gone"))
		}
		refuse(acp.MethodSessionResume)
		refuse("_sandboxagent/session/get")
		p.got(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}`)
	})
}

// How a turn ended may still be on its way when another client deletes the session, and comes no more.
func TestConn_TheSessionIsDeleted(t *testing.T) {
	const (
		deleted = `{"jsonrpc":"2.0","method":"_sandboxagent/session/ended","params":{"sessionId":"s","data":{"reason":"deleted","terminatedBy":"client"}}}`
		why     = `the session s was deleted: how its turn ended is not told any more`
		found   = `{"events":[{"seq":9,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}]}`
	)
	t.Run("version 1", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.one.says("%s", strings.ReplaceAll(deleted, `"s"`, `"other"`))
			p.got("%s", strings.ReplaceAll(deleted, `"s"`, `"other"`))
			p.breaks()
			p.two.reattached(t, `[]`)
			p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
			p.two.replies(t, "_sandboxagent/session/events", found)
			synctest.Wait()
			p.two.says(deleted)
			p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"%s","data":{"done":"unknown","type":"urn:sandbox-agent:error:not_found"}}}`, why)
			p.got(deleted)
		})
	})
	t.Run("version 1, while the gateway is asked", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.breaks()
			p.two.reattached(t, `[]`)
			p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
			events := p.two.takes(t, "_sandboxagent/session/events")
			p.two.says(deleted)
			p.got(deleted)
			p.two.toClient <- acp.NewResult(events.ID(), []byte(found))
			p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"%s","data":{"type":"urn:sandbox-agent:error:not_found"}}}`, why)
		})
	})
	t.Run("version 1, the answer comes", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.one.says(deleted)
			p.got(deleted)
			p.one.says(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		})
	})
	const (
		ended = `{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}`
		both  = `{"events":[{"seq":16,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}},{"seq":22,"message":{"method":"_sandboxagent/session/turn_ended","params":` + ended + `}}]}`
		idle  = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}`
	)
	t.Run("version 1, its end was found", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.breaks()
			p.two.reattached(t, `[]`)
			p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
			p.two.replies(t, "_sandboxagent/session/events", both)
			synctest.Wait()
			p.two.says(deleted)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
			p.got(deleted)
		})
	})
	for name, answered := range map[string]bool{"version 2, its end was found": true, "version 2, its end was found with it": false} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, p pair) {
				const answer = `{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.16"}}`
				if answered {
					p.one.replies(t, acp.MethodSessionPrompt, `{"messageId":"sa.16"}`)
					p.got(answer)
				} else {
					p.one.takes(t, acp.MethodSessionPrompt)
				}
				p.one.breakRead()
				p.one.breakWrite()
				p.two.welcomeTwo(t)
				p.two.reattached(t, `[]`)
				p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
				p.two.replies(t, "_sandboxagent/session/events", both)
				if !answered {
					p.got(answer)
				}
				synctest.Wait()
				p.two.says(deleted)
				p.got(idle)
				p.got(deleted)
			})
		})
	}
	t.Run("version 2", func(t *testing.T) {
		withTwo(t, func(t *testing.T, p pair) {
			p.one.replies(t, acp.MethodSessionPrompt, `{"messageId":"sa.9"}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.9"}}`)
			p.one.says(deleted)
			p.got(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error","error":{"code":-32002,"message":"%s"}}}}`, why)
			p.got(deleted)
			p.quiet(p.one)
		})
	})
	t.Run("version 2, the answer comes", func(t *testing.T) {
		withTwo(t, func(t *testing.T, p pair) {
			m := p.one.takes(t, acp.MethodSessionPrompt)
			p.one.says(deleted)
			p.got(deleted)
			p.one.toClient <- acp.NewResult(m.ID(), []byte(`{"messageId":"sa.9"}`))
			p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"%s","data":{"type":"urn:sandbox-agent:error:not_found"}}}`, why)
		})
	})
}
