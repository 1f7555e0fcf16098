package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// fake is an adapter whose agent lives in the test's process. It does all its
// work within Write, without goroutines. Its functions are what a broken
// adapter does otherwise.
type fake struct {
	row     func(row adapters.Features) // edits what is claimed
	open    func(ctx context.Context) error
	methods map[string]func(c *fakeConn, m acp.Message) // by method of the client
	prompts map[string]func(c *fakeConn, p *fakeTurn)   // by first word
	cancel  func(c *fakeConn, p *fakeTurn)
	answer  func(c *fakeConn, p *fakeTurn, option string) // "" for cancelled
	failed  func(reason error) error                      // what Read returns at the end
	write   func(c *fakeConn) error                       // called by Write first
	late    error                                         // of a Write after the end
	close   func(c *fakeConn, times int) error
	behind  func(c *fakeConn, p *fakeTurn, option string) // an answer behind the end of its turn
	serve   func(command string)                          // starts an MCP server and waits for its end
	left    func(c *fakeConn, session string, open []string)
	granted []adapters.Grant
	deaf    bool // its tap is told of nothing
	mute    bool // its tap is not told of what comes from the agent

	release  chan struct{} // closed when the test is over
	mu       sync.Mutex
	children []*exec.Cmd
	sessions map[string][]string // updates by session; they outlive a Conn
	made     []string            // sessions in order
}

var (
	_ adapters.Adapter = (*fake)(nil)
	_ acp.Conn         = (*fakeConn)(nil)
)

func (f *fake) Grants(adapters.Options, string) []adapters.Grant { return f.granted }

func (f *fake) Forget(adapters.Options, string, []string) error { return nil }

func (f *fake) Info() adapters.Info {
	row := adapters.Features{}
	for _, feature := range adapters.AllFeatures {
		row[feature] = adapters.Support{Level: adapters.Unsupported, Reason: "the fake does little"}
	}
	for feature := range proven {
		row[feature] = adapters.Support{Level: adapters.ByAgent}
	}
	row[adapters.Plan] = adapters.Support{Level: adapters.Emulated}
	if f.row != nil {
		f.row(row)
	}
	return adapters.Info{ID: "fake", Name: "Fake", Features: row}
}

func (f *fake) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	return &fakeConn{fake: f, tap: o.Tap, opened: ctx, wake: make(chan struct{}, 1), turns: map[string]*fakeTurn{}, asks: map[acp.ID]*fakeTurn{}}, nil
}

// fakeConn is a connection and the agent's process in one.
type fakeConn struct {
	*fake
	tap    adapters.Tap
	opened context.Context // Open's, which a broken adapter looks at

	mu     sync.Mutex
	out    []acp.Message
	end    error         // why Read fails once out is empty; nil while open
	wake   chan struct{} // cap 1: out or end changed
	turns  map[string]*fakeTurn
	asks   map[acp.ID]*fakeTurn
	closes int
	probes int
}

// fakeTurn is a prompt that runs.
type fakeTurn struct {
	id       acp.ID
	session  string
	text     string // behind the first word
	meta     []byte
	asking   acp.ID
	tool     string
	over     bool // it has ended, and asks nevertheless
	response func(c *fakeConn, p *fakeTurn, stop schema.StopReason)
}

func (c *fakeConn) Read(context.Context) (acp.Message, error) {
	for {
		c.mu.Lock()
		if len(c.out) > 0 {
			m := c.out[0]
			c.out = c.out[1:]
			c.mu.Unlock()
			if !c.deaf && !c.mute {
				c.tap.FromAgent(m.Frame())
			}
			return m, nil
		}
		end := c.end
		c.mu.Unlock()
		if end != nil {
			return acp.Message{}, end
		}
		<-c.wake
	}
}

func (c *fakeConn) Write(_ context.Context, m acp.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		return c.late
	}
	if err := c.write(c); err != nil {
		return err
	}
	m = m.Clone()
	if !c.deaf {
		c.tap.ToAgent(m.Frame())
	}
	switch do, known := c.methods[m.Method()]; {
	case m.IsResponse():
		p := c.asks[m.ID()]
		delete(c.asks, m.ID())
		if p.over {
			c.behind(c, p, rawjson.MemberString(m.Result(), "outcome", "optionId"))
			break
		}
		c.answer(c, p, rawjson.MemberString(m.Result(), "outcome", "optionId"))
	case known:
		do(c, m)
	case m.IsRequest():
		c.methods["unknown"](c, m)
	}
	return nil
}

func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closes++
	return c.fake.close(c, c.closes)
}

func (c *fakeConn) endLocked(reason error) {
	if c.end == nil {
		c.end = reason
		close(c.wake)
	}
}

