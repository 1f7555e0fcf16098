package runtime

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// What a client asks of a session that has no process is done in the order in which it was asked for, though all of it waits for
// one: a prompt begins with the mode that was set before it, and what is set behind it comes behind it.
func TestRequests_WaitForAProcessInTheirOrder(t *testing.T) {
	t.Parallel()
	set := func(mode string) []string {
		return []string{acp.MethodSessionSetMode, `{"sessionId":"SESSION","modeId":"` + mode + `"}`}
	}
	say := func(text string) []string { return []string{acp.MethodSessionPrompt, prompt("SESSION", text)} }
	for _, asked := range [][][]string{
		{set("a"), say("x")},
		{say("x"), set("a")},
		{set("a"), set("b"), say("x"), set("c")},
		{set("a"), say("x"), set("b"), set("c"), set("d")},
	} {
		_, g, tc, s := dormantSession(t)
		var want []string
		var ids []acp.ID
		for _, one := range asked {
			ids = append(ids, tc.request(one[0], strings.ReplaceAll(one[1], "SESSION", s)))
			want = append(want, one[0]+rawjson.MemberString([]byte(one[1]), "modeId"))
		}
		<-g.starting
		g.let <- nil
		awaitConn(t, g, 2)
		g.conn().result(g.conn().next(t, acp.MethodSessionResume), `{"modes":{"currentModeId":"z","availableModes":[]}}`)
		var got []string
		for range asked {
			m := <-g.conn().got
			got = append(got, m.Method()+rawjson.MemberString(m.Params(), "modeId"))
			result := `{}`
			if m.Method() == acp.MethodSessionPrompt {
				result = `{"stopReason":"end_turn"}`
			}
			g.conn().result(m, result)
		}
		if !slices.Equal(want, got) {
			t.Errorf("the agent was sent %q, want %q", got, want)
		}
		for range ids {
			for m := tc.next(); !m.IsResponse() || !slices.Contains(ids, m.ID()); m = tc.next() {
				continue
			}
		}
	}
}

// The opening of a session that nobody waits for any more is ended at its agent, which else would be busy with it when the session
// is deleted, or opened once more.
func TestStart_ThatIsGivenUpEndsAtTheAgent(t *testing.T) {
	t.Parallel()
	for _, how := range []string{acp.MethodSessionClose, acp.MethodSessionDelete} {
		_, g, tc, s := dormantSession(t)
		turn := tc.request(acp.MethodSessionPrompt, prompt(s, "x"))
		<-g.starting
		g.let <- nil
		opening := awaitConn(t, g, 2).next(t, acp.MethodSessionResume)
		over := tc.request(how, `{"sessionId":"`+s+`"}`)
		m := g.conn().next(t, acp.MethodCancelRequest)
		if id, _ := rawjson.Member(m.Params(), "requestId"); string(id) != string(opening.ID()) {
			t.Errorf("%s: the agent was sent %s, its request is %s", how, m.Frame(), opening.ID())
		}
		g.conn().out <- acp.NewError(opening.ID(), acp.Errorf(acp.CodeCancelled, "cancelled"))
		for answers := 0; answers < 2; { // they travel beside each other
			if m := tc.next(); m.IsResponse() && (m.ID() == turn || m.ID() == over) {
				answers++
			}
		}
	}
}

