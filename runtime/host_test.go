package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// hostTools answers reads with what it was asked, and waits at wait_for_exit.
type hostTools struct {
	waiting chan struct{} // one for each call that waits

	mu    sync.Mutex
	ended []string
	hold  chan struct{} // what was left ends when it is closed; nil is at once
}

func (h *hostTools) Call(ctx context.Context, session, cwd, method string, params json.RawMessage) (any, error) {
	switch method {
	case acp.MethodFSReadTextFile:
		path := rawjson.MemberString(params, "path")
		if path == "/none" {
			return nil, problem.New(problem.NotFound, "there is no %s", path)
		}
		return map[string]string{"content": cwd + path + " of " + rawjson.MemberString(params, "sessionId")}, nil
	case acp.MethodTerminalWaitForExit:
		h.waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, problem.New(problem.NotSupported, "no %s", method)
}

func (h *hostTools) End(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, session)
}

func (h *hostTools) Wait(ctx context.Context, session string) {
	h.mu.Lock()
	ended := slices.Contains(h.ended, session)
	h.mu.Unlock()
	if ended && h.hold != nil {
		select {
		case <-h.hold:
		case <-ctx.Done():
		}
	}
}

func withHostTools(t *testing.T, a *fakeAgent) (*Runtime, *hostTools) {
	t.Helper()
	a.id = "fake"
	h := &hostTools{waiting: make(chan struct{}, 1000)}
	return openRuntime(t, Options{Adapters: adaptersOf(a), DefaultAgent: "fake", DataDir: t.TempDir(), HostTools: h}), h
}