func (c *fakeConn) send(m acp.Message) {
	c.out = append(c.out, m)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *fakeConn) reply(m acp.Message, result string) { c.send(acp.NewResult(m.ID(), []byte(result))) }

func (c *fakeConn) refuse(m acp.Message, code int64, text string) {
	c.send(acp.NewError(m.ID(), acp.Errorf(code, "%s", text)))
}

// update sends an update of a session and keeps it.
func (c *fakeConn) update(session, update string) {
	c.keep(session, update)
	c.send(sessionUpdate(session, update))
}

func (c *fakeConn) keep(session, update string) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	c.sessions[session] = append(c.sessions[session], update)
}

func sessionUpdate(session, update string) acp.Message {
	return acp.NewNotification(acp.MethodSessionUpdate, fmt.Appendf(nil, `{"sessionId":%q,"update":%s}`, session, update))
}

func chunk(kind, text string) string {
	return `{"sessionUpdate":"` + kind + `","content":{"type":"text","text":` + string(rawjson.AppendQuoted(nil, text)) + `}}`
}

func (c *fakeConn) say(p *fakeTurn, text string) {
	c.update(p.session, chunk("agent_message_chunk", text))
}

func (c *fakeConn) toolCall(p *fakeTurn, kind, status string) {
	title := ""
	if kind == "tool_call" {
		title = `"title":"Edit",`
	}
	c.update(p.session, fmt.Sprintf(`{"sessionUpdate":%q,"toolCallId":%q,%s"status":%q}`, kind, p.tool, title, status))
}

// finish answers a prompt.
func (c *fakeConn) finish(p *fakeTurn, stop schema.StopReason) {
	delete(c.turns, p.session)
	p.response(c, p, stop)
}

func respond(c *fakeConn, p *fakeTurn, stop schema.StopReason) {
	meta := ""
	if p.meta != nil {
		meta = `,"_meta":` + string(p.meta)
	}
	c.send(acp.NewResult(p.id, fmt.Appendf(nil, `{"stopReason":%q%s}`, stop, meta)))
}

var errFakeClosed = errors.New("the connection is closed")

// newFake returns the adapter that keeps every contract.
func newFake() *fake {
	return &fake{
		open:     context.Context.Err,
		sessions: map[string][]string{},
		release:  make(chan struct{}),
		late:     os.ErrClosed,
		failed:   func(reason error) error { return reason },
		write:    func(*fakeConn) error { return nil },
		close: func(c *fakeConn, _ int) error {
			c.reap()
			c.endLocked(errFakeClosed)
			return nil
		},
		cancel: func(c *fakeConn, p *fakeTurn) { c.finish(p, schema.StopReasonCancelled) },
		behind: func(c *fakeConn, p *fakeTurn, option string) {
			if option == "yes" {
				c.toolCall(p, "tool_call_update", "completed")
			}
		},
		serve: func(command string) { _ = exec.Command(command).Run() },
		left: func(c *fakeConn, session string, open []string) {
			for _, call := range open {
				c.toolCall(&fakeTurn{session: session, tool: call}, "tool_call_update", "failed")
			}
		},
		answer: func(c *fakeConn, p *fakeTurn, option string) {
			switch {
			case option == "yes":
				c.say(p, "allowed")
				c.toolCall(p, "tool_call_update", "completed")
				c.finish(p, schema.StopReasonEndTurn)
			case option == "no":
				c.toolCall(p, "tool_call_update", "failed")
				c.finish(p, schema.StopReasonEndTurn)
			default:
				c.toolCall(p, "tool_call_update", "failed")
				c.finish(p, schema.StopReasonCancelled)
			}
		},
		methods: map[string]func(c *fakeConn, m acp.Message){
			acp.MethodInitialize: func(c *fakeConn, m acp.Message) {
				c.reply(m, `{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}}}}`)
			},
			acp.MethodSessionNew:    newSession,
			acp.MethodSessionLoad:   func(c *fakeConn, m acp.Message) { reopen(c, m, true) },
			acp.MethodSessionResume: func(c *fakeConn, m acp.Message) { reopen(c, m, false) },
			acp.MethodSessionCancel: func(c *fakeConn, m acp.Message) {
				if p := c.turns[m.Session()]; p != nil && p.asking == "" {
					c.cancel(c, p)
				}
			},
			acp.MethodSessionPrompt: prompt,
			"unknown":               func(c *fakeConn, m acp.Message) { c.refuse(m, acp.CodeMethodNotFound, "method not found") },
		},
		prompts: map[string]func(c *fakeConn, p *fakeTurn){
			"say": says("hello there"),
			"plan": func(c *fakeConn, p *fakeTurn) {
				c.update(p.session, `{"sessionUpdate":"plan","entries":[{"content":"it","priority":"medium","status":"pending"}]}`)
				c.finish(p, schema.StopReasonEndTurn)
			},
			"echo":    func(c *fakeConn, p *fakeTurn) { says(p.text)(c, p) },
			"stream":  stream,
			"garbage": says("still here"),
			"tool":    tool,
			"ask":     askFirst,
			"run":     func(c *fakeConn, p *fakeTurn) { c.say(p, "running") },
			"behind": func(c *fakeConn, p *fakeTurn) {
				askFirst(c, p)
				p.over = true
				c.finish(p, schema.StopReasonEndTurn)
			},
			"crash": func(c *fakeConn, p *fakeTurn) {
				c.toolCall(p, "tool_call", "pending")
				c.endLocked(c.failed(&adapters.ExitError{Code: 3, Stderr: adapters.Stderr{Tail: "it is over"}}))
			},
			"spawn": spawn,
		},
	}
}

