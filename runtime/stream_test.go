package runtime

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// inlineClient is a connection with responses beside its stream.
func inlineClient(t *testing.T, r *Runtime) acp.Client {
	t.Helper()
	c, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.Inline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func inlineCall(t *testing.T, c acp.Client, id, method, params string) acp.Reply {
	t.Helper()
	ch, err := c.Call(t.Context(), acp.NewRequest(acp.ID(id), method, []byte(params)))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case rep := <-ch:
		return rep
	case <-time.After(wait):
		t.Fatalf("%s was not answered", method)
	}
	panic("unreachable")
}

// collect reads n events of the stream.
func collect(t *testing.T, st acp.Stream, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		select {
		case <-st.Wake():
			events, err := st.Poll(1 << 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				out = append(out, fmt.Sprintf("%d %s", e.ID, e.Frame))
			}
			st.Written()
		case <-time.After(wait):
			t.Fatalf("%d of %d events came", len(out), n)
		}
	}
	return out
}

func kindOf(t *testing.T, err error) problem.Kind {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return problem.From(err).Kind
}

func TestStream_LastEventIDReplaysExactlyWhatFollows(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	c := inlineClient(t, r)
	var sessions []string
	for i := range 2 {
		rep := inlineCall(t, c, fmt.Sprint(i), "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		sessions = append(sessions, rawjson.MemberString(rep.Frame, "result", "sessionId"))
	}
	for i := range 60 { // both sessions interleave, and responses leave holes
		n := i % 2
		ch, err := c.Call(t.Context(), acp.NewRequest(acp.ID(fmt.Sprint(10+i)), "session/prompt", []byte(prompt(sessions[n], "x"))))
		if err != nil {
			t.Fatal(err)
		}
		p := a.conn().next(t, "session/prompt")
		a.conn().chunk(p.Session(), fmt.Sprintf("%d-a", i))
		a.conn().chunk(p.Session(), fmt.Sprintf("%d-b", i))
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		<-ch
	}
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := collect(t, st, 120)
	for i, e := range all {
		if !strings.HasPrefix(e, fmt.Sprint(i+1, " ")) {
			t.Fatalf("event %d is %s", i+1, e)
		}
	}
	if _, err := c.Stream("", nil); kindOf(t, err) != problem.Conflict {
		t.Errorf("second stream: %v", err)
	}
	for _, after := range []uint64{0, 1, 57, 119, 120} {
		next, err := c.Stream("", &after)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-st.Done():
		case <-time.After(wait):
			t.Fatal("the old stream was not ended")
		}
		st.Close()
		if got := collect(t, next, 120-int(after)); strings.Join(got, "\n") != strings.Join(all[after:], "\n") {
			t.Errorf("after %d: %d events, the first %.80s", after, len(got), got[0])
		}
		st = next
	}
	ahead := uint64(121)
	if _, err := c.Stream("", &ahead); kindOf(t, err) != problem.InvalidRequest {
		t.Errorf("an event that never was: %v", err)
	}
	st.Close()
}

func TestStream_PerSessionStreamsAreIndependent(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	c, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.PerSession})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(id, method, params string) {
		if err := c.Send(t.Context(), acp.NewRequest(acp.ID(id), method, []byte(params))); err != nil {
			t.Fatal(err)
		}
	}
	unknown, err := c.Stream("native-1", nil) // before the session exists
	if err != nil {
		t.Fatal(err)
	}
	defer unknown.Close()
	main, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer main.Close()
	send("1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	if got := collect(t, main, 1); !strings.Contains(got[0], `"sessionId":"native-1"`) {
		t.Errorf("connection stream: %s", got)
	}
	send("2", "session/prompt", prompt("native-1", "x"))
	p := a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "hi")
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	if got := collect(t, unknown, 2); !strings.Contains(got[0], "hi") || !strings.Contains(got[1], "end_turn") {
		t.Errorf("session stream: %s", got)
	}
	send("3", "session/load", `{"sessionId":"native-1","cwd":"/tmp","mcpServers":[]}`)
	if got := collect(t, unknown, 2); !strings.Contains(got[0], "user_message_chunk") || !strings.Contains(got[1], "hi") {
		t.Errorf("replay: %s", got)
	}
	if got := collect(t, main, 1); !strings.Contains(got[0], `"id":3`) {
		t.Errorf("response to load: %s", got)
	}
}

func TestConnection_WithoutStreamOrRequestEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake"}
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", ConnectionGrace: time.Second})
		idle, held := inlineClient(t, r), inlineClient(t, r)
		st, err := held.Stream("", nil)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-idle.Done():
		case <-time.After(wait):
			t.Fatal("the connection was not ended")
		}
		select {
		case <-held.Done():
			t.Error("a connection with a stream was ended")
		default:
		}
		st.Close()
		if _, err := idle.Stream("", nil); kindOf(t, err) != problem.ClientNotFound {
			t.Errorf("stream of an ended connection: %v", err)
		}
	})
}