func TestHostTools_AnswerForClientsThatOfferNone(t *testing.T) {
	a := &fakeAgent{}
	r, h := withHostTools(t, a)
	none := connect(t, r, "")
	s := none.session()
	c := a.conn()
	ask := func(id, method, params string) acp.Message {
		t.Helper()
		c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"sessionId":"native-1"` + params + `}}`)
		return c.next(t, "")
	}
	if m := ask("7", "fs/read_text_file", `,"path":"/f"`); m.ID() != "7" || rawjson.MemberString(m.Result(), "content") != "/tmp/f of native-1" {
		t.Errorf("answer %s", m.Frame())
	}
	if m := ask(`"x"`, "fs/read_text_file", `,"path":"/none"`); m.ID() != `"x"` || m.Err() == nil || m.Err().Code != acp.CodeResourceNotFound {
		t.Errorf("answer %s", m.Frame())
	}
	if m := ask("8", "elicitation/create", ""); m.Err() == nil || m.Err().Code != acp.CodeMethodNotFound {
		t.Errorf("what is no tool is not refused: %s", m.Frame())
	}
	// What the agent does not want any more is cancelled.
	c.send(`{"jsonrpc":"2.0","id":9,"method":"terminal/wait_for_exit","params":{"sessionId":"native-1","terminalId":"t"}}`)
	<-h.waiting
	if m := ask("9", "fs/read_text_file", `,"path":"/f"`); m.Err() == nil || m.Err().Code != acp.CodeInvalidRequest {
		t.Errorf("an id that is used twice: %s", m.Frame())
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`)
	if m := c.next(t, ""); m.ID() != "9" || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
		t.Errorf("answer %s", m.Frame())
	}
	// There is a bound, which is said.
	for i := range 256 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"terminal/wait_for_exit","params":{"sessionId":"native-1","terminalId":"t"}}`, 1000+i))
		<-h.waiting
	}
	if m := ask("10", "fs/read_text_file", `,"path":"/f"`); m.Err() == nil || !strings.Contains(m.Err().Message, "256") {
		t.Errorf("answer %s", m.Frame())
	}
	// A client that offers it is asked, also beside one that does not.
	offers := connect(t, r, `{"fs":{"readTextFile":true}}`)
	offers.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.send(`{"jsonrpc":"2.0","id":11,"method":"fs/read_text_file","params":{"sessionId":"native-1","path":"/g"}}`)
	m := offers.next()
	for m.Method() != "fs/read_text_file" {
		m = offers.next()
	}
	offers.send(`{"jsonrpc":"2.0","id":` + string(m.ID()) + `,"result":{"content":"the client's"}}`)
	if m := c.next(t, ""); m.ID() != "11" || rawjson.MemberString(m.Result(), "content") != "the client's" {
		t.Errorf("answer %s", m.Frame())
	}
	// The agent's end is that of its calls and of what it left.
	c.crash(errCrash)
	for end := time.Now().Add(wait); ; {
		h.mu.Lock()
		n := len(h.ended)
		h.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody ended what the agent left")
		}
		time.Sleep(time.Millisecond) // the crash travels on its own
	}
	h.mu.Lock()
	if h.ended[0] != s {
		t.Errorf("ended %q", h.ended)
	}
	h.mu.Unlock()
}

// The agent's process goes on for another session.
func TestHostTools_TheSessionIsClosed(t *testing.T) {
	a := &fakeAgent{}
	r, h := withHostTools(t, a)
	tc := connect(t, r, "")
	s, other := tc.session(), tc.session()
	c := a.conn()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"terminal/wait_for_exit","params":{"sessionId":"native-1","terminalId":"t"}}`)
	<-h.waiting
	closed := tc.request("session/close", `{"sessionId":"`+s+`"}`)
	if m := c.next(t, ""); m.ID() != "1" || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
		t.Errorf("answer %s", m.Frame())
	}
	tc.until(closed)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"fs/read_text_file","params":{"sessionId":"native-2","path":"/f"}}`)
	if m := c.next(t, ""); m.ID() != "3" || m.Err() != nil {
		t.Errorf("session %s: answer %s", other, m.Frame())
	}
}

// Who is told that a session has stopped finds nothing of what its agent has left running, which ends in its own time: also
// where the agent has ended before, and for who comes second.
func TestHostTools_AStopWaitsForWhatWasLeft(t *testing.T) {
	for n, how := range []string{
		acp.MethodSessionClose, acp.MethodSessionDelete, "_sandboxagent/session/terminate",
		acp.MethodSessionClose, acp.MethodSessionDelete, "_sandboxagent/session/terminate",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &hostTools{hold: make(chan struct{})}
			a := &fakeAgent{id: "fake"}
			r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", HostTools: h})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "{}")
			s := tc.session()
			if n >= 3 {
				a.conn().crash(errCrash)
				synctest.Wait()
			}
			id := tc.request(how, `{"sessionId":"`+s+`"}`)
			synctest.Wait()
			for len(tc.frames) > 0 {
				if m := tc.next(); m.ID() == id {
					t.Errorf("%s: answered too soon: %s", how, m.Frame())
				}
			}
			close(h.hold)
			if _, res := tc.until(id); res.Err() != nil {
				t.Errorf("%s: %s", how, res.Frame())
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A client that offers files and is away is waited for.
func TestHostTools_ClientThatIsAway(t *testing.T) {
	a := &fakeAgent{}
	r, _ := withHostTools(t, a)
	tc := connect(t, r, `{"fs":{"readTextFile":true,"writeTextFile":true}}`)
	s := tc.session()
	tc.call("_sandboxagent/session/detach", `{"sessionId":"`+s+`"}`)
	c := a.conn()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"native-1","path":"/g"}}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"terminal/output","params":{"sessionId":"native-1","terminalId":"/g"}}`)
	if m := c.next(t, ""); m.ID() != "2" || m.Err() == nil {
		t.Errorf("answer %s", m.Frame())
	}
	seen, _ := tc.until(tc.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`))
	seen = slices.DeleteFunc(seen, func(m acp.Message) bool { return m.Method() != "fs/read_text_file" })
	for len(seen) == 0 {
		if m := tc.next(); m.Method() == "fs/read_text_file" {
			seen = append(seen, m)
		}
	}
	m := seen[0]
	tc.send(`{"jsonrpc":"2.0","id":` + string(m.ID()) + `,"result":{"content":"x"}}`)
	if m := c.next(t, ""); m.ID() != "1" {
		t.Errorf("answer %s", m.Frame())
	}
}

// Agents are told of what there is, and those that are told the same share a
// process.
func TestHostTools_Capabilities(t *testing.T) {
	all := `{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true}`
	for caps, want := range map[string]string{
		`{}`:                             all,
		`{"terminal":false}`:             all,
		`{"fs":null}`:                    all,
		`{"terminal":true,"fs":{}}`:      all,
		`{"fs":{"writeTextFile":false}}`: all,
		`{"elicitation":{"form":{}}}`:    `{"elicitation":{"form":{}},` + all[1:],
		`{"fs":{"_meta":{"a":1}}}`:       `{"fs":{"_meta":{"a":1},"readTextFile":true,"writeTextFile":true},"terminal":true}`,
	} {
		with, _ := session.NewSet(session.Options{HostTools: &hostTools{}})
		if got := string(with.Offered([]byte(caps))); got != want {
			t.Errorf("%s became %s, want %s", caps, got, want)
		}
		without, _ := session.NewSet(session.Options{})
		if got := string(without.Offered([]byte(caps))); got != caps {
			t.Errorf("without tools %s became %s", caps, got)
		}
	}
	a := &fakeAgent{}
	r, _ := withHostTools(t, a)
	connect(t, r, "").session()
	connect(t, r, `{"terminal":true,"fs":{"writeTextFile":true}}`).session()
	if n := a.opened(); n != 1 {
		t.Errorf("%d processes, want one", n)
	}
	connect(t, r, `{"elicitation":{"form":{}}}`).session()
	if n := a.opened(); n != 2 {
		t.Errorf("%d processes, want two", n)
	}
}
