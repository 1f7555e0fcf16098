package native

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// script is a Conn whose messages are given.
type script struct {
	in chan acp.Message
	// blocks, which may be nil, is called before a frame is noted as written.
	blocks func(frame string)

	mu    sync.Mutex
	wrote []string
}

func newScript(frames ...string) *script {
	s := &script{in: make(chan acp.Message, 64)}
	for _, f := range frames {
		s.in <- acp.MustParse([]byte(f))
	}
	return s
}

func (s *script) Read(context.Context) (acp.Message, error) {
	m, ok := <-s.in
	if !ok {
		return m, io.EOF
	}
	return m, nil
}

func (s *script) Write(_ context.Context, m acp.Message) error {
	if s.blocks != nil {
		s.blocks(string(m.Frame()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = append(s.wrote, string(m.Frame()))
	return nil
}

func (s *script) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrote)
}

func (s *script) Close() error {
	defer func() { _ = recover() }() // a second Close
	close(s.in)
	return nil
}

func up(update string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + update + `}}`
}

func readAll(t *testing.T, c acp.Conn) []string {
	t.Helper()
	var out []string
	for {
		m, err := c.Read(t.Context())
		if err != nil {
			return out
		}
		out = append(out, string(m.Frame()))
	}
}

func TestMend(t *testing.T) {
	const (
		prompt   = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		answer   = `{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}`
		refusal  = `{"jsonrpc":"2.0","id":7,"error":{"code":400,"message":"bad"}}`
		ask      = `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"a","title":"run it","kind":"execute","rawInput":{"n":1.0}}}}`
		askBare  = `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"a","title":null}}}`
		chunk    = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`
		callA    = `{"sessionUpdate":"tool_call","toolCallId":"a","title":"A","status":"pending"}`
		doneA    = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}`
		workingA = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress"}`
		failedA  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"failed"}`
	)
	for _, tt := range []struct {
		name     string
		in, want []string
	}{
		{"nothing to mend", []string{up(chunk), up(callA), up(doneA), answer}, []string{up(chunk), up(callA), up(doneA), answer}},
		{"a permission for a call nobody told of", []string{ask, up(doneA), answer}, []string{
			up(`{"toolCallId":"a","title":"run it","kind":"execute","rawInput":{"n":1.0},"sessionUpdate":"tool_call","status":"pending"}`), ask, up(doneA), answer,
		}},
		{"and without a title", []string{askBare, up(doneA), answer}, []string{
			up(`{"toolCallId":"a","title":"a","sessionUpdate":"tool_call","status":"pending"}`), askBare, up(doneA), answer,
		}},
		{"an update of a call nobody told of", []string{up(doneA), answer}, []string{
			up(`{"sessionUpdate":"tool_call","toolCallId":"a","status":"completed","title":"a"}`), answer,
		}},
		{"a call left pending", []string{up(callA), answer}, []string{up(callA), up(failedA), answer}},
		{"a call left working when the turn failed", []string{up(callA), up(workingA), refusal}, []string{up(callA), up(workingA), up(failedA), refusal}},
		{"a refused permission that nobody spoke of again", []string{up(callA), ask, answer}, []string{up(callA), ask, up(failedA), answer}},
		{"an end of another request", []string{up(callA), `{"jsonrpc":"2.0","id":8,"result":{}}`}, []string{up(callA), `{"jsonrpc":"2.0","id":8,"result":{}}`}},
		{"a request of an unknown kind", []string{`{"jsonrpc":"2.0","id":1,"method":"craft/drain","params":{"sessionId":"s"}}`}, []string{`{"jsonrpc":"2.0","id":1,"method":"craft/drain","params":{"sessionId":"s"}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inner := newScript(tt.in...)
			close(inner.in)
			c := mend(inner, nil)
			if err := c.Write(t.Context(), acp.MustParse([]byte(prompt))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, readAll(t, c)); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{prompt}, inner.wrote); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMend_ACancelledPromptEndsCancelled(t *testing.T) {
	const failure = `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"broken by the cancel"}}`
	for _, cancel := range []bool{false, true} {
		inner := newScript(failure)
		close(inner.in)
		c := mend(inner, nil)
		_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)))
		want := failure
		if cancel {
			_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)))
			want = `{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}`
		}
		if diff := cmp.Diff([]string{want}, readAll(t, c)); diff != "" {
			t.Errorf("cancelled %v (-want +got):\n%s", cancel, diff)
		}
	}
}

