package lasting

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const helloTwo = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{}}}`

// withPairTwo is withPair in version 2 of the protocol: the client has all of event 5.
func withPairTwo(t *testing.T, f func(t *testing.T, p pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		p.sends(helloTwo)
		p.one.welcomeTwo(t)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		m := p.one.takes(t, acp.MethodSessionResume)
		p.one.tells("s", 5, `{"n":1}`)
		reads(t, p.c)
		p.one.toClient <- acp.NewResult(m.ID(), []byte(`{"_meta":{"sandboxagent.dev":{"seq":5}}}`))
		reads(t, p.c)
		f(t, p)
		_ = p.c.Close()
	})
}

// breaksTwo ends the first connection, and welcomes the client on the second, which answers where the session goes on.
func (p pair) breaksTwo() uint64 {
	p.one.breakRead()
	p.one.breakWrite()
	p.two.welcomeTwo(p.t)
	return after(p.two.reattached(p.t, `[]`))
}

// Who has all of an event goes on behind it. The state, which is told there, is told to nobody who has not
// asked for it, and is told to one who opens the session again.
func TestRestore_TheStateBehindAnEvent(t *testing.T) {
	const running = `{"sessionUpdate":"state_update","state":"running"}`
	withPairTwo(t, func(t *testing.T, p pair) {
		if from := p.breaksTwo(); from != 5 {
			t.Errorf("the session goes on behind %d", from)
		}
		p.two.tells("s", 5, running)
		p.quiet(p.two)
		p.got("%s", p.two.tells("s", 6, `{"n":2}`))
	})
	withPairTwo(t, func(t *testing.T, p pair) {
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.takes(t, acp.MethodSessionResume)
		p.one.breakRead()
		p.one.breakWrite()
		p.two.welcomeTwo(t)
		again := p.two.takes(t, acp.MethodSessionResume)
		if string(again.ID()) != "3" || after(again) != 5 {
			t.Errorf("%s was sent", again.Frame())
		}
		p.got("%s", p.two.tells("s", 5, running))
	})
}

// Who asks for what a session has gets it again, although it is attached and has seen it.
func TestRestore_ReplayFrom(t *testing.T) {
	for from, again := range map[string]bool{`{"type":"start"}`: true, `null`: false} {
		withPairTwo(t, func(t *testing.T, p pair) {
			p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/","replayFrom":%s}}`, from)
			p.one.takes(t, acp.MethodSessionResume)
			one := p.one.tells("s", 4, `{"n":0}`)
			if again {
				p.got("%s", one)
			}
			p.quiet(p.one)
		})
	}
}

// A session of which the client has one event is opened behind that one again.
func TestRestore_BehindTheFirstEvent(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.says(update, 1)
		p.got(update, 1)
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.takes(t, acp.MethodSessionResume)
		p.breaks()
		if m := p.two.takes(t, acp.MethodSessionResume); string(m.ID()) != "3" || after(m) != 1 {
			t.Errorf("%s was sent", m.Frame())
		}
	})
}

