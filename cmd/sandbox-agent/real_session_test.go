package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// slowest bounds what a real agent does on a busy machine.
const slowest = 2 * patience

// real is one run of a real agent behind a gateway.
type real struct {
	*realAgent
	t     *testing.T
	g     *gateway
	model *scriptedmodel.Model
	dir   string // workspace

	mu         sync.Mutex
	violations []string // frames that do not fit the schema
	all        int      // frames looked at
}

// connect opens a client whose frames are checked, but not at once: the checks
// are a test of their own.
func (r *real) connect() *client {
	r.t.Helper()
	rec := acptest.NewRecorder(r.t)
	check := func(direction string, frame []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if direction == "out" {
			rec.Client(frame)
			return
		}
		r.all++
		if err := rec.Gateway(frame); err != nil {
			r.violations = append(r.violations, err.Error())
		}
	}
	c := &client{
		t: r.t, g: r.g, kind: wsocket, http: &http.Client{Transport: &http.Transport{}}, check: check,
		streams: map[string]bool{}, waiting: map[string]chan message{}, wake: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	r.t.Cleanup(c.abandon)
	c.dial()
	c.init = c.must("initialize", map[string]any{
		"protocolVersion": 1, "clientInfo": map[string]any{"name": "test", "version": "0"},
		"clientCapabilities": map[string]any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"agent": r.id}},
	})
	return c
}

func (r *real) params(session string) map[string]any {
	p := map[string]any{"cwd": r.dir, "mcpServers": []any{}}
	if session != "" {
		p["sessionId"] = session
	}
	return p
}

// realTurn is what a client saw of a turn.
type realTurn struct {
	result  json.RawMessage
	err     error
	stop    string
	frames  []message // of the session, from the prompt to the response
	from    int       // where they are in the client's inbox
	to      int
	text    string // what the agent said
	thought string
	asked   []message // permission requests
}

// update is what is looked at of a session/update.
type update struct {
	Kind    string `json:"sessionUpdate"`
	CallID  string `json:"toolCallId"`
	Status  string `json:"status"`
	Content json.RawMessage
	Meta    struct {
		Ours struct {
			Imported bool `json:"imported"`
		} `json:"sandboxagent.dev"`
	} `json:"_meta"`
}

// imported reports whether it came into the log from the agent's own record.
func (u *update) imported() bool { return u.Meta.Ours.Imported }

// updateOf returns the update of a frame, and whether it is one of the session's.
func updateOf(m *message, session string) (update, bool) {
	var p struct {
		SessionID string `json:"sessionId"`
		Update    update `json:"update"`
	}
	if m.Method != "session/update" || json.Unmarshal(m.Params, &p) != nil || p.SessionID != session {
		return update{}, false
	}
	return p.Update, true
}

func (u *update) text() string {
	var c struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(u.Content, &c)
	return c.Text
}

// serve runs a turn that a client started and answers the agent's requests until
// the response comes. permit returns the answer to a permission request, or nil
// to leave it open; each, if not nil, sees every frame once.
func (r *real) serve(c *client, session string, from int, response <-chan message, permit func(m message) any, each func(m message)) realTurn {
	r.t.Helper()
	turn := realTurn{from: from}
	var last message
	timeout := time.NewTimer(slowest)
	defer timeout.Stop()
	for pos, ended := from, false; ; {
		c.mu.Lock()
		in, wake, closed := c.inbox[:len(c.inbox):len(c.inbox)], c.wake, c.closed
		c.mu.Unlock()
		for ; pos < len(in); pos++ {
			m := in[pos]
			turn.frames = append(turn.frames, m)
			switch {
			case len(m.ID) == 0:
			case m.Method == "session/request_permission":
				turn.asked = append(turn.asked, m)
				if permit == nil {
					r.t.Errorf("a permission was asked for: %s", m.raw)
					permit = outcomeCancelled
				}
				if a := permit(m); a != nil {
					c.answer(m, a)
				}
			case m.Method != "":
				c.sendFor(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID), session)
			}
			if each != nil {
				each(m)
			}
		}
		if ended {
			break
		}
		if closed != nil {
			r.t.Fatalf("the connection ended: %v", closed)
		}
		select {
		case last = <-response:
			ended = true // updates that arrived before it are looked at once more
		case <-wake:
			timeout.Reset(slowest)
		case <-timeout.C:
			r.t.Fatalf("the turn does not end; %s\nrequests to the model:\n%s", c.summary(), r.calls())
		}
	}
	turn.to = from + len(turn.frames)
	if turn.result = last.Result; last.Error != nil {
		turn.err = last.Error
	} else {
		turn.stop = stopReason(r.t, last.Result)
	}
	for i := range turn.frames {
		u, ok := updateOf(&turn.frames[i], session)
		switch {
		case ok && u.Kind == "agent_message_chunk":
			turn.text += u.text()
		case ok && u.Kind == "agent_thought_chunk":
			turn.thought += u.text()
		}
	}
	return turn
}