// An agent that missed the cancel is told again, until the prompt has ended.
func TestMend_ACancelIsRepeated(t *testing.T) {
	const (
		prompt = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		cancel = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
	)
	for name, end := range map[string]func(*mended, *script){
		"answered": func(c *mended, inner *script) {
			inner.in <- acp.MustParse([]byte(`{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}`))
			_, _ = c.Read(context.Background())
		},
		"next prompt": func(c *mended, _ *script) {
			_ = c.Write(context.Background(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)))
		},
		"closed": func(c *mended, _ *script) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newScript()
				c := mend(inner, nil)
				cancels := func() (n int) {
					for _, w := range inner.written() {
						if w == cancel {
							n++
						}
					}
					return n
				}
				_ = c.Write(t.Context(), acp.MustParse([]byte(cancel))) // idle: nothing to repeat
				time.Sleep(10 * cancelAgain)
				if n := cancels(); n != 1 {
					t.Fatalf("an idle session was cancelled %d times", n)
				}
				_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
				_ = c.Write(t.Context(), acp.MustParse([]byte(cancel)))
				_ = c.Write(t.Context(), acp.MustParse([]byte(cancel)))
				time.Sleep(3*cancelAgain + cancelAgain/2)
				synctest.Wait()
				if n := cancels(); n != 1+2+3 {
					t.Errorf("%d cancels were written in 3.5 intervals, want 6", n)
				}
				end(c, inner)
				time.Sleep(10 * cancelAgain)
				synctest.Wait()
				if n := cancels(); n != 6 {
					t.Errorf("%d cancels were written after the end", n-6)
				}
			})
		})
	}
}

