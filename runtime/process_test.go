package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// newWith makes a session with the given _meta of ours.
func (tc *testClient) newWith(meta string) string {
	tc.t.Helper()
	return rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":`+meta+`}}`)), "sessionId")
}

func TestProcess_SharedByThoseWhoWantTheSame(t *testing.T) {
	a := &fakeAgent{info: adapters.Info{Credentials: anyCredentials}}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	for i, step := range []struct {
		meta   string
		opened int // processes after it
	}{
		{`{}`, 1},
		{`{"isolation":"agent"}`, 1},
		{`{"env":{"A":"1","B":"2"}}`, 2},
		{`{"env":{"B":"2","A":"1"}}`, 2},
		{`{"env":{"B":"3","A":"1"}}`, 3},
		{`{"credentials":{"apiKey":"k"}}`, 4},
		{`{"credentials":{"apiKey":"k"}}`, 4},
		{`{"credentials":{"apiKey":"other"}}`, 5},
		{`{"isolation":"session"}`, 6},
		{`{"isolation":"session"}`, 7},
		{`{}`, 7},
	} {
		tc.newWith(step.meta)
		if got := a.opened(); got != step.opened {
			t.Errorf("step %d, %s: %d processes were started, want %d", i, step.meta, got, step.opened)
		}
	}
	if got := a.options[1].Env; !slices.Equal(got, []string{"A=1", "B=2"}) {
		t.Errorf("environment %q", got)
	}
	if got := a.options[3].Credentials.APIKey; got != "k" {
		t.Errorf("API key %q", got)
	}
}

func TestProcess_BadWishesAreRefused(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{})
	tc := connect(t, r, "")
	for _, meta := range []string{`{"env":["A=1"]}`, `{"env":{"A":1}}`, `{"env":{"A=B":"1"}}`, `{"env":{"":"1"}}`, `{"env":{"A":"\u0000"}}`, `{"credentials":"k"}`, `{"credentials":{"apiKey":1}}`, `{"isolation":"planet"}`, `{"isolation":true}`} {
		for _, method := range []string{"session/new", "session/load"} {
			err := tc.callErr(method, `{"sessionId":"elsewhere","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":`+meta+`}}`)
			if err.Code != acp.CodeInvalidParams || !strings.Contains(err.Message, "must be") {
				t.Errorf("%s %s: %v", method, meta, err)
			}
		}
	}
}

