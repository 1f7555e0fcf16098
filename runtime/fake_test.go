package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const wait = time.Minute // machines are slow

// fakeAgent is an adapter whose agent is a function in this process.
type fakeAgent struct {
	id     string
	caps   string // agentCapabilities; "" is {}
	info   adapters.Info
	handle func(a *fakeConn, m acp.Message)
	shared chan sent // gets what all its processes are sent; nil for one channel each
	// machine is what its processes are to the operating system; nil for none.
	machine *fakeMachine

	mu      sync.Mutex
	conns   []*fakeConn
	options []adapters.Options // of each conn
}

func (f *fakeAgent) Info() adapters.Info {
	info := f.info
	info.ID, info.Name, info.Kind = f.id, f.id, cmp.Or(info.Kind, adapters.Bridge)
	return info
}

func (f *fakeAgent) Open(_ context.Context, o adapters.Options) (acp.Conn, error) {
	c := &fakeConn{agent: f, out: make(chan acp.Message, 1024), end: make(chan struct{}), got: make(chan acp.Message, 1024)}
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.options = append(f.options, o)
	f.mu.Unlock()
	if f.machine != nil {
		return &fakeProcess{c, f.machine}, nil
	}
	return c, nil
}

// fakeMachine has processes of a size, with commands that still run.
type fakeMachine struct {
	rss int64

	mu       sync.Mutex
	began    time.Time
	commands map[*fakeConn]int64 // when one was started
}

type fakeProcess struct {
	*fakeConn
	m *fakeMachine
}

var (
	_ adapters.Process   = (*fakeProcess)(nil)
	_ adapters.Commander = (*fakeProcess)(nil)
)

func (p *fakeProcess) PID() int                { return 1 }
func (p *fakeProcess) StartedAt() time.Time    { return p.m.began }
func (p *fakeProcess) RSS() int64              { return p.m.rss }
func (p *fakeProcess) Stderr() adapters.Stderr { return adapters.Stderr{} }
func (p *fakeProcess) Now() int64              { return p.m.now() }

func (p *fakeProcess) Commands() []int64 {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if at, ok := p.m.commands[p.fakeConn]; ok {
		return []int64{at}
	}
	return nil
}

func (m *fakeMachine) now() int64 { return int64(time.Since(m.began)/time.Millisecond) + 1 }

// start starts a command of the process now, stop ends it.
func (m *fakeMachine) start(c *fakeConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commands == nil {
		m.commands = map[*fakeConn]int64{}
	}
	m.commands[c] = m.now()
}

func (m *fakeMachine) stop(c *fakeConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.commands, c)
}

// conn returns the process that was opened last.
func (f *fakeAgent) conn() *fakeConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns[len(f.conns)-1]
}

func (f *fakeAgent) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

type fakeConn struct {
	agent *fakeAgent
	out   chan acp.Message
	got   chan acp.Message // what the agent was sent and handle did not take
	end   chan struct{}
	once  sync.Once
	cause error
	n     int
}

func (c *fakeConn) Read(context.Context) (acp.Message, error) {
	select {
	case m := <-c.out:
		return m, nil
	default:
	}
	select {
	case m := <-c.out:
		return m, nil
	case <-c.end:
		if c.cause != nil {
			return acp.Message{}, c.cause
		}
		return acp.Message{}, io.EOF
	}
}

func (c *fakeConn) Buffered() bool { return len(c.out) > 0 }

func (c *fakeConn) Write(_ context.Context, m acp.Message) error {
	m = m.Clone()
	if m.Method() == "initialize" {
		caps := c.agent.caps
		if caps == "" {
			caps = "{}"
		}
		c.result(m, `{"protocolVersion":1,"agentCapabilities":`+caps+`,"unknown":{"kept":[1.0]}}`)
		return nil
	}
	if m.Method() == "session/new" && c.agent.handle == nil {
		c.newSession(m)
		return nil
	}
	if c.agent.handle != nil {
		c.agent.handle(c, m)
		return nil
	}
	if c.agent.shared != nil {
		c.agent.shared <- sent{c, m}
		return nil
	}
	c.got <- m
	return nil
}

var anyCredentials = adapters.CredentialUse{APIKey: true, OAuthToken: true, BaseURL: true}

// sent is a message to one of an agent's processes.
type sent struct {
	to *fakeConn
	m  acp.Message
}

