package adaptertest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// updatesPrecedeResponse: who has read the response has the whole answer.
func (s *suite) updatesPrecedeResponse(t testing.TB) {
	c, id := s.ready(t)
	p := c.prompt(id, s.Prompts.Stream)
	n := 0
	for i := range p.updates {
		if ofTurn(&p.updates[i]) {
			n++
		}
	}
	if n < s.Chunks {
		c.fatalf("%d updates came before the response, want at least %d", n, s.Chunks)
	}
	p.quiet()
}

// toolCalls checks that calls are announced once, only known calls change and
// none comes back after its end. It returns the last status by call.
func (p *turn) toolCalls() map[schema.ToolCallID]schema.ToolCallStatus {
	p.c.t.Helper()
	calls := map[schema.ToolCallID]schema.ToolCallStatus{}
	for _, u := range p.updates {
		var id schema.ToolCallID
		var next schema.ToolCallStatus
		switch {
		case u.ToolCall != nil:
			id, next = u.ToolCall.ToolCallID, u.ToolCall.Status
			if _, known := calls[id]; known {
				p.c.fatalf("the tool call %s is announced twice", id)
			}
		case u.ToolCallUpdate != nil:
			id, next = u.ToolCallUpdate.ToolCallID, u.ToolCallUpdate.Status
			if _, known := calls[id]; !known {
				p.c.fatalf("the tool call %s changes before it is announced", id)
			}
		default:
			continue
		}
		if next == "" {
			next = calls[id] // unchanged
		}
		if ended(calls[id]) && next != calls[id] {
			p.c.fatalf("the tool call %s was %s and became %s", id, calls[id], next)
		}
		calls[id] = next
	}
	return calls
}

func ended(s schema.ToolCallStatus) bool {
	return s == schema.ToolCallStatusCompleted || s == schema.ToolCallStatusFailed
}

// toolCallLifecycle: a call is announced, changes, and ends within its turn.
func (s *suite) toolCallLifecycle(t testing.TB) {
	c, id := s.ready(t)
	calls := c.prompt(id, s.Prompts.Tool).toolCalls()
	if len(calls) == 0 {
		c.fatalf("the turn has no tool call")
	}
	for call, status := range calls {
		if !ended(status) {
			c.fatalf("the tool call %s is %q when the turn ends, want it completed or failed", call, status)
		}
	}
}

// announced are the tool calls that a turn announces.
func (p *turn) announced() []schema.ToolCallID {
	var out []schema.ToolCallID
	for _, u := range p.updates {
		if u.ToolCall != nil {
			out = append(out, u.ToolCall.ToolCallID)
		}
	}
	return out
}

// reusedCallID: each call is shown as one of its own, also where the model has
// used its id before.
func (s *suite) reusedCallID(t testing.TB) {
	c, id := s.ready(t)
	if s.Prompts.Reread.Text != "" {
		if calls := c.prompt(id, s.Prompts.Reread).announced(); len(calls) != 2 || calls[0] == calls[1] {
			c.fatalf("the calls %v are shown, want two", calls)
		}
		return
	}
	first, second := c.prompt(id, s.Prompts.Tool).announced(), c.prompt(id, s.Prompts.Tool).announced()
	for _, call := range second {
		if slices.Contains(first, call) {
			c.fatalf("a second turn has a tool call %s as well", call)
		}
	}
}

// cancelEndsTheTurn: a cancelled turn answers with the stop reason cancelled,
// which is not an error, and the session goes on.
func (s *suite) cancelEndsTheTurn(t testing.TB) {
	c, id := s.ready(t)
	p := c.begin(id, s.Prompts.Run.Text)
	p.started()
	c.cancel(id)
	if p.end(); p.stop != schema.StopReasonCancelled {
		c.fatalf("the cancelled turn ended with %s, want %s", p.stop, schema.StopReasonCancelled)
	}
	p.quiet()
	c.prompt(id, s.Prompts.Say)
}

// cancelWithoutAPrompt: a cancel of a session in which nothing runs ends nothing, the
// prompt behind it least of all. Clients send one when their cancel meets the end of a
// turn.
func (s *suite) cancelWithoutAPrompt(t testing.TB) {
	c, id := s.ready(t)
	c.prompt(id, s.Prompts.Say)
	c.cancel(id)
	c.prompt(id, s.Prompts.Say).quiet()
}

// twoSessionsInterleave: a turn of one session neither waits for another
// session's nor mixes with it. The longer turn goes on, so the connection is
// closed.
func (s *suite) twoSessionsInterleave(t testing.TB) {
	c, first := s.ready(t)
	second := c.other()
	long := c.begin(first, s.Prompts.Run.Text)
	long.started()
	short := c.prompt(second, s.Prompts.Say)
	for _, m := range c.between(long.from, short.at) {
		if m.IsResponse() && m.ID() == long.id {
			c.fatalf("the turn of session %s ended before it was cancelled", first)
		}
	}
	mixed := said(c.updates(first, long.from, short.at))
	if want := s.Prompts.Say.Says; want != "" && strings.Contains(mixed, want) {
		c.fatalf("session %s got what session %s said", first, second)
	}
	s.past = &past{second, said(short.updates)}
	s.drop(t)
}

// garbageLineSurvived: output that is no message ends neither the turn nor the
// connection.
func (s *suite) garbageLineSurvived(t testing.TB) {
	c, id := s.ready(t)
	c.prompt(id, s.Prompts.Garbage)
	c.prompt(id, s.Prompts.Say)
}

// largeMessage: a large text arrives whole in both directions.
func (s *suite) largeMessage(t testing.TB) {
	const special = `"quoted"\back/slashed\<&>é漢🙂`
	piece := strings.Repeat("0123456789", 100) + special
	text := strings.Repeat(piece, s.large/len(piece)+1)
	c, id := s.ready(t)
	p := c.begin(id, s.Prompts.Echo(text)).end()
	if got := said(p.updates); got != text {
		same := 0
		for same < min(len(got), len(text)) && got[same] == text[same] {
			same++
		}
		c.fatalf("%d bytes came back of %d; they differ from byte %d on", len(got), len(text), same)
	}
	c.prompt(id, s.Prompts.Say)
}

// metaPreserved: members that nobody knows do no harm, and _meta comes back
// where the agent returns it.
func (s *suite) metaPreserved(t testing.TB) {
	const meta = `{"example.com/trace":{"id":12345678901234567890,"deep":[{"a":null},1.50,"<&>"]},"example.com/empty":{}}`
	c, id := s.ready(t)
	params := c.encode(&schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock(s.Prompts.Say.Text)}})
	params = append(bytes.TrimSuffix(params, []byte("}")), `,"futureField":{"nested":[1,2,{}]},"_meta":`+meta+`}`...)
	p := c.beginRaw(id, params).end()
	p.says(s.Prompts.Say.Says)
	if !s.EchoesMeta {
		return
	}
	raw, _ := rawjson.Member(p.result, "_meta")
	var got, want map[string]any
	decode(t, []byte(meta), &want)
	if raw == nil {
		c.fatalf("the result has no _meta")
	}
	decode(t, raw, &got)
	for key := range want {
		if !reflect.DeepEqual(got[key], want[key]) {
			c.fatalf("_meta came back with %s = %v, want %v", key, got[key], want[key])
		}
	}
}

// decode keeps numbers as they are written.
func decode(t testing.TB, raw []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}
