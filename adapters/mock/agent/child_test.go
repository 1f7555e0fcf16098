package agent_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// patience bounds a child that does not do what the test waits for.
const patience = 60 * time.Second

// child is the mock agent as a process, and its client. Every frame in either
// direction is checked against the schema.
type child struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	rec     *acptest.Recorder
	stderr  stderr
	id      int64
	waited  bool
	onAsk   func(m *acp.Message) string // answers the agent's requests: a result, or an error behind "!"
	updates []string                    // params.update since the last prompt
}

// stderr keeps what the process writes there.
type stderr struct {
	wrote chan struct{} // cap 1: there is something new

	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.buf.Write(p)
}

func (s *stderr) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// waitFor waits until the process has written text.
func (s *stderr) waitFor(text string) {
	for !strings.Contains(s.String(), text) {
		<-s.wrote
	}
}

func start(t *testing.T, stateDir string, env ...string) *child {
	t.Helper()
	c := &child{t: t, rec: acptest.NewRecorder(t)}
	c.cmd = exec.Command(os.Args[0], "--state-dir", stateDir)
	c.cmd.Env = append(append(os.Environ(), envChild+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	c.stderr.wrote = make(chan struct{}, 1)
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	impatient := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	c.in, c.out = in, bufio.NewReaderSize(out, 1<<20)
	t.Cleanup(func() {
		defer impatient.Stop()
		if c.waited {
			return
		}
		if code := c.end(); code != 0 {
			t.Errorf("the agent exited with %d: %s", code, c.stderr.String())
		}
	})
	return c
}

// end closes stdin, waits for the process and returns its exit code.
func (c *child) end() int {
	_ = c.in.Close()
	return c.wait()
}

func (c *child) wait() int {
	c.waited = true
	_, _ = io.Copy(io.Discard, c.out)
	_ = c.cmd.Wait()
	return c.cmd.ProcessState.ExitCode()
}

func (c *child) send(frame acp.Message) {
	c.t.Helper()
	if err := c.rec.CheckClient(frame.Frame()); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(bytes.Clone(frame.Frame()), '\n')); err != nil {
		c.t.Fatalf("write to the agent: %v: %s", err, c.stderr.String())
	}
}

func (c *child) line() []byte {
	c.t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("read from the agent: %v: %s", err, c.stderr.String())
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

// read returns the next frame. Updates are noted and requests answered.
func (c *child) read() acp.Message {
	c.t.Helper()
	line := c.line()
	if err := c.rec.Gateway(line); err != nil {
		c.t.Fatal(err)
	}
	m, err := acp.Parse(line)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.Method() == acp.MethodSessionUpdate {
		c.updates = append(c.updates, string(m.Update()))
	}
	if m.IsRequest() {
		answer := c.onAsk(&m)
		if text, failed := strings.CutPrefix(answer, "!"); failed {
			c.send(acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "%s", text)))
		} else {
			c.send(acp.NewResult(m.ID(), []byte(answer)))
		}
	}
	return m
}

// start sends a request and returns its id.
func (c *child) start(method string, params any) acp.ID {
	c.t.Helper()
	b, err := schema.Encode(params)
	if err != nil {
		c.t.Fatal(err)
	}
	c.id++
	c.send(acp.NewRequest(acp.IntID(c.id), method, b))
	return acp.IntID(c.id)
}

func (c *child) notify(method string, params any) {
	c.t.Helper()
	b, err := schema.Encode(params)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(acp.NewNotification(method, b))
}

// await reads until the response with the id.
func (c *child) await(id acp.ID) acp.Message {
	c.t.Helper()
	for {
		if m := c.read(); m.IsResponse() && m.ID() == id {
			return m
		}
	}
}

// call sends a request, decodes its result and returns its error.
func (c *child) call(method string, params, result any) *acp.Error {
	c.t.Helper()
	m := c.await(c.start(method, params))
	if e := m.Err(); e != nil {
		return e
	}
	if result != nil {
		if err := json.Unmarshal(m.Result(), result); err != nil {
			c.t.Fatal(err)
		}
	}
	return nil
}

// must is call for requests that succeed.
func (c *child) must(method string, params, result any) {
	c.t.Helper()
	if e := c.call(method, params, result); e != nil {
		c.t.Fatalf("%s: %v", method, e)
	}
}

func (c *child) initialize() *schema.InitializeResponse {
	c.t.Helper()
	r := new(schema.InitializeResponse)
	c.must(acp.MethodInitialize, &schema.InitializeRequest{ProtocolVersion: 1}, r)
	return r
}

// session opens a connection with one new session.
func (c *child) session() schema.SessionID {
	c.t.Helper()
	c.initialize()
	var r schema.NewSessionResponse
	c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: "/project"}, &r)
	return r.SessionID
}

func prompt(id schema.SessionID, text string) *schema.PromptRequest {
	return &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock(text)}}
}

// prompt runs a turn and returns its stop reason; its updates are in c.updates.
func (c *child) prompt(id schema.SessionID, text string) schema.StopReason {
	c.t.Helper()
	c.updates = nil
	var r schema.PromptResponse
	c.must(acp.MethodSessionPrompt, prompt(id, text), &r)
	return r.StopReason
}

// said joins the agent's chunks of the last prompt.
func (c *child) said() string {
	c.t.Helper()
	return strings.Join(c.chunks(), "")
}

func (c *child) chunks() []string {
	c.t.Helper()
	var out []string
	for _, raw := range c.updates {
		var u schema.SessionUpdate
		if err := json.Unmarshal([]byte(raw), &u); err != nil {
			c.t.Fatal(err)
		}
		if u.AgentMessageChunk != nil {
			out = append(out, u.AgentMessageChunk.Content.Text.Text)
		}
	}
	return out
}
