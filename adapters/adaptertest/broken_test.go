package adaptertest

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// broken are ways to break one contract, and that one only.
var broken = []struct {
	contract string
	how      string
	do       func(f *fake)
}{
	{"initialize", "another version", func(f *fake) {
		f.methods[acp.MethodInitialize] = func(c *fakeConn, m acp.Message) {
			c.reply(m, `{"protocolVersion":7,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}}}}`)
		}
	}},
	{"new", "an id twice", func(f *fake) {
		twice := false
		f.methods[acp.MethodSessionNew] = func(c *fakeConn, m acp.Message) {
			if len(c.made) == 1 && !twice {
				twice = true
				c.reply(m, `{"sessionId":"`+c.made[0]+`"}`)
				return
			}
			newSession(c, m)
		}
	}},
	{"updates-precede-response", "a late chunk", func(f *fake) {
		f.prompts["stream"] = func(c *fakeConn, p *fakeTurn) {
			stream(c, p)
			c.say(p, "20 ")
		}
	}},
	{"updates-precede-response", "one chunk for all", func(f *fake) { f.prompts["stream"] = says("0 1 2 3 19 ") }},
	{"tool-call-lifecycle", "no end", func(f *fake) {
		f.prompts["tool"] = func(c *fakeConn, p *fakeTurn) {
			c.toolCall(p, "tool_call", "pending")
			c.finish(p, schema.StopReasonEndTurn)
		}
	}},
	{"tool-call-lifecycle", "no beginning", func(f *fake) {
		f.prompts["tool"] = func(c *fakeConn, p *fakeTurn) {
			c.toolCall(p, "tool_call_update", "completed")
			c.finish(p, schema.StopReasonEndTurn)
		}
	}},
	{"tool-call-lifecycle", "two beginnings", func(f *fake) {
		f.prompts["tool"] = func(c *fakeConn, p *fakeTurn) {
			c.toolCall(p, "tool_call", "pending")
			tool(c, p)
		}
	}},
	{"tool-call-lifecycle", "life after the end", func(f *fake) {
		f.prompts["tool"] = func(c *fakeConn, p *fakeTurn) {
			c.toolCall(p, "tool_call", "completed")
			c.toolCall(p, "tool_call_update", "in_progress")
			c.toolCall(p, "tool_call_update", "completed")
			c.finish(p, schema.StopReasonEndTurn)
		}
	}},
	{"tool-call-lifecycle", "none", func(f *fake) { f.prompts["tool"] = says("done") }},
	{"reused-call-id", "one id for two", func(f *fake) {
		f.prompts["tool"] = func(c *fakeConn, p *fakeTurn) {
			p.tool = "call"
			tool(c, p)
		}
	}},
	{"permission-allow", "not done", func(f *fake) { answers(f, "yes", "failed", schema.StopReasonEndTurn) }},
	{"permission-allow", "allowed for ever", func(f *fake) { f.granted = []adapters.Grant{{ID: "a"}} }},
	{"permission-reject", "done all the same", func(f *fake) { answers(f, "no", "completed", schema.StopReasonEndTurn) }},
	{"permission-cancelled", "done all the same", func(f *fake) { answers(f, "", "completed", schema.StopReasonCancelled) }},
	{"permission-cancelled", "a regular end", func(f *fake) { answers(f, "", "failed", schema.StopReasonEndTurn) }},
	{"cancel-ends-the-turn", "ignored", func(f *fake) { f.cancel = func(*fakeConn, *fakeTurn) {} }},
	{"cancel-ends-the-turn", "a regular end", func(f *fake) {
		f.cancel = func(c *fakeConn, p *fakeTurn) { c.finish(p, schema.StopReasonEndTurn) }
	}},
	{"cancel-ends-the-turn", "an error", func(f *fake) {
		f.cancel = func(c *fakeConn, p *fakeTurn) {
			c.send(acp.NewError(p.id, acp.Errorf(acp.CodeCancelled, "cancelled")))
		}
	}},
	{"cancel-ends-the-turn", "a late chunk", func(f *fake) {
		f.cancel = func(c *fakeConn, p *fakeTurn) {
			c.finish(p, schema.StopReasonCancelled)
			c.say(p, "one more")
		}
	}},
	{"cancel-without-a-prompt", "ends the next one", func(f *fake) {
		// The cancel that others try comes while the session works.
		cancel, say := f.methods[acp.MethodSessionCancel], f.prompts["say"]
		early := map[string]bool{}
		f.methods[acp.MethodSessionCancel] = func(c *fakeConn, m acp.Message) {
			early[m.Session()] = c.turns[m.Session()] == nil
			cancel(c, m)
		}
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			if early[p.session] {
				early[p.session] = false
				c.finish(p, schema.StopReasonCancelled)
				return
			}
			say(c, p)
		}
	}},
	{"request-outlives-its-turn", "withdrawn with its turn", func(f *fake) {
		behind := f.prompts["behind"]
		f.prompts["behind"] = func(c *fakeConn, p *fakeTurn) {
			behind(c, p)
			c.send(acp.NewNotification(acp.MethodCancelRequest, []byte(`{"requestId":`+string(p.asking)+`}`)))
		}
	}},
	{"request-outlives-its-turn", "its answer is lost", func(f *fake) { f.behind = func(*fakeConn, *fakeTurn, string) {} }},
	{"calls-of-a-dead-process", "left open", func(f *fake) { f.left = func(*fakeConn, string, []string) {} }},
	{"load-with-other-settings", "ignored", func(f *fake) { f.serve = func(string) {} }},
	{"lost-record", "as if nothing had happened", func(f *fake) {
		load := f.methods[acp.MethodSessionLoad]
		f.methods[acp.MethodSessionLoad] = func(c *fakeConn, m acp.Message) {
			c.fake.mu.Lock()
			if _, there := c.sessions[m.Session()]; !there && slices.Contains(c.made, m.Session()) {
				c.sessions[m.Session()] = nil
			}
			c.fake.mu.Unlock()
			load(c, m)
		}
	}},
	{"load", "no replay", func(f *fake) {
		f.methods[acp.MethodSessionLoad] = func(c *fakeConn, m acp.Message) { reopen(c, m, false) }
	}},
	{"load", "replay after the response", func(f *fake) {
		f.methods[acp.MethodSessionLoad] = func(c *fakeConn, m acp.Message) {
			reopen(c, m, false)
			for _, u := range c.sessions[m.Session()] {
				c.send(sessionUpdate(m.Session(), u))
			}
		}
	}},
	{"load", "no prompts in the replay", func(f *fake) {
		f.methods[acp.MethodSessionLoad] = func(c *fakeConn, m acp.Message) {
			if updates := c.sessions[m.Session()]; len(updates) > 0 {
				c.sessions[m.Session()] = updates[1:]
			}
			reopen(c, m, true)
		}
	}},
	{"load", "not claimed", func(f *fake) { claims(f, `"sessionCapabilities":{"resume":{}}`) }},
	{"resume", "not claimed", func(f *fake) { claims(f, `"loadSession":true`) }},
	{"resume", "replay", func(f *fake) {
		f.methods[acp.MethodSessionResume] = func(c *fakeConn, m acp.Message) { reopen(c, m, true) }
	}},
	{"two-sessions-interleave", "one at a time", func(f *fake) {
		say := f.prompts["say"]
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			if len(c.turns) == 1 {
				say(c, p)
			}
		}
	}},
	{"two-sessions-interleave", "mixed up", func(f *fake) {
		say := f.prompts["say"]
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			for session := range c.turns {
				if session != p.session {
					c.update(session, chunk("agent_message_chunk", "hello there"))
				}
			}
			say(c, p)
		}
	}},
	{"unknown-method", "another code", func(f *fake) {
		f.methods["unknown"] = func(c *fakeConn, m acp.Message) { c.refuse(m, acp.CodeInternal, "what?") }
	}},
	{"unknown-method", "a notification ends the connection", func(f *fake) {
		f.methods["_adaptertest/unknown_notification"] = func(c *fakeConn, _ acp.Message) { c.endLocked(io.EOF) }
	}},
	{"unknown-session-is-an-error", "a prompt of nobody", func(f *fake) {
		f.methods[acp.MethodSessionPrompt] = func(c *fakeConn, m acp.Message) {
			if _, known := c.history(m); !known {
				c.reply(m, `{"stopReason":"end_turn"}`)
				return
			}
			prompt(c, m)
		}
	}},
	{"unknown-session-is-an-error", "nothing loaded", func(f *fake) {
		f.methods[acp.MethodSessionLoad] = func(c *fakeConn, m acp.Message) {
			if _, known := c.history(m); !known {
				c.reply(m, `{}`)
				return
			}
			reopen(c, m, true)
		}
	}},
	{"garbage-line-survived", "the connection ends", func(f *fake) {
		f.prompts["garbage"] = func(c *fakeConn, _ *fakeTurn) { c.endLocked(errors.New("invalid character")) }
	}},
	{"10-MiB-message", "cut", func(f *fake) {
		f.prompts["echo"] = func(c *fakeConn, p *fakeTurn) { says(p.text[:len(p.text)-1])(c, p) }
	}},
	{"tap-hears-both", "nothing", func(f *fake) { f.deaf = true }},
	{"tap-hears-both", "one side", func(f *fake) { f.mute = true }},
	{"meta-preserved", "dropped", func(f *fake) {
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			p.meta = nil
			says("hello there")(c, p)
		}
	}},
	{"meta-preserved", "a number rounded", func(f *fake) {
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			if p.meta != nil {
				p.meta = []byte(`{"example.com/trace":{"id":12345678901234567000,"deep":[{"a":null},1.50,"<&>"]},"example.com/empty":{}}`)
			}
			says("hello there")(c, p)
		}
	}},
	{"meta-preserved", "unknown members refused", func(f *fake) {
		f.methods[acp.MethodSessionPrompt] = func(c *fakeConn, m acp.Message) {
			if _, there := rawjson.Member(m.Params(), "futureField"); there {
				c.refuse(m, acp.CodeInvalidParams, "unknown field futureField")
				return
			}
			prompt(c, m)
		}
	}},
	{"concurrent-writes", "a request lost", func(f *fake) {
		unknown := f.methods["unknown"]
		f.methods["unknown"] = func(c *fakeConn, m acp.Message) {
			if c.probes++; c.probes != 100 {
				unknown(c, m)
			}
		}
	}},
	{"crash-fails-pending", "a plain end", func(f *fake) { f.failed = func(error) error { return io.EOF } }},
	{"crash-fails-pending", "another code", func(f *fake) {
		f.failed = func(error) error { return &adapters.ExitError{Stderr: adapters.Stderr{Tail: "it is over"}} }
	}},
	{"crash-fails-pending", "no stderr", func(f *fake) { f.failed = func(error) error { return &adapters.ExitError{Code: 3} } }},
	{"crash-fails-pending", "not noticed", func(f *fake) { f.prompts["crash"] = func(*fakeConn, *fakeTurn) {} }},
	{"crash-fails-pending", "answered as if well", func(f *fake) {
		crash := f.prompts["crash"]
		f.prompts["crash"] = func(c *fakeConn, p *fakeTurn) {
			c.finish(p, schema.StopReasonEndTurn)
			crash(c, p)
		}
	}},
	{"close-idempotent", "an error the second time", func(f *fake) {
		closeOnce := f.close
		f.close = func(c *fakeConn, times int) error {
			if times > 1 {
				return os.ErrClosed
			}
			return closeOnce(c, times)
		}
	}},
	{"close-idempotent", "writes into the void", func(f *fake) { f.late = nil }},
	{"close-leaves-no-process", "a child is left", func(f *fake) {
		f.close = func(c *fakeConn, _ int) error {
			c.endLocked(errFakeClosed)
			return nil
		}
	}},
	{"open-ctx-bounds-only-open", "bounds the connection", func(f *fake) {
		f.write = func(c *fakeConn) error { return c.opened.Err() }
	}},
	{"open-ctx-bounds-only-open", "does not bound Open", func(f *fake) {
		f.open = func(context.Context) error { return nil }
	}},
	{"no-goroutine-left", "one is left", func(f *fake) {
		f.open = func(ctx context.Context) error {
			if ctx.Err() == nil {
				go func() { <-f.release }()
			}
			return ctx.Err()
		}
	}},
	{"features", "one nobody shows", func(f *fake) {
		f.row = func(row adapters.Features) { row[adapters.Images] = adapters.Support{Level: adapters.ByAgent} }
	}},
	{"features", "one not mentioned", func(f *fake) {
		f.row = func(row adapters.Features) { delete(row, adapters.Images) }
	}},
	{"features", "no reason", func(f *fake) {
		f.row = func(row adapters.Features) { row[adapters.Images] = adapters.Support{Level: adapters.Unsupported} }
	}},
	{"features", "one that does not exist", func(f *fake) {
		f.row = func(row adapters.Features) { row["telepathy"] = adapters.Support{Level: adapters.ByAgent} }
	}},
	{"features", "a level that does not exist", func(f *fake) {
		f.row = func(row adapters.Features) { row[adapters.Images] = adapters.Support{Level: "perhaps"} }
	}},
	{"features", "denied and there", func(f *fake) {
		f.row = func(row adapters.Features) {
			row[adapters.Plan] = adapters.Support{Level: adapters.Unsupported, Reason: "really"}
		}
	}},
	{"features", "claimed and not there", func(f *fake) { f.prompts["plan"] = says("what plan?") }},
	{"every-frame-valid", "a notification of no protocol", func(f *fake) {
		say := f.prompts["say"]
		f.prompts["say"] = func(c *fakeConn, p *fakeTurn) {
			c.send(acp.NewNotification("session/no_such_notification", []byte(`{}`)))
			say(c, p)
		}
	}},
}

// answers makes a turn end otherwise after one answer to its question.
func answers(f *fake, option, status string, stop schema.StopReason) {
	answer := f.answer
	f.answer = func(c *fakeConn, p *fakeTurn, chosen string) {
		if chosen != option {
			answer(c, p, chosen)
			return
		}
		c.say(p, "allowed")
		c.toolCall(p, "tool_call_update", status)
		c.finish(p, stop)
	}
}

// claims changes the agent's capabilities.
func claims(f *fake, capabilities string) {
	f.methods[acp.MethodInitialize] = func(c *fakeConn, m acp.Message) {
		c.reply(m, `{"protocolVersion":1,"agentCapabilities":{`+capabilities+`}}`)
	}
}