// A session that only an agent has is not opened while it is deleted, nor deleted while it is opened: it would be a session of
// which the agent has nothing.
func TestDelete_OfOneThatIsBeingOpened(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"delete":{}}}`, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	const params = `{"sessionId":"theirs","cwd":"/w"}`
	methods := []string{acp.MethodSessionDelete, acp.MethodSessionResume}
	for i, first := range methods {
		id := tc.request(first, params)
		m := a.nextOf(t, first)
		for _, method := range methods {
			if e := tc.callErr(method, params); !strings.Contains(e.Message, "try again") {
				t.Errorf("%s beside %s: %v", method, first, e)
			}
		}
		if i == 0 {
			a.refuse(m, "not now")
		} else {
			a.answer(m, `{}`)
		}
		if _, res := tc.until(id); (res.Err() != nil) != (i == 0) {
			t.Errorf("%s: %s", first, res.Frame())
		}
	}
}

// An agent that comes to its end while it is asked to delete a session is started anew for it: what it keeps would be a session of
// its own again.
func TestDelete_MeetsACrash(t *testing.T) {
	t.Parallel()
	for _, dormant := range []bool{false, true} {
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`, shared: make(chan sent, 64)}
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		s := tc.session()
		if dormant {
			a.conn().crash(errCrash)
			tc.nextOf("_sandboxagent/session/ended")
		}
		id := tc.request(acp.MethodSessionDelete, `{"sessionId":"`+s+`"}`)
		a.nextOf(t, acp.MethodSessionDelete).to.crash(errCrash)
		again := a.nextOf(t, acp.MethodSessionDelete)
		if native := rawjson.MemberString(again.m.Params(), "sessionId"); native != "native-1" {
			t.Errorf("it was asked to delete %q", native)
		}
		a.answer(again, `{}`)
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("the delete: %s", res.Frame())
		}
	}
}

// A prompt that comes as the session's process is about to end is for the next one, unless that process was given it: the sessions of a
// process learn of its end one after the other.
func TestPrompt_MeetsTheEndOfASharedProcess(t *testing.T) {
	t.Parallel()
	var given sync.Map // the prompts that the first process was given
	a := &fakeAgent{caps: `{"loadSession":true}`}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch text := string(m.Params()); {
		case m.Method() == acp.MethodSessionNew:
			c.newSession(m)
		case m.Method() == acp.MethodSessionLoad:
			c.result(m, `{}`)
		case strings.Contains(text, "crash"):
			c.crash(errCrash)
		case m.Method() == acp.MethodSessionPrompt && a.opened() == 1:
			given.Store(text[strings.Index(text, "prompt "):], true)
		case m.Method() == acp.MethodSessionPrompt:
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	crasher := connect(t, r, `{}`)
	doomed := crasher.session()
	var people sync.WaitGroup
	begin := make(chan struct{})
	for i := range 4 {
		tc := connect(t, r, `{}`)
		var sessions []string
		for range 12 {
			sessions = append(sessions, tc.session())
		}
		people.Go(func() {
			<-begin
			asked := map[acp.ID]string{}
			for k, s := range sessions {
				text := prompt(s, fmt.Sprintf("prompt %d-%d.", i, k))
				asked[tc.request(acp.MethodSessionPrompt, text)] = text[strings.Index(text, "prompt "):]
			}
			for len(asked) > 0 {
				m := <-tc.frames
				if text, mine := asked[m.ID()]; mine && m.IsResponse() {
					delete(asked, m.ID())
					if _, taken := given.Load(text); m.Err() != nil && !taken {
						t.Errorf("a prompt that nobody was given: %s", m.Frame())
					}
				}
			}
		})
	}
	id := crasher.request(acp.MethodSessionPrompt, prompt(doomed, "crash"))
	close(begin)
	crasher.until(id)
	people.Wait()
}

// What is asked of a session that is being opened by a process that comes to its end is for the next one: once.
func TestStart_MeetsTheEndOfItsProcess(t *testing.T) {
	t.Parallel()
	for _, ask := range []func(s string) (method, params string){
		func(s string) (string, string) { return acp.MethodSessionPrompt, prompt(s, "x") },
		func(s string) (string, string) {
			return acp.MethodSessionSetMode, `{"sessionId":"` + s + `","modeId":"x"}`
		},
	} {
		_, g, tc, s := dormantSession(t)
		method, params := ask(s)
		for _, ends := range []int{1, 2} {
			id := tc.request(method, params)
			for range ends {
				<-g.starting
				before := g.opened()
				g.let <- nil
				awaitConn(t, g, before+1).next(t, acp.MethodSessionResume)
				g.conn().crash(errCrash)
			}
			if ends == 1 {
				<-g.starting
				g.let <- nil
				awaitConn(t, g, 3)
				g.conn().result(g.conn().next(t, acp.MethodSessionResume), `{}`)
				g.conn().result(g.conn().next(t, method), `{"stopReason":"end_turn"}`)
			}
			if _, res := tc.until(id); (res.Err() != nil) != (ends == 2) {
				t.Errorf("%s: %d processes have ended: %s", method, ends, res.Frame())
			}
			if ends == 1 {
				g.conn().crash(errCrash)
				tc.nextOf("_sandboxagent/session/ended")
			}
		}
	}
}

// A process that ends while it is told what was chosen in the session has refused nothing: the next one is told.
func TestStart_MeetsTheEndOfItsProcessAsItIsToldOfTheMode(t *testing.T) {
	t.Parallel()
	const modes = `"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan","description":"Analyze only, do not modify files or execute commands"}]}`
	for _, how := range []string{"", `,"_meta":{"sandboxagent.dev":{"permissionMode":"readonly"}}`} {
		a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
		a.handle = func(c *fakeConn, m acp.Message) {
			switch n := a.opened(); {
			case m.Method() == acp.MethodSessionNew:
				c.result(m, `{"sessionId":"native-1",`+modes+`}`)
			case m.Method() == acp.MethodSessionResume:
				c.result(m, `{`+modes+`}`)
			case m.Method() == acp.MethodSessionSetMode && n == 2:
				c.crash(errCrash)
			case m.Method() == acp.MethodSessionPrompt && n < 3:
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "process %d", n))
			case m.Method() == acp.MethodSessionPrompt:
				c.result(m, `{"stopReason":"end_turn"}`)
			case m.IsRequest():
				c.result(m, `{}`)
			}
		}
		r := newRuntime(t, t.TempDir(), a)
		tc := connect(t, r, "")
		s := rawjson.MemberString([]byte(tc.call(acp.MethodSessionNew, `{"cwd":"/tmp","mcpServers":[]`+how+`}`)), "sessionId")
		tc.call(acp.MethodSessionSetMode, `{"sessionId":"`+s+`","modeId":"plan"}`)
		a.conn().crash(errCrash)
		waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateDormant })
		before, res := tc.until(tc.request(acp.MethodSessionPrompt, prompt(s, "x")))
		if res.Err() != nil {
			t.Errorf("%q: %s", how, res.Frame())
		}
		for _, m := range before {
			if strings.Contains(string(m.Frame()), "refuses") {
				t.Errorf("%q: clients are told %s", how, m.Frame())
			}
		}
	}
}

