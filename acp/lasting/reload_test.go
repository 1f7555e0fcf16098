package lasting

import (
	"fmt"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
)

const reload = `{"jsonrpc":"2.0","id":9,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`

// What a session says between the moment in which the client loads it again and that in which its history begins keeps
// nothing of the history away.
func TestConn_LoadsWhatItHas_WhileTheSessionGoesOn(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.says(update, 5)
		p.got(update, 5)
		p.sends(reload)
		p.one.takes(t, acp.MethodSessionLoad)
		for _, seq := range []int{6, 7, 1, 5, 6, 7, 8} {
			p.one.says(update, seq)
			p.got(update, seq)
		}
	})
}

// The history comes once, wherever the connection breaks: as the load waits for a connection, before the history has begun,
// and in its middle.
func TestConn_LoadsWhatItHas_AndTheConnectionBreaks(t *testing.T) {
	for name, before := range map[string][]int{"at once": nil, "as the session goes on": {6}, "in the history": {6, 1, 3}} {
		t.Run(name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.one.says(update, 5)
				p.got(update, 5)
				p.sends(reload)
				p.one.takes(t, acp.MethodSessionLoad)
				for _, seq := range before {
					p.one.says(update, seq)
					p.got(update, seq)
				}
				p.breaks()
				load := p.two.takes(t, acp.MethodSessionLoad)
				want := uint64(0)
				if name == "in the history" {
					want = 3
				}
				if after(load) != want {
					t.Errorf("it is loaded again by %s", load.Frame())
				}
				for seq := int(want) + 1; seq < 8; seq++ {
					p.two.says(update, seq)
					p.got(update, seq)
				}
			})
		})
	}
	t.Run("before it is sent", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.one.says(update, 5)
			p.got(update, 5)
			p.one.breakRead()
			p.one.breakWrite()
			synctest.Wait()
			p.sends(reload)
			p.two.welcome(t)
			if resume := p.two.reattached(t, "[]"); after(resume) != 5 {
				t.Errorf("attached again by %s", resume.Frame())
			}
			p.two.takes(t, acp.MethodSessionLoad)
			for _, seq := range []int{1, 5, 6} {
				p.two.says(update, seq)
				p.got(update, seq)
			}
		})
	})
}

// A load that is refused leaves the session where it was: nothing comes again with the next connection.
func TestConn_LoadsWhatItHas_AndIsRefused(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.says(update, 5)
		p.got(update, 5)
		p.sends(reload)
		p.one.takes(t, acp.MethodSessionLoad)
		const refused = `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"no","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`
		p.one.says(refused)
		p.got(refused)
		p.one.says(update, 3)
		p.one.says(update, 6)
		p.got(update, 6)
		p.breaks()
		if resume := p.two.reattached(t, "[]"); after(resume) != 6 {
			t.Errorf("attached again by %s", resume.Frame())
		}
	})
}

// What a session says that was not shown yet, such as by a prompt before the load, keeps nothing of the history away that comes for
// the first time either.
func TestConn_LoadsAFirstTime_WhileTheSessionGoesOn(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(reload)
		p.one.takes(t, acp.MethodSessionLoad)
		for _, seq := range []int{5, 1, 2, 5, 6} {
			p.one.says(update, seq)
			p.got(update, seq)
		}
	})
}

// So does a connection that breaks before the history has begun: all of it is asked for again.
func TestConn_LoadsAFirstTime_WhileTheSessionGoesOn_AndTheConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		defer func() { _ = p.c.Close() }()
		begin(t, p.c, p.one)
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.sends(reload)
		p.one.takes(t, acp.MethodSessionLoad)
		p.one.says(update, 5)
		p.got(update, 5)
		p.breaks()
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
		p.two.replies(t, "_sandboxagent/session/events", `{"events":[{"seq":3,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}],"hasMore":false}`)
		if load := p.two.takes(t, acp.MethodSessionLoad); after(load) != 0 {
			t.Errorf("it is loaded again by %s", load.Frame())
		}
		for _, seq := range []int{1, 2, 5, 6} {
			p.two.says(update, seq)
			p.got(update, seq)
		}
	})
}

// The connection breaks with a prompt and, behind it, a request to open the session under way. The prompt alone would attach to what the
// session says from then on: what was said meanwhile comes before.
func TestConn_OpensBehindAPrompt_AndTheConnectionBreaks(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.says(update, 5)
		p.got(update, 5)
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.sends(`{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"after":5}}}}`)
		p.one.takes(t, acp.MethodSessionResume)
		p.breaks()
		if resume := p.two.reattached(t, "[]"); after(resume) != 5 {
			t.Errorf("attached again by %s", resume.Frame())
		}
		p.two.says(update, 6)
		p.got(update, 6)
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		p.two.replies(t, "_sandboxagent/session/events", `{"events":[],"hasMore":false}`)
		p.two.takes(t, acp.MethodSessionPrompt)
		if resume := p.two.takes(t, acp.MethodSessionResume); after(resume) != 0 {
			t.Errorf("what comes already is asked for by %s", resume.Frame())
		}
	})
}