// In version 2 a client may say what it is once more: the next connection is told that.
func TestConn_SaysAgainWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		defer p.c.Close()
		said := func(m acp.Message, name string) {
			t.Helper()
			for member, want := range map[string]string{"eventIds": "true", "turns": "true", "notices": "false"} {
				if got, _ := rawjson.Member(m.Params(), "capabilities", "_meta", acp.MetaKey, member); string(got) != want {
					t.Errorf("%s is %s in %s", member, got, m.Frame())
				}
			}
			if got := rawjson.MemberString(m.Params(), "info", "name"); got != name {
				t.Errorf("it is called %s", got)
			}
		}
		p.sends(helloTwo)
		said(p.one.welcomeTwo(t), "n")
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"another","version":"1"},"capabilities":{}}}`)
		said(p.one.welcomeTwo(t), "another")
		reads(t, p.c)
		p.one.breakRead()
		p.one.breakWrite()
		said(p.two.welcomeTwo(t), "another")
	})
}

// A turn that was told to have ended is none that goes on: also when the next prompt has begun before.
func TestConn_VersionTwo_TurnThatEnded(t *testing.T) {
	withPairTwo(t, func(t *testing.T, p pair) {
		begins := func(id int, name string) {
			p.sends(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"%s"}}}}`, id, name)
			p.one.replies(t, acp.MethodSessionPrompt, fmt.Sprintf(`{"messageId":"sa.%d"}`, id))
			reads(t, p.c)
		}
		begins(3, "mine")
		p.one.says(turnEnded, "mine", `"result":{},`, 7)
		p.quiet(p.one)
		if told := p.c.Interrupt("s", errAnew); len(told) != 0 {
			t.Errorf("it is told of: %v", told)
		}
		begins(4, "next")
		p.one.says(turnEnded, "mine", `"result":{},`, 8) // late
		p.one.says(turnEnded, "other's", `"result":{},`, 9)
		p.quiet(p.one)
		if told := p.c.Interrupt("s", errAnew); len(told) == 0 {
			t.Error("the turn that goes on is not told of")
		}
	})
}

// What became of the client's own turn is looked for behind the event before it, whatever state was told since.
func TestConn_VersionTwo_WhereATurnIsLookedFor(t *testing.T) {
	withPairTwo(t, func(t *testing.T, p pair) {
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
		p.one.replies(t, acp.MethodSessionPrompt, `{"messageId":"sa.6"}`)
		reads(t, p.c)
		p.got("%s", p.one.tells("s", 7, `{"sessionUpdate":"state_update","state":"running"}`))
		p.breaksTwo()
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		asked := p.two.takes(t, "_sandboxagent/session/events")
		if from, _ := rawjson.Member(asked.Params(), "after"); string(from) != "5" {
			t.Errorf("its end is looked for by %s", asked.Params())
		}
	})
}

// A result of version 1 begins no turn, whatever it has in it.
func TestConn_VersionOne_PromptHasEnded(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.replies(t, acp.MethodSessionPrompt, `{"stopReason":"end_turn","messageId":"m"}`)
		reads(t, p.c)
		if told := p.c.Interrupt("s", errAnew); len(told) != 0 {
			t.Errorf("it is told of: %v", told)
		}
	})
}

// overwriting is a connection whose messages are good until the next Read, as those of a WebSocket are.
type overwriting struct {
	*wire
	last *[]byte
}

func (o overwriting) Read(ctx context.Context) (acp.Message, error) {
	clear(*o.last)
	m, err := o.wire.Read(ctx)
	if err == nil {
		*o.last = append([]byte(nil), m.Frame()...)
		m = acp.MustParse(*o.last)
	}
	return m, err
}

// What the client has not read yet stays as it came.
func TestConn_MessagesThatAreOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := overwriting{newWire(), new([]byte)}
		p := pair{t: t, c: New(Options{Dial: func(context.Context) (acp.Conn, error) { return o, nil }}), one: o.wire}
		begin(t, p.c, o.wire)
		for i := range 3 {
			o.says("%s", frame(note(i)))
		}
		synctest.Wait()
		for i := range 3 {
			p.got("%s", frame(note(i)))
		}
		_ = p.c.Close()
	})
}

// A client that takes messages by a function gets all of them, in order, and none behind the end.
func TestConn_GivesToAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		var got []string
		c := New(Options{Dial: dials(one, two), Take: func(m acp.Message) { got = append(got, frame(m)) }})
		write(t, c, hello)
		one.welcome(t)
		one.says("%s", frame(note(1)))
		one.breakRead()
		one.breakWrite()
		two.welcome(t)
		two.says("%s", frame(note(2)))
		synctest.Wait()
		if len(got) != 3 || got[1] != frame(note(1)) || got[2] != frame(note(2)) {
			t.Errorf("it was given %q", got)
		}
		_ = c.Close()
		if _, err := c.Read(t.Context()); err == nil {
			t.Error("Read goes on behind the end")
		}
	})
}