// prompt runs a whole turn.
func (r *real) prompt(c *client, session, text string, permit func(m message) any) realTurn {
	r.t.Helper()
	from := c.mark()
	turn := r.serve(c, session, from, c.start("session/prompt", promptParams(session, text)), permit, nil)
	if turn.err != nil {
		r.t.Fatalf("%s: %v\nrequests to the model:\n%s", text, turn.err, r.calls())
	}
	return turn
}

// calls describes what the model was asked.
func (r *real) calls() string {
	var b strings.Builder
	for _, q := range r.model.Requests() {
		fmt.Fprintf(&b, "%s %s: prompt %q, rule %q, round %d, %d messages, %d tools: %q\n", q.Dialect, q.Kind, q.Prompt, q.Rule, q.Round, len(q.Messages), len(q.Tools), q.Outcome)
	}
	return b.String()
}

// optionOf returns the answer that chooses the first option of a kind; nil if none is
// offered.
func optionOf(m message, kind string) any {
	p := m.params()
	for _, o := range p.Options {
		if o.Kind == kind {
			return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o.OptionID}}
		}
	}
	return nil
}

func choose(t *testing.T, kind string) func(m message) any {
	return func(m message) any {
		a := optionOf(m, kind)
		if a == nil {
			t.Errorf("no option of kind %s in %s", kind, m.raw)
			a = map[string]any{"outcome": map[string]any{"outcome": "cancelled"}}
		}
		return a
	}
}

func outcomeCancelled(message) any {
	return map[string]any{"outcome": map[string]any{"outcome": "cancelled"}}
}

// quirk is a subtest for what a client should be able to rely on. An agent's
// known quirk is skipped with what was seen; one that is gone is an error, so
// that the list stays true.
func (r *real) quirk(t *testing.T, name string, problems []string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		known := r.quirks[name]
		switch {
		case known == "" && len(problems) > 0:
			t.Errorf("%d times, the first: %s", len(problems), problems[0])
		case known != "" && len(problems) > 0:
			t.Skipf("quirk: %s: %s; seen %d times, the first: %s", name, known, len(problems), problems[0])
		case known != "" && !strings.HasPrefix(known, sometimes):
			t.Errorf("the quirk %q (%s) was not seen: take it from the list of %s", name, known, r.id)
		}
	})
}

// problems are what a client could not make sense of, by kind.
type problems struct {
	unannounced []string // updates of calls that nobody announced
	unknownAsk  []string // permission requests about such calls
	twice       []string // calls announced twice
	open        []string // calls neither completed nor failed when the turn has ended
	empty       []string // chunks without content
	outside     []string // updates of a turn that is over, or has not begun
}

// look adds the problems of one turn, or of one replay.
func (p *problems) look(session string, frames []message) {
	status := map[string]string{}
	var order []string
	for i := range frames {
		m := &frames[i]
		if m.Method == "session/request_permission" {
			var ask struct {
				ToolCall update `json:"toolCall"`
			}
			_ = json.Unmarshal(m.Params, &ask)
			if _, known := status[ask.ToolCall.CallID]; !known {
				p.unknownAsk = append(p.unknownAsk, string(m.raw))
				status[ask.ToolCall.CallID] = "asked for"
				order = append(order, ask.ToolCall.CallID)
			}
			continue
		}
		u, ok := updateOf(m, session)
		if !ok {
			continue
		}
		if strings.HasSuffix(u.Kind, "_chunk") && u.text() == "" && strings.Contains(string(u.Content), `"text"`) {
			p.empty = append(p.empty, string(m.raw))
		}
		old, known := status[u.CallID]
		switch u.Kind {
		case "tool_call":
			if known && old != "asked for" {
				p.twice = append(p.twice, string(m.raw))
			}
		case "tool_call_update":
			if !known || old == "asked for" {
				p.unannounced = append(p.unannounced, string(m.raw))
			}
		default:
			continue
		}
		if !known {
			order = append(order, u.CallID)
		}
		if u.Status != "" || !known {
			status[u.CallID] = u.Status
		}
	}
	for _, id := range order {
		if !slices.Contains([]string{"completed", "failed"}, status[id]) {
			p.open = append(p.open, fmt.Sprintf("call %s is left %q", id, status[id]))
		}
	}
}

// between adds what belongs to a turn but arrived outside of all.
func (p *problems) between(session string, inbox []message, turns []realTurn) {
	for i := range inbox {
		u, ok := updateOf(&inbox[i], session)
		inside := slices.ContainsFunc(turns, func(t realTurn) bool { return t.from <= i && i < t.to })
		if ok && !inside && (strings.HasSuffix(u.Kind, "_chunk") || strings.HasPrefix(u.Kind, "tool_call")) {
			p.outside = append(p.outside, string(inbox[i].raw))
		}
	}
}

// settled is a subtest for each kind of problem.
func (r *real) settled(t *testing.T, prefix string, p problems) {
	t.Helper()
	r.quirk(t, prefix+"unannounced-tool-call", p.unannounced)
	r.quirk(t, prefix+"permission-for-unknown-tool-call", p.unknownAsk)
	r.quirk(t, prefix+"tool-call-twice", p.twice)
	r.quirk(t, prefix+"tool-call-left-open", p.open)
	r.quirk(t, prefix+"empty-chunk", p.empty)
	r.quirk(t, prefix+"update-outside-turn", p.outside)
}