func newSession(c *fakeConn, m acp.Message) {
	c.fake.mu.Lock()
	id := "session-" + strconv.Itoa(len(c.made))
	c.made = append(c.made, id)
	c.sessions[id] = nil
	c.fake.mu.Unlock()
	c.reply(m, `{"sessionId":"`+id+`"}`)
}

func (c *fakeConn) history(m acp.Message) (updates []string, known bool) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	updates, known = c.sessions[m.Session()]
	return updates, known
}

func reopen(c *fakeConn, m acp.Message, replay bool) {
	updates, known := c.history(m)
	if !known {
		c.refuse(m, acp.CodeResourceNotFound, "no such session")
		return
	}
	var open []string
	for _, u := range updates {
		if replay {
			c.send(sessionUpdate(m.Session(), u))
		}
		raw := []byte(u)
		switch id := rawjson.MemberString(raw, "toolCallId"); rawjson.MemberString(raw, "status") {
		case "":
		case "pending", "in_progress":
			if !slices.Contains(open, id) {
				open = append(open, id)
			}
		default:
			open = slices.DeleteFunc(open, func(one string) bool { return one == id })
		}
	}
	if replay {
		c.left(c, m.Session(), open)
	}
	servers, _ := rawjson.Member(m.Params(), "mcpServers")
	for _, one := range rawjson.Elements(servers) {
		c.serve(rawjson.MemberString(one, "command"))
	}
	c.reply(m, `{}`)
}

// forget removes all that was said.
func (f *fake) forget() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.sessions)
	return nil
}

func prompt(c *fakeConn, m acp.Message) {
	if _, known := c.history(m); !known {
		c.refuse(m, acp.CodeResourceNotFound, "no such session")
		return
	}
	text := rawjson.MemberString(m.Params(), "prompt")
	if blocks, ok := rawjson.Member(m.Params(), "prompt"); ok {
		text = rawjson.MemberString(blocks[1:len(blocks)-1], "text") // the only block
	}
	c.keep(m.Session(), chunk("user_message_chunk", text))
	word, rest, _ := strings.Cut(text, " ")
	p := &fakeTurn{id: m.ID(), session: m.Session(), text: rest, meta: m.Meta(), response: respond, tool: "call-" + string(m.ID())}
	c.turns[p.session] = p
	c.prompts[word](c, p)
}

func says(text string) func(c *fakeConn, p *fakeTurn) {
	return func(c *fakeConn, p *fakeTurn) {
		c.say(p, text)
		c.finish(p, schema.StopReasonEndTurn)
	}
}

func stream(c *fakeConn, p *fakeTurn) {
	for i := range 20 {
		c.say(p, strconv.Itoa(i)+" ")
	}
	c.finish(p, schema.StopReasonEndTurn)
}

func tool(c *fakeConn, p *fakeTurn) {
	c.toolCall(p, "tool_call", "pending")
	c.toolCall(p, "tool_call_update", "in_progress")
	c.toolCall(p, "tool_call_update", "completed")
	c.finish(p, schema.StopReasonEndTurn)
}

func askFirst(c *fakeConn, p *fakeTurn) {
	c.toolCall(p, "tool_call", "pending")
	p.asking = `"ask"`
	c.asks[p.asking] = p
	c.send(acp.NewRequest(p.asking, acp.MethodSessionRequestPermission, fmt.Appendf(nil,
		`{"sessionId":%q,"toolCall":{"toolCallId":%q},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}`,
		p.session, p.tool)))
}

func spawn(c *fakeConn, p *fakeTurn) {
	child := exec.Command("sleep", "3600")
	if err := child.Start(); err != nil {
		says(err.Error())(c, p)
		return
	}
	c.fake.mu.Lock()
	c.children = append(c.children, child)
	c.fake.mu.Unlock()
	says("spawned")(c, p)
}

// reap ends the processes of all connections.
func (f *fake) reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, child := range f.children {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	f.children = nil
}
