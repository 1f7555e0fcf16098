package claude

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// tested is the newest version of the program that all tests passed with.
const tested = agentcache.Claude

// version is what the tests run with: SANDBOX_AGENT_TEST_CLAUDE names another.
var version = cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_CLAUDE"), tested)

func TestMain(m *testing.M) {
	if os.Getenv(playerVar) != "" {
		play(os.Stdin, os.Stdout)
		return
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "ANTHROPIC_") || strings.HasPrefix(name, "CLAUDE") || name == "IS_SANDBOX" {
			_ = os.Unsetenv(name)
		}
	}
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.init.func1.1"))
}

// program installs the tested version once per machine.
var program = sync.OnceValues(func() (adapters.Program, error) {
	cache, err := agentcache.Dir()
	if err != nil {
		return adapters.Program{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	in := install.New(install.Options{DataDir: cache})
	r, err := in.Install(ctx, install.Request{Agent: ID, Version: version, Sources: []install.Source{install.NPM}})
	return adapters.Program{Path: r.Program, Args: r.Args, Env: r.Env, Version: r.Version, Source: string(r.Source)}, err
})

// world is a home directory, a working directory and a model, for one test.
type world struct {
	t     *testing.T
	home  string
	cwd   string
	state string
	model *scriptedmodel.Model
	prog  adapters.Program
	env   []string
	creds adapters.Credentials
}

func newWorld(t *testing.T) *world {
	t.Helper()
	prog, err := program()
	if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("claude %s cannot be installed here: %v", version, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	agentcache.Turn(t)
	w := &world{t: t, home: t.TempDir(), cwd: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), model: scriptedmodel.Start(t), prog: prog}
	w.env = []string{
		"HOME=" + w.home, "ANTHROPIC_BASE_URL=" + w.model.URL, "ANTHROPIC_API_KEY=sk-ant-not-a-key",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	return w
}

// write makes a file below the home directory and returns its path.
func (w *world) write(name, content string, mode os.FileMode) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// offline is the adapter in a world.
type offline struct {
	Adapter
	w *world
}

func (o offline) Open(ctx context.Context, opts adapters.Options) (acp.Conn, error) {
	opts.Program, opts.Env, opts.Credentials = o.w.prog, o.w.env, o.w.creds
	return o.Adapter.Open(ctx, opts)
}

// patience bounds every wait of a test.
const patience = 60 * time.Second

// client is the gateway's end of a connection. It notes all frames, and answers
// what the agent asks by answer.
type client struct {
	w      *world
	conn   acp.Conn
	caps   acp.ClientCapabilities
	answer func(method string, params json.RawMessage) any // nil leaves the request open

	mu     sync.Mutex
	frames []acp.Message
	woken  chan struct{} // closed and replaced when frames grows
	end    error
	done   chan struct{}
	lastID int64
}

func (w *world) open(caps acp.ClientCapabilities, answer func(method string, params json.RawMessage) any) *client {
	w.t.Helper()
	conn, err := offline{w: w}.Open(w.t.Context(), adapters.Options{StateDir: w.state})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{w: w, conn: conn, caps: caps, answer: answer, woken: make(chan struct{}), done: make(chan struct{})}
	go c.read()
	w.t.Cleanup(c.close)
	if _, e := c.call(acp.MethodInitialize, &acp.InitializeRequest{ProtocolVersion: 1, ClientCapabilities: &caps}); e != nil {
		w.t.Fatal(e)
	}
	return c
}

func (c *client) close() {
	if err := c.conn.Close(); err != nil {
		c.w.t.Error(err)
	}
	<-c.done
}

func (c *client) read() {
	defer close(c.done)
	for {
		m, err := c.conn.Read(context.Background())
		c.mu.Lock()
		if err != nil {
			c.end = err
		} else {
			m = m.Clone()
			c.frames = append(c.frames, m)
		}
		close(c.woken)
		c.woken = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
		if m.IsRequest() && c.answer != nil {
			if result := c.answer(m.Method(), m.Params()); result != nil {
				b, _ := acp.Encode(result)
				_ = c.conn.Write(context.Background(), acp.NewResult(m.ID(), b))
			}
		}
	}
}

// await waits for a frame from position from on.
func (c *client) await(what string, from int, ok func(m *acp.Message) bool) (int, *acp.Message) {
	c.w.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		c.mu.Lock()
		frames, woken, end := c.frames, c.woken, c.end
		c.mu.Unlock()
		for ; from < len(frames); from++ {
			if m := frames[from]; ok(&m) {
				return from, &m
			}
		}
		if end != nil {
			c.w.t.Fatalf("no %s: reading ended: %v\n%s", what, end, c.quote())
		}
		select {
		case <-woken:
		case <-limit.C:
			c.w.t.Fatalf("no %s in time\n%s", what, c.quote())
		}
	}
}

func (c *client) quote() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, m := range c.frames[max(0, len(c.frames)-60):] {
		if s := string(m.Frame()); strings.Contains(s, "available_commands_update") {
			b.WriteString("\t...commands\n")
		} else {
			fmt.Fprintf(&b, "\t%.500s\n", s)
		}
	}
	return b.String()
}

func (c *client) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

func (c *client) begin(method string, params any) acp.ID {
	c.w.t.Helper()
	b, err := acp.Encode(params)
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.mu.Lock()
	c.lastID++
	id := acp.IntID(c.lastID)
	c.mu.Unlock()
	if err := c.conn.Write(context.Background(), acp.NewRequest(id, method, b)); err != nil {
		c.w.t.Fatal(err)
	}
	return id
}

func (c *client) notify(method string, params any) {
	c.w.t.Helper()
	b, _ := acp.Encode(params)
	if err := c.conn.Write(context.Background(), acp.NewNotification(method, b)); err != nil {
		c.w.t.Fatal(err)
	}
}

func (c *client) result(id acp.ID) (json.RawMessage, *acp.Error) {
	c.w.t.Helper()
	_, m := c.await("response "+string(id), 0, func(m *acp.Message) bool { return m.IsResponse() && m.ID() == id })
	return m.Result(), m.Err()
}

func (c *client) call(method string, params any) (json.RawMessage, *acp.Error) {
	c.w.t.Helper()
	return c.result(c.begin(method, params))
}

// must is call for requests that succeed.
func (c *client) must(method string, params any) json.RawMessage {
	c.w.t.Helper()
	r, e := c.call(method, params)
	if e != nil {
		c.w.t.Fatalf("%s: %v\n%s", method, e, c.quote())
	}
	return r
}

// new makes a session with our _meta, "" for none.
func (c *client) new(own string) acp.SessionID {
	c.w.t.Helper()
	return acp.SessionID(acp.MemberString(c.newResult(own), "sessionId"))
}

func (c *client) newResult(own string) json.RawMessage {
	c.w.t.Helper()
	r := &acp.NewSessionRequest{Cwd: c.w.cwd, MCPServers: []acp.MCPServer{}}
	if own != "" {
		r.Meta = map[string]json.RawMessage{acp.MetaKey: json.RawMessage(own)}
	}
	return c.must(acp.MethodSessionNew, r)
}

func (c *client) prompt(id acp.SessionID, text string) acp.ID {
	c.w.t.Helper()
	return c.begin(acp.MethodSessionPrompt, &acp.PromptRequest{SessionID: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
}

// turn runs a prompt and returns how it ended and the updates that it caused.
func (c *client) turn(id acp.SessionID, text string) (acp.StopReason, []acp.SessionUpdate) {
	c.w.t.Helper()
	from := c.seen()
	r, e := c.result(c.prompt(id, text))
	if e != nil {
		c.w.t.Fatalf("prompt %q: %v\n%s", text, e, c.quote())
	}
	return acp.StopReason(acp.MemberString(r, "stopReason")), c.updates(from)
}

// updates are those from a position on.
func (c *client) updates(from int) []acp.SessionUpdate {
	c.w.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []acp.SessionUpdate
	for _, m := range c.frames[from:] {
		if m.Method() != acp.MethodSessionUpdate {
			continue
		}
		var u acp.SessionUpdate
		if err := json.Unmarshal(m.Update(), &u); err != nil {
			c.w.t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// said joins what the agent said.
func spoken(list []acp.SessionUpdate) string {
	var b strings.Builder
	for _, u := range list {
		if u.AgentMessageChunk != nil && u.AgentMessageChunk.Content.Text != nil {
			b.WriteString(u.AgentMessageChunk.Content.Text.Text)
		}
	}
	return b.String()
}

// pick answers permission requests with an option, and questions not at all.
func pick(option string) func(method string, params json.RawMessage) any {
	return func(method string, params json.RawMessage) any {
		if method != acp.MethodSessionRequestPermission {
			return nil
		}
		return map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": option}}
	}
}

// optionsOf are a world's options of Open.
func optionsOf(w *world) adapters.Options {
	return adapters.Options{StateDir: w.state, Program: w.prog, Env: w.env, Credentials: w.creds}
}

// notified reports whether a model call is about the end of a background task.
// Each version of the program says it in its own way.
func notified(r *scriptedmodel.Request) bool {
	return r.Says(scriptedmodel.User, "SYSTEM NOTIFICATION") || r.Says(scriptedmodel.User, "<task-notification>")
}