// nextOf returns the next message to any of the agent's processes.
func (f *fakeAgent) nextOf(t *testing.T, method string) sent {
	t.Helper()
	select {
	case s := <-f.shared:
		if s.m.Method() != method {
			t.Fatalf("the agent was sent %s, want method %q", s.m.Frame(), method)
		}
		return s
	case <-time.After(wait):
		t.Fatalf("the agent was not sent %q", method)
	}
	panic("unreachable")
}

// optionsOf returns what one of the agent's processes was started with.
func (f *fakeAgent) optionsOf(c *fakeConn) adapters.Options {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.options[slices.Index(f.conns, c)]
}

// byHand has the test answer all that comes, also session/new: see nextOf.
func (f *fakeAgent) byHand() {
	f.handle = func(c *fakeConn, m acp.Message) { f.shared <- sent{c, m} }
}

func (f *fakeAgent) answer(s sent, result string) { s.to.result(s.m, result) }

func (f *fakeAgent) refuse(s sent, why string) {
	s.to.out <- acp.NewError(s.m.ID(), acp.Errorf(acp.CodeInternal, "%s", why))
}

func (c *fakeConn) newSession(m acp.Message) {
	c.n++
	c.result(m, fmt.Sprintf(`{"sessionId":"native-%d","extra":[true]}`, c.n))
}

func (c *fakeConn) Close() error { c.crash(nil); return nil }

// lives reports whether the process has not ended.
func (c *fakeConn) lives() bool {
	select {
	case <-c.end:
		return false
	default:
		return true
	}
}

func (c *fakeConn) crash(cause error) {
	c.once.Do(func() { c.cause = cause; close(c.end) })
}

func (c *fakeConn) send(frame string) {
	m, err := acp.Parse([]byte(frame))
	if err != nil {
		panic(err)
	}
	c.out <- m
}

func (c *fakeConn) result(m acp.Message, result string) {
	c.out <- acp.NewResult(m.ID(), []byte(result))
}

func (c *fakeConn) chunk(session, text string) {
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}`)
}

// next returns the agent's next message.
func (c *fakeConn) next(t *testing.T, method string) acp.Message {
	t.Helper()
	select {
	case m := <-c.got:
		if m.Method() != method {
			t.Fatalf("the agent was sent %s, want method %q", m.Frame(), method)
		}
		return m
	case <-time.After(wait):
		t.Fatalf("the agent was not sent %q", method)
	}
	panic("unreachable")
}

func newRuntime(t *testing.T, dir string, agents ...*fakeAgent) *Runtime {
	t.Helper()
	o := Options{DataDir: dir, Version: "test"}
	for _, a := range agents {
		if a.id == "" {
			a.id = "fake"
		}
		o.Adapters = append(o.Adapters, a)
	}
	o.DefaultAgent = agents[0].id
	return openRuntime(t, o)
}

// running are the gateways of folders. A folder has one at a time, as behind the lock that the program takes.
var running sync.Map

func openRuntime(t *testing.T, o Options) *Runtime {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if had, ok := running.Swap(o.DataDir, r); ok && !had.(*Runtime).closing.Load() {
		t.Errorf("%s has a gateway: end it, or take what it would leave with killed.Folder", o.DataDir)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		running.CompareAndDelete(o.DataDir, r)
	})
	return r
}

// testClient is a client with one stream. Every frame it is given is validated.
type testClient struct {
	t      *testing.T
	r      *Runtime
	c      acp.Client
	st     acp.Stream
	rec    *acptest.Recorder
	frames chan acp.Message
	lastID int
	done   chan struct{}
}

func connect(t *testing.T, r *Runtime, caps string) *testClient {
	t.Helper()
	if caps == "" {
		caps = `{"_meta":{"sandboxagent.dev":{"notices":true}}}`
	}
	return connectAs(t, r, 1, `{"protocolVersion":1,"clientCapabilities":`+caps+`}`, acp.OneStream)
}

// connectTwo connects a client of version 2 of the protocol.
func connectTwo(t *testing.T, r *Runtime, caps string) *testClient {
	t.Helper()
	if caps == "" {
		caps = "{}"
	}
	return connectAs(t, r, 2, `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":`+caps+`}`, acp.OneStream)
}