// A repeated cancel never comes behind the next prompt.
func TestMend_ACancelIsOfItsPrompt(t *testing.T) {
	const (
		prompt = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		cancel = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
		next   = `{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
	)
	synctest.Test(t, func(t *testing.T) {
		inner, may := newScript(), make(chan struct{})
		inner.blocks = func(frame string) {
			if frame == cancel && len(inner.written()) == 2 {
				<-may
			}
		}
		c := mend(inner, nil)
		_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
		_ = c.Write(t.Context(), acp.MustParse([]byte(cancel)))
		time.Sleep(cancelAgain)
		synctest.Wait() // the second one is on its way
		inner.in <- acp.MustParse([]byte(`{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}`))
		if _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		given := make(chan struct{})
		go func() {
			defer close(given)
			_ = c.Write(t.Context(), acp.MustParse([]byte(next)))
		}()
		synctest.Wait()
		if !c.Untaken("s") {
			t.Error("the agent has the prompt")
		}
		close(may)
		<-given
		if c.Untaken("s") {
			t.Error("the agent does not have the prompt")
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{prompt, cancel, cancel, next}, inner.written()); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		_ = c.Close()
	})
}

// A cancel of a session in which nothing runs is kept from an agent that would take it
// for its next prompt, and from no other.
func TestMend_CancelWithoutAPrompt(t *testing.T) {
	const (
		prompt = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		cancel = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
		answer = `{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"}}`
		chunk  = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`
		usage  = `{"sessionUpdate":"usage_update","used":1,"size":2}`
	)
	for name, tt := range map[string]struct {
		hold   bool
		behind []string // updates behind the turn
		more   []string // and behind each cancel
		want   []string
	}{
		"idle":                 {true, nil, nil, []string{prompt}},
		"late news of a turn":  {true, []string{usage}, nil, []string{prompt}},
		"works by itself":      {true, []string{chunk}, nil, []string{prompt, cancel}},
		"still says something": {true, []string{chunk}, []string{chunk}, []string{prompt, cancel}},
		"of an agent that can": {false, nil, nil, []string{prompt, cancel, cancel}},
	} {
		inner := newScript()
		c := mend(inner, nil)
		c.hold = tt.hold
		_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
		inner.in <- acp.MustParse([]byte(up(chunk)))
		inner.in <- acp.MustParse([]byte(answer))
		for _, u := range tt.behind {
			inner.in <- acp.MustParse([]byte(up(u)))
		}
		for range 2 + len(tt.behind) {
			if _, err := c.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second may come when it does nothing any more
			_ = c.Write(t.Context(), acp.MustParse([]byte(cancel)))
			for _, u := range tt.more {
				inner.in <- acp.MustParse([]byte(up(u)))
				if _, err := c.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if diff := cmp.Diff(tt.want, inner.written()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A prompt that waits for the write of another session's is given to nobody until then, whoever else waits.
func TestMend_PromptsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mend(newScript(), nil)
		c.writing <- struct{}{} // somebody writes
		prompt := func(session string) (giveUp context.CancelFunc, over <-chan error) {
			ctx, giveUp := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- c.Write(ctx, acp.MustParse([]byte(`{"jsonrpc":"2.0","id":"of `+session+`","method":"session/prompt","params":{"sessionId":"`+session+`","prompt":[]}}`)))
			}()
			synctest.Wait()
			return giveUp, done
		}
		one, first := prompt("one")
		defer one()
		two, second := prompt("two")
		two()
		if err := <-second; err == nil || c.Untaken("two") || !c.Untaken("one") {
			t.Errorf("%v; untaken: the one that waits %t, the one that was given up %t", err, c.Untaken("one"), c.Untaken("two"))
		}
		<-c.writing
		if err := <-first; err != nil || c.Untaken("one") {
			t.Errorf("%v; what was given counts as untaken: %t", err, c.Untaken("one"))
		}
	})
}

// A cancel is kept from an agent that would be deaf after one that comes early,
// until the agent works, or for a while.
func TestMend_HeldCancels(t *testing.T) {
	const (
		prompt   = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		cancel   = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
		announce = `{"sessionUpdate":"available_commands_update","availableCommands":[]}`
		chunk    = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`
		usage    = `{"sessionUpdate":"usage_update","used":1,"size":2}`
	)
	for _, tt := range []struct {
		name   string
		before []string // updates before the cancel
		after  []string // and after it
		want   time.Duration
	}{
		{"works already", []string{announce, chunk}, nil, 0},
		{"works then", []string{announce}, []string{announce, chunk}, 0},
		{"never works", []string{announce}, []string{announce}, heldCancel - time.Second},
		{"tells of the turn before", []string{usage}, []string{usage}, heldCancel - time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newScript()
				c := mend(inner, nil)
				c.hold = true
				read := func(updates []string) {
					for _, u := range updates {
						inner.in <- acp.MustParse([]byte(up(u)))
						if _, err := c.Read(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
				read(tt.before)
				time.Sleep(time.Second)
				_ = c.Write(t.Context(), acp.MustParse([]byte(cancel)))
				read(tt.after)
				if tt.want > 0 {
					time.Sleep(tt.want - 1)
					synctest.Wait()
					if diff := cmp.Diff([]string{prompt}, inner.written()); diff != "" {
						t.Errorf("just before %v (-want +got):\n%s", tt.want, diff)
					}
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				if diff := cmp.Diff([]string{prompt, cancel}, inner.written()); diff != "" {
					t.Errorf("after %v (-want +got):\n%s", tt.want, diff)
				}
				read([]string{chunk})
				_ = c.Write(t.Context(), acp.MustParse([]byte(cancel))) // the turn may have ended
				time.Sleep(10 * cancelAgain)
				synctest.Wait()
				if diff := cmp.Diff([]string{prompt, cancel}, inner.written()); diff != "" {
					t.Errorf("it is told again (-want +got):\n%s", diff)
				}
				_ = c.Close()
			})
		})
	}
}

func TestMend_MemoryIsBounded(t *testing.T) {
	inner := newScript()
	c := mend(inner, nil)
	for i := range maxCalls + 10 {
		inner.in <- acp.MustParse([]byte(up(fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"%d","title":"x","status":"completed"}`, i))))
		if _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.sessions[`"s"`].order); n != maxCalls {
		t.Errorf("%d calls are remembered, want %d", n, maxCalls)
	}
	_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s"}}`)))
	if s := c.sessions[`"s"`]; len(s.order) != maxPast || len(s.state) != maxPast || s.order[0] != fmt.Sprintf(`"%d"`, maxCalls-maxPast) {
		t.Errorf("%d calls that have ended are remembered into the next turn, from %s on", len(s.order), s.order[0])
	}
	for _, method := range []string{"session/close", "session/delete"} {
		for id, answer := range map[string]string{"8": `"error":{"code":-32603,"message":"no"}`, "9": `"result":{}`} {
			inner.in <- acp.MustParse([]byte(up(`{"sessionUpdate":"tool_call","toolCallId":"x","title":"x"}`)))
			_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{"sessionId":"s"}}`)))
			inner.in <- acp.MustParse([]byte(`{"jsonrpc":"2.0","id":` + id + `,` + answer + `}`))
			for range 2 {
				if _, err := c.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if gone := len(c.sessions) == 0; gone != (id == "9") || len(c.leaves) != 0 {
				t.Errorf("%s, %s: forgotten %v", method, answer, gone)
			}
		}
	}
}

// What comes of a call behind its turn's end is of that call, also when the next turn runs.
func TestMend_AnUpdateBehindTheTurn(t *testing.T) {
	const (
		prompt   = `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
		answer   = `{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}`
		ask      = `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"a","title":"A"}}}`
		callA    = `{"sessionUpdate":"tool_call","toolCallId":"a","title":"A","status":"pending"}`
		outputA  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","content":[]}`
		workingA = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress"}`
		doneA    = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}`
		failedA  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"failed"}`
	)
	for name, tt := range map[string]struct{ behind, want []string }{
		"its end":                 {[]string{up(doneA)}, []string{up(doneA)}},
		"its output":              {[]string{up(outputA)}, []string{up(outputA)}},
		"that it works":           {[]string{up(workingA)}, []string{up(workingA), up(failedA)}},
		"that it works, and ends": {[]string{up(workingA), up(doneA)}, []string{up(workingA), up(doneA)}},
		"another one with its id": {[]string{up(callA)}, []string{up(callA), up(failedA)}},
		"a permission with its id": {[]string{ask, up(doneA)}, []string{
			up(`{"toolCallId":"a","title":"A","sessionUpdate":"tool_call","status":"pending"}`), ask, up(doneA),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inner := newScript(up(callA), answer)
			c := mend(inner, nil)
			_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
			for range 3 { // and the end of the call
				if _, err := c.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.Write(t.Context(), acp.MustParse([]byte(prompt)))
			for _, frame := range append(tt.behind, answer) {
				inner.in <- acp.MustParse([]byte(frame))
			}
			close(inner.in)
			if diff := cmp.Diff(append(tt.want, answer), readAll(t, c)); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMend_RealAgents replays what real agents sent and were sent.
func TestMend_RealAgents(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			inner := newScript()
			c := mend(inner, nil)
			running := map[string]bool{} // calls that were introduced and have not ended
			told := map[string]bool{}
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<20)
			passed := 0
			for lines.Scan() {
				var l struct {
					Dir string
					Msg json.RawMessage
				}
				if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
					t.Fatal(err)
				}
				m, err := acp.Parse(l.Msg)
				if err != nil {
					continue // recorded to see what the other side makes of it
				}
				if l.Dir == "c2a" {
					_ = c.Write(t.Context(), m)
					continue
				}
				inner.in <- m.Clone()
				for {
					got, err := c.Read(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					call, kind := got.Update(), string(got.UpdateKind())
					if got.Method() == "session/request_permission" {
						call, _ = rawjson.Member(got.Params(), "toolCall")
						kind = "permission"
					}
					id := rawjson.MemberString(call, "toolCallId")
					switch kind {
					case "tool_call":
						told[id], running[id] = true, said(call) != ended
					case "tool_call_update", "permission":
						if !told[id] {
							t.Errorf("%s of call %s, which nobody told of: %s", kind, id, got.Frame())
						}
						if said(call) == ended {
							running[id] = false
						}
					}
					if got.IsResponse() && rawjson.MemberString(got.Result(), "stopReason") != "" {
						for id, is := range running {
							if is {
								t.Errorf("call %s is open although its turn has ended", id)
							}
						}
					}
					if string(got.Frame()) == string(m.Frame()) || !c.Buffered() {
						break
					}
				}
				passed++
			}
			if err := lines.Err(); err != nil {
				t.Fatal(err)
			}
			if passed == 0 {
				t.Error("the recording has nothing of the agent")
			}
		})
	}
}

func TestLate_TheAnswerFollowsTheReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newScript()
		c := holdLoads(inner)
		defer func() { _ = c.Close() }()
		const load = `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}`
		const answer = `{"jsonrpc":"2.0","id":3,"result":{}}`
		if err := c.Write(t.Context(), acp.MustParse([]byte(load))); err != nil {
			t.Fatal(err)
		}
		go func() {
			inner.in <- acp.MustParse([]byte(answer))
			for i := range 3 {
				time.Sleep(quiet / 2)
				inner.in <- acp.MustParse([]byte(up(fmt.Sprintf(`{"sessionUpdate":"user_message_chunk","n":%d}`, i))))
			}
		}()
		var got []string
		begin := time.Now()
		for range 4 {
			m, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(m.Frame()))
		}
		if got[3] != answer {
			t.Errorf("read %q, want the answer last", got)
		}
		if took := time.Since(begin); took != 3*quiet/2+quiet {
			t.Errorf("the answer was held for %s", took)
		}
		// Another request's answer and a refused load are not held.
		for _, frame := range []string{`{"jsonrpc":"2.0","id":4,"result":{}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"no"}}`} {
			_ = c.Write(t.Context(), acp.MustParse([]byte(strings.Replace(load, `"id":3`, `"id":5`, 1))))
			begin := time.Now()
			inner.in <- acp.MustParse([]byte(frame))
			if m, err := c.Read(t.Context()); err != nil || string(m.Frame()) != frame || time.Since(begin) != 0 {
				t.Errorf("read %s, %v after %s", m.Frame(), err, time.Since(begin))
			}
		}
	})
}