func TestAsk_OverTheLimitIsRefused(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	p := a.conn().next(t, "session/prompt")
	for i := range 64 + 1 {
		a.conn().send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`, i))
	}
	if got := a.conn().next(t, ""); got.ID() != acp.IntID(64) || got.Err() == nil {
		t.Errorf("got %s", got.Frame())
	}
	if got := tc.call("_sandboxagent/session/pending", `{"sessionId":"`+s+`"}`); strings.Count(got, `"requestId"`) != 64 {
		t.Errorf("pending: %.200s", got)
	}
	// They are open until somebody decides, also when the turn has ended.
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	tc.until(id)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.Pending == 64 && i.State == StateWaiting })
	tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.Pending == 0 && i.State == StateIdle })
}

func TestEphemeral_SaysWhatItNoLongerHas(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := openRuntime(t, Options{Ephemeral: true, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	c := inlineClient(t, r)
	rep := inlineCall(t, c, "1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	s := rawjson.MemberString(rep.Frame, "result", "sessionId")
	ch, err := c.Call(t.Context(), acp.NewRequest("2", "session/prompt", []byte(prompt(s, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	p := a.conn().next(t, "session/prompt")
	big := strings.Repeat("x", 1<<20)
	for range 80 {
		a.conn().chunk("native-1", big)
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	<-ch
	if _, err := c.Stream("", nil); kindOf(t, err) != problem.EventsExpired {
		t.Errorf("first stream: %v", err)
	}
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if got := collect(t, st, 50); !strings.HasPrefix(got[0], "1 ") {
		t.Errorf("got %.40s", got[0])
	}
	if _, _, err := r.Events(t.Context(), s, 0, 10); kindOf(t, err) != problem.EventsExpired {
		t.Errorf("events: %v", err)
	}
}

// A client that is behind when the gateway ends is still given what left memory
// long ago, as long as it reads.
func TestShutdown_ClientThatIsBehindIsGivenTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a busy machine may be slower than a client is waited for
		a := &fakeAgent{id: "fake"}
		r := newRuntime(t, t.TempDir(), a)
		c := inlineClient(t, r)
		rep := inlineCall(t, c, "1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		s := rawjson.MemberString(rep.Frame, "result", "sessionId")
		ch, err := c.Call(t.Context(), acp.NewRequest("2", "session/prompt", []byte(prompt(s, "x"))))
		if err != nil {
			t.Fatal(err)
		}
		p := a.conn().next(t, "session/prompt")
		st, err := c.Stream("", nil)
		if err != nil {
			t.Fatal(err)
		}
		big := strings.Repeat("x", 1<<20)
		const chunks = 3 * journal.DefaultMemory >> 20
		for range chunks {
			a.conn().chunk("native-1", big)
		}
		a.conn().result(p, `{"stopReason":"end_turn"}`)
		<-ch
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			ended <- r.Shutdown(ctx)
		}()
		<-a.conn().end // by now the agent is gone
		n := 0
		for n < chunks {
			events, err := st.Poll(64 << 10)
			if err != nil {
				t.Fatalf("after %d chunks: %v", n, err)
			}
			for _, e := range events {
				if strings.Contains(string(e.Frame), big) {
					n++
				}
			}
			st.Written()
			select {
			case <-st.Wake():
				time.Sleep(20 * time.Millisecond) // a slow line
			case <-time.After(wait):
				t.Fatalf("%d of %d chunks came", n, chunks)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What was handed to a stream that broke is written once its successor has
// replayed it: nobody waits for it any longer.
func TestStream_ReplayedEventsCountAsWritten(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := newRuntime(t, t.TempDir(), a)
	c := inlineClient(t, r)
	rep := inlineCall(t, c, "1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	s := rawjson.MemberString(rep.Frame, "result", "sessionId")
	broken, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.Call(t.Context(), acp.NewRequest("2", "session/prompt", []byte(prompt(s, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	p := a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "one")
	for len(must(t)(broken.Poll(64<<10))) == 0 {
		<-broken.Wake()
	}
	a.conn().result(p, `{"stopReason":"end_turn"}`)
	res := <-ch
	must(t)(broken.Poll(64 << 10)) // all is handed out, and nothing is written
	after := uint64(0)
	st, err := c.Stream("", &after)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	settled := make(chan uint64, 1)
	go func() { settled <- c.AwaitWritten(t.Context(), res, wait) }()
	for {
		select {
		case <-st.Wake():
			must(t)(st.Poll(64 << 10))
			st.Written()
		case n := <-settled:
			if n == 0 {
				t.Error("no event is named")
			}
			return
		case <-time.After(wait / 2):
			t.Fatal("the response is held although all was written")
		}
	}
}

func must(t *testing.T) func([]acp.Event, error) []acp.Event {
	return func(events []acp.Event, err error) []acp.Event {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
}