// An agent that does not read holds up no client: what has waited for its process and was given to it is answered in time, and
// what comes behind that is part of the history.
func TestRequests_WaitForAnAgentThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
		opening := make(chan acp.Message, 1)
		a.handle = func(c *fakeConn, m acp.Message) {
			switch m.Method() {
			case acp.MethodSessionNew:
				c.newSession(m)
			case acp.MethodSessionResume:
				opening <- m
			case acp.MethodSessionSetMode:
				<-reads
			}
		}
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: 20 * time.Second})
		tc, other := connect(t, r, ""), connect(t, r, "")
		s := tc.session()
		other.call(acp.MethodSessionResume, `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
		a.conn().crash(errCrash)
		synctest.Wait()
		set := func() acp.ID { return tc.request(acp.MethodSessionSetMode, `{"sessionId":"`+s+`","modeId":"x"}`) }
		open := map[acp.ID]bool{set(): true}
		turn := tc.request(acp.MethodSessionPrompt, prompt(s, "said"))
		open[set()] = true
		m := <-opening
		a.conn().result(m, `{}`)
		for len(open) > 0 { // their time is over at one moment, and any of them is told first
			res := tc.next()
			if open[res.ID()] && (res.Err() == nil || !strings.Contains(string(res.Err().Data), `"status":504`)) {
				t.Errorf("a request that is not read: %s", res.Frame())
			}
			delete(open, res.ID())
		}
		for m := other.next(); texts([]acp.Message{m}) != "user:said"; m = other.next() {
			continue
		}
		close(reads)
		a.conn().crash(errCrash)
		tc.until(turn)
	})
}

// What an agent keeps of a session that is to be deleted, whose every process ends when it is asked, comes back by its native id: the
// session is not told as deleted.
func TestDelete_MeetsACrashEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`}
		a.handle = func(c *fakeConn, m acp.Message) {
			switch {
			case m.Method() == acp.MethodSessionNew:
				c.newSession(m)
			case m.Method() == acp.MethodSessionDelete && !well.Load():
				c.crash(errCrash)
			case m.IsRequest():
				c.result(m, `{}`)
			}
		}
		tc := connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"}), "")
		params := `{"sessionId":"` + tc.session() + `"}`
		tc.callErr(acp.MethodSessionDelete, params)
		well.Store(true)
		tc.call(acp.MethodSessionDelete, params)
	})
}