// A client asks for what it has while there is no connection, and on the next one the session cannot be attached to again before that. The request
// opens it all the same, and it is attached to again from then on.
func TestConn_LoadsWhatIsGone(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		third := newWire()
		p.c.o.Dial = dials(p.two, third)
		p.one.breakRead()
		p.one.breakWrite()
		synctest.Wait()
		p.sends(reload)
		p.two.welcome(t)
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.toClient <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeResourceNotFound, "gone"))
		p.two.replies(t, acp.MethodSessionLoad, `{}`)
		p.got(`{"jsonrpc":"2.0","id":9,"result":{}}`)
		p.two.says(update, 5)
		p.got(update, 5)
		p.two.breakRead()
		p.two.breakWrite()
		third.welcome(t)
		if again := third.reattached(t, "[]"); after(again) != 5 {
			t.Errorf("attached again by %s", again.Frame())
		}
	})
}

// The connection breaks with a prompt and, behind it, the first request to open its session under way, of which a part was given. The prompt is
// sent once more first, and would attach to what is said from then on: the part that is left is asked for before.
func TestConn_OpensAFirstTimeBehindAPrompt_AndTheConnectionBreaks(t *testing.T) {
	for name, tt := range map[string]struct {
		method, open string
		given        []int
	}{
		"load":   {acp.MethodSessionLoad, reload, []int{5, 1, 2, 3}}, // one event of now, before what it has
		"resume": {acp.MethodSessionResume, `{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"after":2}}}}`, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pair{t: t, one: newWire(), two: newWire()}
				p.c = New(Options{Dial: dials(p.one, p.two)})
				defer func() { _ = p.c.Close() }()
				begin(t, p.c, p.one)
				p.sends(prompt)
				p.one.takes(t, acp.MethodSessionPrompt)
				p.sends("%s", tt.open)
				p.one.takes(t, tt.method)
				for _, seq := range tt.given {
					p.one.says(update, seq)
					p.got(update, seq)
				}
				p.breaks()
				resume := p.two.takes(t, acp.MethodSessionResume)
				if after(resume) != 3 || string(resume.ID()) == "9" {
					t.Fatalf("%s was sent", resume.Frame())
				}
				p.two.says(update, 4)
				p.got(update, 4)
				p.two.toClient <- acp.NewResult(resume.ID(), []byte(`{}`))
				p.two.replies(t, methodPending, `{"pending":[]}`)
				p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
				p.two.replies(t, "_sandboxagent/session/events", `{"events":[],"hasMore":false}`)
				p.two.takes(t, acp.MethodSessionPrompt)
				p.two.takes(t, tt.method)
			})
		})
	}
}

// The end of a turn was found, and what led to it comes with the request behind it that opens the session. On the next connection
// the gateway does not say how it ended: what was found counts, in its place.
func TestConn_TheEndOfATurnWasFound_AndComesWithALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		third := newWire()
		p.c = New(Options{Dial: dials(p.one, p.two, third)})
		defer func() { _ = p.c.Close() }()
		begin(t, p.c, p.one)
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.sends(reload)
		p.one.takes(t, acp.MethodSessionLoad)
		p.breaks()
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		p.two.replies(t, "_sandboxagent/session/events", fmt.Sprintf(`{"events":[{"seq":7,"message":%s}],"hasMore":false}`, fmt.Sprintf(turnEnded, "mine", `"result":{},`, 7)))
		p.two.takes(t, acp.MethodSessionLoad)
		p.two.breakRead()
		p.two.breakWrite()
		third.welcome(t)
		get := third.takes(t, "_sandboxagent/session/get")
		third.toClient <- acp.NewError(get.ID(), acp.Errorf(acp.CodeInvalidParams, "no"))
		third.takes(t, acp.MethodSessionLoad)
		third.says(update, 6)
		p.got(update, 6)
		third.says(turnEnded, "mine", `"result":{},`, 7)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
}

// The end of a turn was found, and a load behind it is refused. Where the client stays attached, what the turn has said last comes before its end.
func TestConn_TheEndOfATurnWasFound_AndALoadIsRefused(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		p.two.reattached(t, `[]`)
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		p.two.replies(t, "_sandboxagent/session/events", fmt.Sprintf(`{"events":[{"seq":8,"message":%s}],"hasMore":false}`, fmt.Sprintf(turnEnded, "mine", `"result":{},`, 8)))
		p.sends(reload)
		load := p.two.takes(t, acp.MethodSessionLoad)
		p.two.toClient <- acp.NewError(load.ID(), acp.Errorf(acp.CodeInvalidParams, "no"))
		p.got(`{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"no","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`)
		p.two.says(update, 7)
		p.got(update, 7)
		p.two.says(turnEnded, "mine", `"result":{},`, 8)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
}

// A client resumes a session and prompts without waiting. The end of the turn is found before the session is open, and lies before what that shows.
func TestConn_TheEndOfATurnWasFound_AndIsBeforeAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		defer func() { _ = p.c.Close() }()
		begin(t, p.c, p.one)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.takes(t, acp.MethodSessionResume)
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
		p.two.replies(t, "_sandboxagent/session/events", fmt.Sprintf(`{"events":[{"seq":8,"message":%s}],"hasMore":false}`, fmt.Sprintf(turnEnded, "mine", `"result":{},`, 8)))
		synctest.Wait()
		p.two.toClient <- acp.NewResult(resume.ID(), []byte(`{"_meta":{"sandboxagent.dev":{"seq":8}}}`))
		p.got(`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"sandboxagent.dev":{"seq":8}}}}`)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
}