func TestCredentials_ReachNeitherAgentInputNorDisk(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var sent []string
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`, info: adapters.Info{Credentials: anyCredentials}}
	a.handle = func(c *fakeConn, m acp.Message) {
		mu.Lock()
		sent = append(sent, string(m.Frame()))
		mu.Unlock()
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			c.result(m, `{}`)
		}
	}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.newWith(`{"credentials":{"apiKey":"TOPSECRET"},"title":"kept"}`)
	tc.call("session/prompt", prompt(s, "hi"))
	a.conn().crash(errCrash)
	for m := tc.next(); m.Method() != "_sandboxagent/session/ended"; {
		m = tc.next()
	}
	tc.call("session/prompt", prompt(s, "again"))
	if got := a.options[a.opened()-1].Credentials.APIKey; got != "TOPSECRET" {
		t.Errorf("restarted with API key %q", got)
	}
	mu.Lock()
	for _, frame := range sent {
		if strings.Contains(frame, "TOPSECRET") {
			t.Errorf("the agent was sent %s", frame)
		}
	}
	if !strings.Contains(sent[0], `"title":"kept"`) {
		t.Errorf("the rest of _meta is gone: %s", sent[0])
	}
	mu.Unlock()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), "TOPSECRET") {
				t.Errorf("%s: the key is there, or %v", path, err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPerSession_EverySessionHasItsProcess(t *testing.T) {
	a := &fakeAgent{info: adapters.Info{PerSession: true}, caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"fork":{}}}`}
	var mu sync.Mutex
	got := map[*fakeConn][]string{}
	a.handle = func(c *fakeConn, m acp.Message) {
		mu.Lock()
		got[c] = append(got[c], m.Method())
		mu.Unlock()
		switch m.Method() {
		case "session/new", "session/fork":
			c.result(m, fmt.Sprintf(`{"sessionId":"n-%d"}`, a.opened()))
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			c.result(m, `{}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	one, two := tc.session(), tc.session()
	tc.call("session/prompt", prompt(one, "hi"))
	tc.call("session/prompt", prompt(two, "hi"))
	fork := rawjson.MemberString([]byte(tc.call("session/fork", `{"sessionId":"`+one+`","cwd":"/tmp"}`)), "sessionId")
	tc.call("session/prompt", prompt(fork, "hi"))
	tc.call("session/load", `{"sessionId":"elsewhere","cwd":"/tmp","mcpServers":[]}`)
	mu.Lock()
	var each []string
	for _, c := range a.conns {
		each = append(each, strings.Join(got[c], " "))
	}
	mu.Unlock()
	want := []string{"", "session/new session/prompt", "session/new session/prompt", "session/fork session/prompt", "session/load"}
	if diff := cmp.Diff(want, each); diff != "" {
		t.Errorf("what each process was asked (-want +got):\n%s", diff)
	}
	// The crash of one is nobody else's.
	a.conns[1].crash(errCrash)
	for m := tc.next(); m.Method() != "_sandboxagent/session/ended"; {
		m = tc.next()
	}
	tc.call("session/prompt", prompt(two, "still there"))
	tc.call("session/prompt", prompt(one, "back"))
	if n := a.opened(); n != 6 {
		t.Errorf("%d processes were started, want 6", n)
	}
}

// fakeInstaller has a program after it was installed.
type fakeInstaller struct {
	mu       sync.Mutex
	has      map[string]bool // by agent@version
	installs []string
	gate     chan struct{} // an installation waits for it
	err      error
}

func (f *fakeInstaller) Find(agent, version string) (adapters.Program, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return adapters.Program{Path: "/" + agent, Version: version}, f.has[agent+"@"+version]
}

func (f *fakeInstaller) Install(ctx context.Context, agent, version string, progress func(adapters.InstallProgress)) (adapters.Program, error) {
	progress(adapters.InstallProgress{Agent: agent, Step: "download", Done: 1, Total: 2})
	select {
	case <-f.gate:
	case <-ctx.Done():
		return adapters.Program{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.installs = append(f.installs, agent+"@"+version)
	if f.err != nil {
		return adapters.Program{}, f.err
	}
	f.has[agent+"@"+version] = true
	return adapters.Program{Path: "/" + agent, Version: version}, nil
}

func (f *fakeInstaller) Keep(context.Context, adapters.Program) func() { return func() {} }

func TestInstall_OnFirstUseTellsItsProgress(t *testing.T) {
	in := &fakeInstaller{has: map[string]bool{}, gate: make(chan struct{})}
	plain := &fakeAgent{id: "plain"}
	missing := &fakeAgent{id: "missing", info: adapters.Info{Program: "thing"}}
	r := openRuntime(t, Options{DataDir: t.TempDir(), DefaultAgent: "plain", Adapters: []adapters.Adapter{plain, missing}, Installer: in})
	one, two := connect(t, r, ""), connect(t, r, "")
	params := `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"missing","agentVersion":"1.2"}}}`
	ids := map[*testClient]acp.ID{one: one.request("session/new", params), two: two.request("session/new", params)}
	m := one.next()
	if m.Method() != "_sandboxagent/agent/install_progress" || rawjson.MemberString(m.Params(), "agent") != "missing" || rawjson.MemberString(m.Params(), "step") != "download" {
		t.Fatalf("the first frame is %s", m.Frame())
	}
	close(in.gate)
	for tc, id := range ids {
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("session/new: %v", res.Err())
		}
	}
	if !slices.Equal(in.installs, []string{"thing@1.2"}) || missing.opened() != 1 {
		t.Errorf("installed %q, %d processes", in.installs, missing.opened())
	}
	if p := missing.options[0].Program; p.Path != "/thing" || p.Version != "1.2" {
		t.Errorf("started with program %+v", p)
	}
}

func TestInstall_ProgressBeforeInitializeWasAnswered(t *testing.T) {
	in := &fakeInstaller{has: map[string]bool{}, gate: make(chan struct{})}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{&fakeAgent{id: "a", info: adapters.Info{Program: "a"}}}, Installer: in})
	seen := make(chan string, 8)
	m := acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1,"clientCapabilities":{"_meta":{"sandboxagent.dev":{"notices":true}}}}`))
	c, _, err := r.Connect(t.Context(), m, acp.ConnectOptions{Agent: "a", Notify: func(frame []byte) {
		seen <- string(frame)
		close(in.gate)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := <-seen; !strings.Contains(got, `"method":"_sandboxagent/agent/install_progress"`) {
		t.Errorf("the client was told %s", got)
	}
}

func TestInstall_NotWithoutLeaveAndNotTwiceAfterAFailure(t *testing.T) {
	in := &fakeInstaller{has: map[string]bool{}, gate: make(chan struct{})}
	close(in.gate)
	a := &fakeAgent{id: "a", info: adapters.Info{Program: "thing"}}
	connectTo := func(r *Runtime) error {
		m := acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`))
		c, _, err := r.Connect(t.Context(), m, acp.ConnectOptions{Agent: "a"})
		if err == nil {
			c.Close()
		}
		return err
	}
	strict := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{a}, Installer: in, RequirePreinstall: true})
	err := connectTo(strict)
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.AgentNotInstalled || !strings.Contains(p.Error(), "sandbox-agent agents install thing") {
		t.Errorf("err %v", err)
	}
	in.err = problem.New(problem.Unavailable, "no network")
	lazy := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{a}, Installer: in})
	if err := connectTo(lazy); !errors.Is(err, in.err) {
		t.Errorf("err %v", err)
	}
	in.err = nil
	if err := connectTo(lazy); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
}

func TestInstall_EndsWithTheGateway(t *testing.T) {
	in := &fakeInstaller{has: map[string]bool{}, gate: make(chan struct{})}
	plain := &fakeAgent{id: "plain"}
	r, err := New(Options{DataDir: t.TempDir(), DefaultAgent: "plain", Adapters: []adapters.Adapter{plain, &fakeAgent{id: "a", info: adapters.Info{Program: "a"}}}, Installer: in})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"a"}}}`)
	tc.next() // progress: it has begun
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if _, res := tc.until(id); res.Err() == nil {
		t.Errorf("session/new was answered %s", res.Frame())
	}
}

// fakeCatalog knows one more agent.
type fakeCatalog struct{ agent *fakeAgent }

func (f fakeCatalog) Lookup(_ context.Context, id string) (adapters.Adapter, bool) {
	return f.agent, id == f.agent.id
}
func (f fakeCatalog) Known() []adapters.Adapter { return []adapters.Adapter{f.agent} }

func TestCatalog_AgentsAreUsedLikeOthers(t *testing.T) {
	more := &fakeAgent{id: "more"}
	dir := t.TempDir()
	o := Options{DataDir: dir, Adapters: []adapters.Adapter{&fakeAgent{id: "one"}}, DefaultAgent: "one", Catalog: fakeCatalog{more}}
	r := openRuntime(t, o)
	tc := connect(t, r, "")
	s := tc.newWith(`{"agent":"more"}`)
	id := tc.request("session/prompt", prompt(s, "hi"))
	more.conn().result(more.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	var ids []string
	for _, info := range r.Agents() {
		ids = append(ids, fmt.Sprint(info.ID, len(info.Processes)))
	}
	if !slices.Equal(ids, []string{"one1", "more1"}) {
		t.Errorf("agents %q", ids)
	}
	if err := tc.callErr("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"nobody"}}}`); !strings.Contains(err.Message, "nobody") {
		t.Errorf("unknown agent: %v", err)
	}
}

// slowCatalog answers when it is told to.
type slowCatalog struct {
	fakeCatalog
	asked, answer chan struct{}
}

func (s slowCatalog) Lookup(ctx context.Context, id string) (adapters.Adapter, bool) {
	s.asked <- struct{}{}
	<-s.answer
	return s.fakeCatalog.Lookup(ctx, id)
}

// What a client sends behind a request for an agent that nobody has used yet does not
// wait until the catalog has answered.
func TestCatalog_NobodyWaitsForALookup(t *testing.T) {
	for _, method := range []string{"session/new", "session/load"} {
		t.Run(method, func(t *testing.T) {
			more := &fakeAgent{id: "more"}
			slow := slowCatalog{fakeCatalog{more}, make(chan struct{}, 1), make(chan struct{})}
			r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{&fakeAgent{id: "one"}}, DefaultAgent: "one", Catalog: slow})
			tc := connect(t, r, "")
			first := tc.request(method, `{"sessionId":"elsewhere","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":"more"}}}`)
			<-slow.asked
			if tc.session() == "" {
				t.Error("the second request has no session")
			}
			close(slow.answer)
			if _, res := tc.until(first); method == "session/new" && res.Err() != nil { // it has no session to load
				t.Errorf("the first request was answered %s", res.Frame())
			}
		})
	}
}

func TestVendorRequest_WithNobodyAttachedIsRefused(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	tc.call("_sandboxagent/session/detach", `{"sessionId":"`+s+`"}`)
	a.conn().send(`{"jsonrpc":"2.0","id":5,"method":"vendor/drain","params":{"sessionId":"native-1"}}`)
	select {
	case m := <-a.conn().got:
		if m.ID() != "5" || m.Err() == nil || m.Err().Code != acp.CodeMethodNotFound {
			t.Errorf("the agent was answered %s", m.Frame())
		}
	case <-time.After(wait):
		t.Error("the agent was not answered")
	}
}

func TestReopen_ChoicesAreMadeAgain(t *testing.T) {
	const offer = `"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan"}]},
		"configOptions":[{"id":"m","name":"Model","category":"model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small"}]},
			{"id":"b","name":"Fast","type":"boolean","currentValue":false}]`
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	var mu sync.Mutex
	told := map[*fakeConn][]string{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.result(m, `{"sessionId":"n",`+offer+`}`)
		case "session/resume":
			c.result(m, `{`+offer+`}`)
		case "session/prompt":
			c.result(m, `{"stopReason":"end_turn"}`)
		case "session/set_config_option":
			mu.Lock()
			told[c] = append(told[c], string(m.Params()))
			mu.Unlock()
			c.result(m, `{"configOptions":[]}`)
		default:
			mu.Lock()
			told[c] = append(told[c], string(m.Params()))
			mu.Unlock()
			c.result(m, `{}`)
		}
	}
	dir := t.TempDir()
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(withID(a)), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	s := tc.session()
	tc.call("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
	tc.call("session/set_config_option", `{"sessionId":"`+s+`","configId":"m","value":"small"}`)
	tc.call("session/set_config_option", `{"sessionId":"`+s+`","configId":"b","type":"boolean","value":false}`)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	again := openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	tc = connect(t, again, "")
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.call("session/prompt", prompt(s, "hi"))
	mu.Lock()
	got := told[a.conn()]
	mu.Unlock()
	want := []string{`{"sessionId":"n","configId":"m","value":"small"}`, `{"sessionId":"n","modeId":"plan"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the new process was told (-want +got):\n%s", diff)
	}
}

func withID(a *fakeAgent) *fakeAgent {
	a.id = "fake"
	return a
}

// A process that does not answer gets no more sessions: neither when one could not be
// closed there, nor when one could not be made. Others go to a new process at once, also
// for a client that stays connected; the old one goes when its sessions have gone.
func TestProcess_HangsAndIsReplaced(t *testing.T) {
	for _, how := range []string{"close", "new"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"close":{}}}`}
				var hangs atomic.Bool
				var first atomic.Pointer[fakeConn]
				a.handle = func(c *fakeConn, m acp.Message) {
					first.CompareAndSwap(nil, c)
					if hangs.Load() && c == first.Load() {
						return
					}
					switch m.Method() {
					case acp.MethodSessionNew:
						c.newSession(m)
					case acp.MethodSessionClose:
						c.result(m, `{}`)
					}
				}
				r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Shutdown(context.Background()) }()
				tc, other := connect(t, r, ""), connect(t, r, "")
				s := tc.session()
				hangs.Store(true)
				if how == "close" {
					tc.call("session/close", `{"sessionId":"`+s+`"}`)
				} else if e := tc.callErr("session/new", `{"cwd":"/tmp","mcpServers":[]}`); !strings.Contains(e.Message, "answer") {
					t.Errorf("the session that was not made: %v", e)
				}
				for _, one := range []*testClient{tc, other, tc} {
					if one.session() == "" {
						t.Error("no session was made")
					}
				}
				if n := a.opened(); n != 2 {
					t.Errorf("%d processes were started, want 2", n)
				}
				if how == "new" {
					tc.call("session/close", `{"sessionId":"`+s+`"}`)
				}
				time.Sleep(5 * time.Minute) // nobody needs the first one
				if n := len(r.agents.Find("fake").Processes()); n != 1 {
					t.Errorf("%d processes live, want 1", n)
				}
				tc.close()
				other.close()
			})
		})
	}
}

// An agent that ignores cancel and answers everything else ends with the session that it
// works for, though its client stays connected.
func TestProcess_DeafWhileItsClientStays(t *testing.T) {
	for _, how := range []string{"session/close", "session/delete", "_sandboxagent/session/terminate"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"close":{},"delete":{}}}`}
				a.handle = func(c *fakeConn, m acp.Message) {
					switch m.Method() {
					case acp.MethodSessionNew:
						c.newSession(m)
					case acp.MethodSessionClose, acp.MethodSessionDelete:
						c.result(m, `{}`)
					}
				}
				r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Shutdown(context.Background()) }()
				tc := connect(t, r, "")
				s := tc.session()
				turn := tc.request("session/prompt", prompt(s, "x"))
				synctest.Wait()
				ended := tc.request(how, `{"sessionId":"`+s+`"}`)
				tc.until(turn)
				tc.until(ended)
				time.Sleep(time.Minute)
				if n := len(r.agents.Find("fake").Processes()); n != 0 {
					t.Errorf("%d processes live on", n)
				}
				if tc.session() == "" || a.opened() != 2 {
					t.Errorf("%d processes were started", a.opened())
				}
				tc.close()
			})
		})
	}
}