func connectAs(t *testing.T, r *Runtime, version int, initialize string, shape acp.Shape) *testClient {
	t.Helper()
	tc := &testClient{t: t, r: r, rec: acptest.NewRecorderFor(t, version), frames: make(chan acp.Message, 4096), done: make(chan struct{})}
	m := acp.NewRequest("0", "initialize", []byte(initialize))
	if err := tc.rec.CheckClient(m.Frame()); err != nil {
		t.Fatal(err)
	}
	c, rep, err := r.Connect(t.Context(), m, acp.ConnectOptions{Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.rec.Gateway(rep.Frame); err != nil {
		t.Fatal(err)
	}
	tc.c = c
	if tc.st, err = c.Stream("", nil); err != nil {
		t.Fatal(err)
	}
	go tc.read()
	t.Cleanup(tc.close)
	return tc
}

func (tc *testClient) read() {
	defer close(tc.done)
	for {
		select {
		case <-tc.st.Wake():
			events, err := tc.st.Poll(64 << 10)
			if err != nil {
				return
			}
			for _, e := range events {
				if err := tc.rec.Gateway(e.Frame); err != nil {
					tc.t.Errorf("invalid frame %s: %v", e.Frame, err)
				}
				m := acp.MustParse(e.Frame)
				tc.frames <- m.Clone()
			}
			tc.st.Written()
		case <-tc.st.Done():
			return
		}
	}
}

func (tc *testClient) close() {
	tc.c.Close()
	<-tc.done
}

func (tc *testClient) send(frame string) {
	tc.t.Helper()
	tc.rec.Client([]byte(frame))
	m, err := acp.Parse([]byte(frame))
	if err != nil {
		tc.t.Fatal(err)
	}
	if err := tc.c.Send(context.Background(), m); err != nil {
		tc.t.Fatal(err)
	}
}

// request sends a request and returns its id.
func (tc *testClient) request(method, params string) acp.ID {
	tc.t.Helper()
	tc.lastID++
	id := acp.IntID(int64(tc.lastID))
	tc.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// next returns the next frame.
func (tc *testClient) next() acp.Message {
	tc.t.Helper()
	select {
	case m := <-tc.frames:
		return m
	case <-time.After(wait):
		tc.t.Fatal("no frame came")
	}
	panic("unreachable")
}

// until returns the frames up to the response to id, and the response.
func (tc *testClient) until(id acp.ID) (before []acp.Message, res acp.Message) {
	tc.t.Helper()
	for {
		m := tc.next()
		if m.IsResponse() && m.ID() == id {
			return before, m
		}
		before = append(before, m)
	}
}

// call sends a request and returns its result; it fails on an error.
func (tc *testClient) call(method, params string) string {
	tc.t.Helper()
	_, res := tc.until(tc.request(method, params))
	if res.Err() != nil {
		tc.t.Fatalf("%s: %v", method, res.Err())
	}
	return string(res.Result())
}

// callErr sends a request that must fail.
func (tc *testClient) callErr(method, params string) *acp.Error {
	tc.t.Helper()
	_, res := tc.until(tc.request(method, params))
	if res.Err() == nil {
		tc.t.Fatalf("%s %s: no error but %s", method, params, res.Result())
	}
	typ := rawjson.MemberString(res.Err().Data, "type")
	if problem.Kind(strings.TrimPrefix(typ, problem.Prefix)).Status() == 0 {
		tc.t.Errorf("%s: the error's type %q is none of the table", method, typ)
	}
	return res.Err()
}

// session makes a session and returns its id.
func (tc *testClient) session() string {
	tc.t.Helper()
	return rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`)), "sessionId")
}

func prompt(session, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text)
}

// texts returns the texts of message chunks, with a prefix for the user's.
func texts(ms []acp.Message) string {
	var out []string
	for _, m := range ms {
		switch string(m.UpdateKind()) {
		case "agent_message_chunk":
			out = append(out, rawjson.MemberString(m.Update(), "content", "text"))
		case "user_message_chunk":
			out = append(out, "user:"+rawjson.MemberString(m.Update(), "content", "text"))
		}
	}
	return strings.Join(out, " ")
}

func seqOf(m acp.Message) string {
	v, _ := rawjson.Member(m.Params(), "_meta", acp.MetaKey, "seq")
	return string(v)
}

var errCrash = &adapters.ExitError{Code: 3, Stderr: adapters.Stderr{Head: "boom", Tail: "boom", TotalLines: 1}}

func adaptersOf(a *fakeAgent) []adapters.Adapter { return []adapters.Adapter{a} }

// decoded is what a JSON text means; nil for none.
func decoded(text string) (v any) {
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	return v
}