// Each of two loads at once has its answer behind its own replay, which a turn of another session does not hold up.
func TestLate_TwoLoadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newScript()
		c := holdLoads(inner)
		defer func() { _ = c.Close() }()
		update := func(session string) string {
			return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":{"sessionUpdate":"x"}}}`
		}
		answer := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }
		for id, session := range map[string]string{"3": "a", "4": "b"} {
			if err := c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"session/load","params":{"sessionId":"`+session+`"}}`))); err != nil {
				t.Fatal(err)
			}
		}
		quit, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for _, frame := range []string{answer("3"), answer("4"), update("a"), update("b")} {
				inner.in <- acp.MustParse([]byte(frame))
			}
			time.Sleep(quiet / 2)
			inner.in <- acp.MustParse([]byte(update("b")))
			for {
				select {
				case inner.in <- acp.MustParse([]byte(update("live"))):
					time.Sleep(quiet / 4)
				case <-quit:
					return
				}
			}
		}()
		begin := time.Now()
		seen := map[string]int{}
		for answered := 0; answered < 2; {
			m, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !m.IsResponse() {
				seen[rawjson.MemberString(m.Params(), "sessionId")]++
				continue
			}
			answered++
			session, updates, want := "a", 1, quiet
			if m.ID() == "4" {
				session, updates, want = "b", 2, quiet/2+quiet
			}
			if took := time.Since(begin); seen[session] != updates || took < want || took > want+quiet/4 {
				t.Errorf("the answer of %s came behind %d updates, after %s", session, seen[session], took)
			}
		}
		close(quit)
		<-done
	})
}

func TestLate_AnEndlessReplayDoesNotHoldTheAnswerForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newScript()
		c := holdLoads(inner)
		_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}`)))
		quit := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			inner.in <- acp.MustParse([]byte(`{"jsonrpc":"2.0","id":3,"result":{}}`))
			for {
				select {
				case inner.in <- acp.MustParse([]byte(up(`{"sessionUpdate":"x"}`))):
					time.Sleep(quiet / 3)
				case <-quit:
					return
				}
			}
		}()
		begin := time.Now()
		for {
			m, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.IsResponse() {
				break
			}
		}
		if took := time.Since(begin); took > lateBound+quiet {
			t.Errorf("the answer was held for %s", took)
		}
		close(quit)
		<-done
		_ = c.Close()
	})
}

func TestLate_CloseEndsRead(t *testing.T) {
	inner := newScript(up(`{"sessionUpdate":"x"}`), up(`{"sessionUpdate":"y"}`))
	c := holdLoads(inner)
	if _, err := c.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for range 3 { // what was on its way may still come
		if _, err := c.Read(t.Context()); err != nil {
			return
		}
	}
	t.Error("a closed Conn can be read for ever")
}

func TestLate_TheEndReleasesTheAnswer(t *testing.T) {
	inner := newScript(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	c := holdLoads(inner)
	_ = c.Write(t.Context(), acp.MustParse([]byte(`{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}`)))
	_ = inner.Close()
	if got := readAll(t, c); len(got) != 1 {
		t.Errorf("read %q, want the answer", got)
	}
	_ = c.Close()
}
