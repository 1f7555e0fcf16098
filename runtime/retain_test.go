package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// What sessions in memory let go counts, too: those that spoke last keep theirs when there is room for them.
func TestRetention_InMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", shared: make(chan sent, 64)}
		r, err := New(Options{Ephemeral: true, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: Retention{Bytes: 4 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		for _, s := range []string{"old", "recent"} {
			tc.newWith(`{"requestedSessionId":"` + s + `"}`)
			id := tc.request("session/prompt", prompt(s, "something"))
			m := a.nextOf(t, "session/prompt")
			// However small its blocks get: all is more than the bound, and the recent part less than what is kept.
			for i := range map[string]int{"old": 2000, "recent": 1000}[s] {
				m.to.chunk(rawjson.MemberString(m.m.Params(), "sessionId"), incompressible(i))
			}
			a.answer(m, `{"stopReason":"end_turn"}`)
			tc.until(id)
			time.Sleep(time.Second) // the other one speaks later
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for s, gone := range map[string]bool{"old": true, "recent": false} {
			if i, err := r.Session(s); err != nil || (i.OldestSeq > 1) != gone {
				t.Errorf("%s has events from %d on, %v", s, i.OldestSeq, err)
			}
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Events go by their age and by the size of logs, but not those of a session that works;
// whoever asks for them is told, and a load shows what is left and says that it is not all.
func TestRetention_LetsEventsGo(t *testing.T) {
	for name, bound := range map[string]Retention{
		"age": {Age: 40 * time.Minute}, "bytes of each": {SessionBytes: 64 << 10}, "bytes of all": {Bytes: 128 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
				dir := t.TempDir()
				r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: bound})
				if err != nil {
					t.Fatal(err)
				}
				tc := connect(t, r, "")
				old, working, recent := tc.newWith(`{"requestedSessionId":"old"}`), tc.newWith(`{"requestedSessionId":"working"}`), tc.newWith(`{"requestedSessionId":"recent"}`)
				say := func(s string) (answer func()) {
					id := tc.request("session/prompt", prompt(s, "something"))
					m := a.nextOf(t, "session/prompt")
					native := rawjson.MemberString(m.m.Params(), "sessionId")
					// How it ends the agent does not say: that keeps nothing.
					goesOn := acp.NewNotification(acp.MethodSessionUpdate, []byte(`{"sessionId":"`+native+`","update":{"sessionUpdate":"terminal_update","terminalId":"t","command":"sleep"}}`))
					m.to.out <- goesOn.For(version.Two, nil)
					for i := range 100 {
						m.to.chunk(native, incompressible(i))
					}
					return func() { a.answer(m, `{"stopReason":"end_turn"}`); tc.until(id) }
				}
				say(old)()
				end := say(working)
				synctest.Wait()
				before, err := r.Session(old)
				if err != nil {
					t.Fatal(err)
				}
				// Not at the moment at which events are let go: the client may not have read them.
				time.Sleep(time.Hour + 30*time.Second)
				say(recent)()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				info := func(s string) SessionInfo {
					t.Helper()
					i, err := r.Session(s)
					if err != nil {
						t.Fatal(err)
					}
					return i
				}
				if i := info(old); i.OldestSeq < 2 || i.EventCount != before.EventCount || !i.UpdatedAt.Equal(before.UpdatedAt) || i.Gist != "something" {
					t.Errorf("the old one: %+v", i)
				}
				if i := info(working); i.OldestSeq != 0 || i.State != StateRunning {
					t.Errorf("events of a session that works are gone: %+v", i)
				}
				if i := info(recent); bound.Age > 0 && i.OldestSeq != 0 {
					t.Errorf("young events are gone: %+v", i)
				}
				_, _, err = r.Events(t.Context(), old, 0, 10)
				if err == nil {
					t.Error("the events that are gone are not asked for")
				} else if p := problem.From(err); p.Kind != problem.EventsExpired || p.Extensions["oldestSeq"] != info(old).OldestSeq {
					t.Errorf("the events: %v", err)
				}
				other := connect(t, r, "")
				res := other.call("session/load", `{"sessionId":"old","cwd":"/tmp","mcpServers":[]}`)
				if member(res, "historyIncomplete") != "true" || member(res, "oldestSeq") != fmt.Sprint(info(old).OldestSeq) {
					t.Errorf("the load: %s", res)
				}
				if e := other.callErr("session/resume", `{"sessionId":"old","cwd":"/tmp","_meta":{"sandboxagent.dev":{"after":0}}}`); !strings.Contains(string(e.Data), "events_expired") {
					t.Errorf("the resume behind what is gone: %v %s", e, e.Data)
				}
				end()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if i := info(working); (bound.Age > 0 || bound.SessionBytes > 0) && i.OldestSeq < 2 {
					t.Errorf("its turn is over, and its events are there: %+v", i)
				}
				size := int64(0)
				for _, s := range []string{old, working, recent} {
					st, err := os.Stat(filepath.Join(dir, "sessions", s, "log.journal"))
					if err != nil {
						t.Fatal(err)
					}
					size += st.Size()
					if bound.SessionBytes > 0 && st.Size() > bound.SessionBytes {
						t.Errorf("the log of %s has %d bytes", s, st.Size())
					}
				}
				if bound.Bytes > 0 && size > bound.Bytes {
					t.Errorf("all logs have %d bytes", size)
				}
				say(old)()
				tc.close()
				other.close()
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				r, err = New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: bound})
				if err != nil {
					t.Fatal(err)
				}
				if i := info(old); i.OldestSeq < 2 || i.EventCount <= before.EventCount {
					t.Errorf("after a restart: %+v", i)
				}
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What a gateway was killed in is ended before its begin is let go: who comes is told of that.
func TestRetention_BehindAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
		open := func(dir string, bound Retention) *Runtime {
			r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: bound})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		dir, after := t.TempDir(), t.TempDir()
		r := open(dir, Retention{})
		tc := connect(t, r, "")
		tc.newWith(`{"requestedSessionId":"s"}`)
		id := tc.request("session/prompt", prompt("s", "something"))
		m := a.nextOf(t, "session/prompt")
		native := rawjson.MemberString(m.m.Params(), "sessionId")
		m.to.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"tool_call","toolCallId":"b","title":"B","status":"in_progress"}}}`)
		for i := range 100 {
			m.to.chunk(native, incompressible(i))
		}
		synctest.Wait()
		copyDir(t, after, dir)
		a.answer(m, `{"stopReason":"end_turn"}`)
		tc.until(id)
		tc.close()

		next := open(after, Retention{SessionBytes: 64 << 10})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		i, err := next.Session("s")
		if err != nil || i.OldestSeq < 10 {
			t.Errorf("events are there from %d on, %v", i.OldestSeq, err)
		}
		events, _, err := next.Events(t.Context(), "s", i.OldestSeq-1, 200)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"toolCallId":"b","status":"failed"`, `session/turn_ended`} {
			if !slices.ContainsFunc(events, func(e Event) bool { return strings.Contains(string(e.Message), want) }) {
				t.Errorf("no %s in the events from %d on", want, i.OldestSeq)
			}
		}
		for _, one := range []*Runtime{r, next} {
			if err := one.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// says has the agent answer a prompt with as many pieces, of which none can be compressed.
func (tc *testClient) says(a *fakeAgent, s string, pieces int) {
	tc.t.Helper()
	id := tc.request("session/prompt", prompt(s, "something"))
	m := a.nextOf(tc.t, "session/prompt")
	for i := range pieces {
		m.to.chunk(rawjson.MemberString(m.m.Params(), "sessionId"), incompressible(i))
	}
	a.answer(m, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// Behind a kill, too, the events go first of the session that has been silent longest. Only the log knows that of one that
// was in use: its record says when it was made.
func TestRetention_BehindAKillTheSilentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
		dir, after := t.TempDir(), t.TempDir()
		r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		tc.newWith(`{"requestedSessionId":"working"}`)
		time.Sleep(time.Hour)
		tc.newWith(`{"requestedSessionId":"silent"}`)
		tc.says(a, "silent", 100)
		time.Sleep(time.Hour) // its log is at rest
		tc.says(a, "working", 50)
		synctest.Wait()
		copyDir(t, after, dir)
		tc.close()

		next, err := New(Options{DataDir: after, Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: Retention{Bytes: 120 << 10}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for s, gone := range map[string]bool{"silent": true, "working": false} {
			if i, err := next.Session(s); err != nil || (i.OldestSeq > 1) != gone {
				t.Errorf("%s has events from %d on, %v", s, i.OldestSeq, err)
			}
		}
		for _, one := range []*Runtime{r, next} {
			if err := one.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A session that is never idle lets go of what was before all that goes on in it, and of no more.
func TestRetention_WhileItWorks(t *testing.T) {
	for name, begin := range map[string]func(c *fakeConn, native string){
		"turn behind turn": func(*fakeConn, string) {},
		"an open request": func(c *fakeConn, native string) {
			c.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"` + native + `","toolCall":{"toolCallId":"t"},"options":[]}}`)
		},
		"a call in the background": func(c *fakeConn, native string) {
			c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"tool_call","toolCallId":"b","title":"B","status":"in_progress"}}}`)
		},
		"work of its own": func(c *fakeConn, native string) {
			c.send(`{"jsonrpc":"2.0","method":"` + acp.MethodWorking + `","params":{"sessionId":"` + native + `","working":true}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
				r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: Retention{SessionBytes: 64 << 10}})
				if err != nil {
					t.Fatal(err)
				}
				tc := connect(t, r, "")
				tc.newWith(`{"requestedSessionId":"s"}`)
				info := func() SessionInfo {
					t.Helper()
					i, err := r.Session("s")
					if err != nil {
						t.Fatal(err)
					}
					return i
				}
				// Each turn is more than the bound, and the next prompt waits for its end.
				waiting := tc.request("session/prompt", prompt("s", "something"))
				turn := func(begins func(c *fakeConn, native string)) {
					running := waiting
					waiting = tc.request("session/prompt", prompt("s", "something"))
					m := a.nextOf(t, "session/prompt")
					native := rawjson.MemberString(m.m.Params(), "sessionId")
					for i := range 100 {
						if i == 50 && begins != nil {
							begins(m.to, native)
						}
						m.to.chunk(native, incompressible(i))
					}
					a.answer(m, `{"stopReason":"end_turn"}`)
					tc.until(running)
				}
				turn(nil)
				synctest.Wait()
				before := info().EventCount
				turn(begin)
				synctest.Wait()
				ended := info().EventCount
				turn(nil)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				i := info()
				if since := i.OldestSeq; name == "turn behind turn" && (since <= ended || since > i.EventCount) || name != "turn behind turn" && (since <= before+50 || since > before+60) {
					t.Errorf("the turns end with %d, %d and %d, and events are there from %d on", before, ended, i.EventCount, since)
				}
				other := connect(t, r, "")
				shown, _ := other.until(other.request("session/load", `{"sessionId":"s","cwd":"/tmp","mcpServers":[]}`))
				if asked := slices.ContainsFunc(shown, func(m acp.Message) bool { return m.Method() == "session/request_permission" }); asked != (name == "an open request") {
					t.Errorf("who comes is asked: %v", asked)
				}
				other.close()
				tc.close()
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who reads all events of a session is given all, also when it takes long and some are due to go meanwhile: these go
// when nobody reads them.
func TestRetention_WaitsForReaders(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, r *Runtime, pause func()) error{
		"export": func(ctx context.Context, r *Runtime, pause func()) error {
			return r.ExportSession(ctx, "s", &Departure{Open: true, Begin: func(Manifest) error {
				pause()
				return nil
			}, Put: func(string, io.Reader) error { return nil }})
		},
		"search": func(ctx context.Context, r *Runtime, pause func()) error {
			looked := 0 // for the list, and then behind each part of the log
			_, err := r.Sessions(lateContext{ctx, func() {
				if looked++; looked == 2 {
					pause()
				}
			}}, SessionFilter{Query: "words that nobody has said"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
				r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: Retention{Age: 40 * time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				tc := connect(t, r, "")
				tc.newWith(`{"requestedSessionId":"s"}`)
				id := tc.request("session/prompt", prompt("s", "something"))
				m := a.nextOf(t, "session/prompt")
				for i := range 400 {
					m.to.chunk(rawjson.MemberString(m.m.Params(), "sessionId"), incompressible(i))
				}
				a.answer(m, `{"stopReason":"end_turn"}`)
				tc.until(id)
				time.Sleep(39*time.Minute + 30*time.Second)
				err = read(t.Context(), r, func() { time.Sleep(5 * time.Minute) })
				if i, infoErr := r.Session("s"); err != nil || infoErr != nil || i.OldestSeq > 1 {
					t.Errorf("it ends with %v; events are there from %d on, %v", err, i.OldestSeq, infoErr)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if i, err := r.Session("s"); err != nil || i.OldestSeq < 2 {
					t.Errorf("events are there from %d on, when nobody reads them any more, %v", i.OldestSeq, err)
				}
				tc.close()
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// While all events of a large session are read none of the others go in place of its own.
func TestRetention_ReaderOfALargeSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
		r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Retention: Retention{Bytes: 128 << 10}})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		small, large := tc.newWith(`{"requestedSessionId":"small"}`), tc.newWith(`{"requestedSessionId":"large"}`)
		tc.says(a, small, 20)
		oldest := func(s string) uint64 {
			i, err := r.Session(s)
			if err != nil {
				t.Fatal(err)
			}
			return i.OldestSeq
		}
		tc.says(a, large, 200)
		err = r.ExportSession(t.Context(), large, &Departure{Open: true, Put: func(string, io.Reader) error { return nil }, Begin: func(Manifest) error {
			time.Sleep(5 * time.Minute)
			return nil
		}})
		if n := oldest(small); err != nil || n > 1 {
			t.Errorf("events of the small session are there from %d on, %v", n, err)
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// lateContext is one that takes its time.
type lateContext struct {
	context.Context
	pause func()
}

func (c lateContext) Err() error {
	c.pause()
	return c.Context.Err()
}

func incompressible(n int) string {
	sum := make([]byte, 0, 1000)
	for i := range 20 {
		h := sha256.Sum256(fmt.Append(nil, n, i))
		sum = append(sum, h[:]...)
	}
	return base64.StdEncoding.EncodeToString(sum)
}

// The words of a prompt are in the log once, and everybody else is shown them as before.
func TestPrompt_IsStoredOnce(t *testing.T) {
	a := &fakeAgent{id: "fake", shared: make(chan sent, 8)}
	dir := t.TempDir()
	r := newRuntime(t, dir, a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	s := tc.newWith(`{"requestedSessionId":"s"}`)
	other.call("session/resume", `{"sessionId":"s","cwd":"/tmp"}`)
	id := tc.request("session/prompt", `{"sessionId":"s","prompt":[{"type":"text","text":"Unmistakable words"},{"type":"text", "text":"and more"}]}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	for _, want := range []string{`{"type":"text","text":"Unmistakable words"}`, `{"type":"text", "text":"and more"}`} {
		if m := other.next(); string(m.UpdateKind()) != "user_message_chunk" || !strings.Contains(string(m.Frame()), want) {
			t.Errorf("the other client was given %s", m.Frame())
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "sessions", s, "log.journal")); err != nil || strings.Count(string(b), "Unmistakable") != 1 {
		t.Errorf("the words are in the log %d times, %v", strings.Count(string(b), "Unmistakable"), err)
	}
	var shown []acp.Message
	third := connect(t, r, "")
	shown, _ = third.until(third.request("session/load", `{"sessionId":"s","cwd":"/tmp","mcpServers":[]}`))
	if got := texts(shown); got != "user:Unmistakable words user:and more" {
		t.Errorf("a load shows %q", got)
	}
}

// When all that memory may hold is used up, an export whose events go meanwhile says so, and an open question is asked of
// who comes when its event is gone.
func TestEphemeral_MemoryIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
		r, err := New(Options{Ephemeral: true, Adapters: adaptersOf(a), DefaultAgent: "fake", LogMemory: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		tc.newWith(`{"requestedSessionId":"s"}`)
		turn := func(chunks int, before func(c *fakeConn, native string)) {
			id := tc.request("session/prompt", prompt("s", "something"))
			m := a.nextOf(t, "session/prompt")
			native := rawjson.MemberString(m.m.Params(), "sessionId")
			before(m.to, native)
			for i := range chunks {
				m.to.chunk(native, incompressible(i))
				if i%20 == 0 {
					synctest.Wait() // for the client to read
				}
			}
			a.answer(m, `{"stopReason":"end_turn"}`)
			tc.until(id)
		}
		oldest := func() uint64 {
			t.Helper()
			i, err := r.Session("s")
			if err != nil {
				t.Fatal(err)
			}
			return i.OldestSeq
		}
		nothing := func(*fakeConn, string) {}
		turn(100, nothing)
		if oldest() > 1 {
			t.Fatal("the first turn is more than memory has")
		}
		err = r.ExportSession(t.Context(), "s", &Departure{Open: true, Begin: func(Manifest) error {
			turn(2000, nothing)
			return nil
		}, Put: func(string, io.Reader) error { return nil }})
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.EventsExpired {
			t.Errorf("the export: %v", err)
		}
		if oldest() < 2 {
			t.Error("more is kept than all may hold")
		}
		turn(2000, func(c *fakeConn, native string) {
			c.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"` + native + `","toolCall":{"toolCallId":"t"},"options":[]}}`)
		})
		i, err := r.Session("s")
		if err != nil || i.Pending != 1 {
			t.Fatalf("%d questions are open, %v", i.Pending, err)
		}
		other := connect(t, r, "")
		shown, _ := other.until(other.request("session/load", `{"sessionId":"s","cwd":"/tmp","mcpServers":[]}`))
		if !slices.ContainsFunc(shown, func(m acp.Message) bool { return m.Method() == "session/request_permission" }) {
			t.Error("who comes is not asked what the agent waits for")
		}
		other.close()
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