// An agent that does not answer when it is asked to delete a session has not deleted it: another process is asked, and where that does
// not answer either the client is told. The session can be deleted again.
func TestDelete_MeetsAnAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Int32 // how often
		a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`}
		a.handle = func(c *fakeConn, m acp.Message) {
			switch {
			case m.Method() == acp.MethodSessionNew:
				c.newSession(m)
			case m.Method() == acp.MethodSessionDelete && hangs.Add(-1) >= 0:
			case m.IsRequest():
				c.result(m, `{}`)
			}
		}
		tc := connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"}), "")
		for _, dormant := range []bool{false, true} {
			params := `{"sessionId":"` + tc.session() + `"}`
			if dormant {
				a.conn().crash(errCrash)
				synctest.Wait()
			}
			if hangs.Store(2); dormant {
				hangs.Store(1)
			}
			if e := tc.callErr(acp.MethodSessionDelete, params); !strings.Contains(e.Message, "delete it again") || !strings.Contains(string(e.Data), `"status":504`) {
				t.Errorf("dormant %t: %v %s", dormant, e, e.Data)
			}
			if e := tc.callErr(acp.MethodSessionPrompt, prompt(rawjson.MemberString([]byte(params), "sessionId"), "x")); !strings.Contains(e.Message, "is closed") {
				t.Error(e)
			}
			tc.call(acp.MethodSessionDelete, params)
		}
		hangs.Store(1)
		tc.call(acp.MethodSessionDelete, `{"sessionId":"`+tc.session()+`"}`)
		if hangs.Load() >= 0 {
			t.Error("the session is told as deleted, and no other process was asked")
		}
	})
}

// What a process has not deleted that hung, or ended, when it was asked is not told as deleted when no other one starts either.
func TestDelete_MeetsAnAgentThatThenDoesNotStart(t *testing.T) {
	for _, dies := range []bool{false, true} {
		for _, refuses := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var well atomic.Bool
				g := newGated(&fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"delete":{}}}`})
				g.handle = func(c *fakeConn, m acp.Message) {
					switch {
					case m.Method() == acp.MethodSessionNew:
						c.newSession(m)
					case m.Method() != acp.MethodSessionDelete:
					case well.Load():
						c.result(m, `{}`)
					case dies:
						c.crash(errCrash)
					}
				}
				g.let <- nil
				tc := connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{g}, DefaultAgent: g.id}), "")
				<-g.starting
				params := `{"sessionId":"` + tc.session() + `"}`
				id := tc.request(acp.MethodSessionDelete, params)
				<-g.starting
				if refuses {
					g.let <- errCrash
				}
				if _, res := tc.until(id); res.Err() == nil {
					t.Errorf("it dies %t, and the next refuses %t: %s", dies, refuses, res.Frame())
				}
				well.Store(true)
				g.let <- nil
				tc.call(acp.MethodSessionDelete, params)
			})
		}
	}
}
