package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

func TestMain(m *testing.M) {
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// talker is an agent that does in a prompt what a test wants.
type talker struct {
	peer   acp.Peer
	conn   *bridge.Conn
	prompt func(ctx context.Context, t *talker) error
	closed chan struct{}
}

func (t *talker) Initialize(context.Context, *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	return &schema.InitializeResponse{ProtocolVersion: 1}, nil
}

func (t *talker) NewSession(context.Context, *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	return &schema.NewSessionResponse{SessionID: "S"}, nil
}

func (t *talker) Prompt(ctx context.Context, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
	return &schema.PromptResponse{StopReason: schema.StopReasonEndTurn}, t.prompt(ctx, t)
}
func (t *talker) Cancel(context.Context, *schema.CancelNotification) error { return nil }
func (t *talker) Close() error                                             { close(t.closed); return nil }

func open(prompt func(ctx context.Context, t *talker) error) (*bridge.Conn, *talker) {
	t := &talker{prompt: prompt, closed: make(chan struct{})}
	c := bridge.New(func(p acp.Peer, c *bridge.Conn) acp.Agent {
		t.peer, t.conn = p, c
		return t
	})
	return c, t
}

var promptFrame = acp.NewRequest("7", acp.MethodSessionPrompt, []byte(`{"sessionId":"S","prompt":[]}`))

func write(t *testing.T, c *bridge.Conn, m acp.Message) {
	t.Helper()
	if err := c.Write(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestConn_WhatWasSaidComesBeforeTheFailure(t *testing.T) {
	const updates = 5000
	died := &adapters.ExitError{Code: 3}
	c, agent := open(func(ctx context.Context, a *talker) error {
		for range updates {
			if err := a.peer.Update(ctx, "S", schema.AgentMessage(schema.TextBlock(strings.Repeat("x", 300)))); err != nil {
				return err
			}
		}
		a.conn.Fail(died)
		a.conn.Fail(errors.New("a later reason"))
		<-ctx.Done()
		return ctx.Err()
	})
	write(t, c, promptFrame)
	n := 0
	for {
		m, err := c.Read(t.Context())
		if err != nil {
			if !errors.Is(err, died) {
				t.Errorf("reading ended with %v", err)
			}
			break
		}
		if m.Method() == acp.MethodSessionUpdate {
			n++
		} else if m.IsResponse() && m.Err() == nil {
			t.Errorf("the prompt was answered with %s", m.Frame())
		}
	}
	if n != updates {
		t.Errorf("%d updates came, want %d", n, updates)
	}
	<-agent.closed
	if _, err := c.Read(t.Context()); !errors.Is(err, died) {
		t.Errorf("reading again: %v", err)
	}
	if err := c.Write(t.Context(), promptFrame); err == nil {
		t.Error("writing after the failure succeeded")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Of a prompt that the process has certainly not read that is known, however the process
// has ended; of others nothing is.
func TestConn_Untaken(t *testing.T) {
	asked, silent := make(chan struct{}), make(chan struct{})
	c, _ := open(func(context.Context, *talker) error { asked <- struct{}{}; <-silent; return nil })
	defer c.Close()
	defer close(silent)
	for _, one := range []struct {
		script  string // says when it has read what it reads
		fails   bool
		untaken bool
	}{
		{"exec sleep 600", false, goruntime.GOOS == "linux"},
		{"read before; exec sleep 600", false, goruntime.GOOS == "linux"},
		{"read before; read prompt; echo read; exec sleep 600", false, false},
		{"head -c 12 >/dev/null; echo read; exec sleep 600", false, false}, // a part of it
		{"exec 0<&-; echo read; exec sleep 600", true, true},
		{"echo read; exec 1>&-; exec cat >/dev/null", true, true},
	} {
		child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/sh", Args: []string{"-c", one.script}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		says := func() {
			t.Helper()
			if line, err := child.ReadLine(); err != nil {
				t.Fatalf("%s: %q, %v", one.script, line, err)
			}
		}
		if one.fails {
			says()
			if strings.Contains(one.script, "1>&-") {
				if line, err := child.ReadLine(); err == nil {
					t.Fatalf("%s: %q", one.script, line)
				}
			}
		} else if err := child.WriteLine(t.Context(), []byte("before it")); err != nil {
			t.Fatal(err)
		}
		if err := c.Give("S", child.Process, func() error { return child.WriteLine(t.Context(), []byte("{}")) }); errors.Is(err, bridge.ErrUnwritten) != one.fails {
			t.Errorf("%s: %v", one.script, err)
		}
		if !one.untaken {
			says()
		}
		child.Kill()
		if _, err := child.ReadLine(); err == nil {
			t.Errorf("%s: it says more", one.script)
		}
		child.End(process.Ladder{})
		if got := c.Untaken("S"); got != one.untaken || c.Untaken("other") {
			t.Errorf("%s: untaken is %t", one.script, got)
		}
	}
	write(t, c, promptFrame)
	<-asked
	if c.Untaken("S") {
		t.Error("a prompt of which the agent has said nothing counts as untaken")
	}
	taken := c.Offer("S")
	if !c.Untaken("S") {
		t.Error("a prompt that was offered counts as taken")
	}
	if taken(); c.Untaken("S") {
		t.Error("a prompt that was taken counts as untaken")
	}
}

func TestConn_CloseEndsWhoWaits(t *testing.T) {
	stuck := make(chan error, 1)
	c, agent := open(func(ctx context.Context, a *talker) error {
		for { // more than fits: nobody reads
			if err := a.peer.Update(ctx, "S", schema.AgentMessage(schema.TextBlock(strings.Repeat("x", 1000)))); err != nil {
				stuck <- err
				return err
			}
		}
	})
	write(t, c, promptFrame)
	for !c.Buffered() {
		time.Sleep(time.Millisecond) // Buffered does not wait
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := <-stuck; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the agent's update ended with %v", err)
	}
	<-agent.closed
	for { // what had been read ahead may still come
		if _, err := c.Read(t.Context()); err != nil {
			break
		}
	}
}

func TestConn_LargeFramesBothWays(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 12<<16) // 12 MiB
	got := make(chan int, 1)
	c, _ := open(func(ctx context.Context, a *talker) error {
		return a.peer.Update(ctx, "S", schema.AgentMessage(schema.TextBlock(text)))
	})
	defer func() { _ = c.Close() }()
	params, err := schema.Encode(&schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock(text)}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		m, err := c.Read(context.Background())
		if err != nil {
			got <- 0
			return
		}
		var u schema.SessionUpdate
		if json.Unmarshal(m.Update(), &u) != nil {
			got <- 0
			return
		}
		got <- len(u.AgentMessageChunk.Content.Text.Text)
	}()
	write(t, c, acp.NewRequest("1", acp.MethodSessionPrompt, params))
	if n := <-got; n != len(text) {
		t.Errorf("%d bytes came of %d", n, len(text))
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("y", 100)
	in := bridge.NewLines(strings.NewReader("one\n\n  \ntwo\r\n"+long+long+"\nthr\xffee\n"+long+"\nlast"), 150)
	var got []string
	for {
		line, err := in.Next()
		if tooLong, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			if tooLong.Length < 200 || !bytes.HasPrefix(line, []byte("yyy")) {
				t.Errorf("%v with %q", tooLong, line)
			}
			got = append(got, "too long")
			continue
		}
		if err != nil {
			break
		}
		got = append(got, string(line))
	}
	if want := []string{"one", "two", "too long", "thr\uFFFDee", long, "last"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_TOKEN", "secret")
	t.Setenv("AGENT_KEY", "inherited")
	o := adapters.Options{Program: adapters.Program{Env: []string{"A=program"}}, Env: []string{"A=session", "AGENT_KEY=session"}}
	env := bridge.Environ(o, []string{"AGENT_KEY"}, "B=set")
	for name, want := range map[string]string{"SANDBOX_AGENT_TOKEN": "", "AGENT_KEY": "", "A": "session", "B": "set"} {
		if got := bridge.Lookup(env, name); got != want {
			t.Errorf("%s=%s, want %q", name, got, want)
		}
	}
}

func TestChild_EndsAlthoughSomebodyHoldsItsStdout(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("only where marks are found through /proc")
	}
	pidfile := filepath.Join(t.TempDir(), "pid")
	c, err := bridge.Start(t.Context(), process.Spec{
		Path: "/bin/sh", Env: os.Environ(),
		Args: []string{"-c", "env -i setsid sh -c 'echo $$ >" + pidfile + "; exec sleep 1000' 2>/dev/null & read x; echo got $x; echo bye >&2; exit 4"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for { // until it has left
		if b, _ := os.ReadFile(pidfile); len(b) > 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.WriteLine(t.Context(), []byte("it")); err != nil {
		t.Fatal(err)
	}
	if line, err := c.ReadLine(); string(line) != "got it" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	if line, err := c.ReadLine(); err == nil {
		t.Errorf("read %q, want the end", line)
	}
	exit := c.End(process.DefaultLadder)
	if exit.Code != 4 || exit.Stderr.Tail != "bye" {
		t.Errorf("it %v", exit)
	}
	if err := c.WriteLine(t.Context(), []byte("more")); err == nil {
		t.Error("writing to a process that has ended succeeded")
	}
	b, _ := os.ReadFile(pidfile)
	kill(t, strings.TrimSpace(string(b)))
}

// hook is a tap that calls a function when the first line is about to be written.
type hook struct{ before func() }

func (h *hook) FromAgent([]byte) {}

func (h *hook) ToAgent([]byte) {
	if f := h.before; f != nil {
		h.before = nil
		f()
	}
}

// TestChild_DoesNotRead: a process that has half of a line when its time is over is ended; a
// line behind it is not written, and ends nothing.
func TestChild_DoesNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over, done := context.WithCancel(t.Context())
	done()
	var c *bridge.Child
	tap := &hook{before: func() {
		if err := c.WriteLine(over, []byte("behind")); !errors.Is(err, context.Canceled) || errors.Is(err, bridge.ErrUnwritten) {
			t.Errorf("a line that waits: %v", err)
		}
		cancel()
	}}
	c, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/sh", Env: os.Environ(), Args: []string{"-c", "exec sleep 1000"}}, tap)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteLine(ctx, make([]byte, 1<<20)); !errors.Is(err, bridge.ErrUnwritten) {
		t.Errorf("a line that nobody reads: %v", err)
	}
	_, _ = c.ReadLine()
	if exit := c.End(process.DefaultLadder); exit.Signal != "SIGTERM" {
		t.Errorf("it %v", exit)
	}
}

func TestWritePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file")
	for _, content := range []string{"one", "two"} {
		if err := bridge.WritePrivate(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(b) != content || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", b, err, info.Mode())
		}
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
