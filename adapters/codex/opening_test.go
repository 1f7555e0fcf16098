package codex

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// returning is a client that comes back to a session, and decides nothing.
type returning struct {
	latecomer
	mu  sync.Mutex
	all []schema.SessionUpdate
}

func (c *returning) Update(_ context.Context, _ schema.SessionID, update any) error {
	if u, ok := update.(schema.SessionUpdate); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, u)
	}
	return nil
}

func (c *returning) updates() []schema.SessionUpdate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *returning) Ask(ctx context.Context, _ string, _, _ any) error {
	c.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// As soon as codex has a thread again it may go on with it, with a goal that it has. What it says before the session is known is the
// session's, behind what was said before: its turn can be cancelled, and what it asks is asked.
func TestOpen_CodexGoesOnAtOnce(t *testing.T) {
	for _, tt := range []struct{ name, past, said string }{
		{"resumed", "", "on it"},
		{"loaded", `{"id":"past","status":"completed","items":[{"type":"agentMessage","id":"m0","text":"before, "}]}`, "before, on it"},
		{"loaded, with the turn", `{"id":"past","status":"completed","items":[{"type":"agentMessage","id":"m0","text":"before, "}]},{"id":"own","status":"inProgress","items":[{"type":"agentMessage","id":"m1","text":"on"}]}`, "before, on it"},
		{"not loaded", "no", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &returning{latecomer: latecomer{asked: make(chan struct{}, 2)}}
				decided := make(chan error, 2)
				interrupted := make(chan string, 1)
				ask := func(ctx context.Context, c *jsonrpc2.Conn, thread string) {
					waits, err := c.DispatchCall(ctx, "item/commandExecution/requestApproval", map[string]string{"threadId": thread, "turnId": "own", "itemId": "c"})
					if err != nil {
						t.Error(err)
					}
					go func() { decided <- waits.Wait(context.Background(), &struct{}{}) }()
				}
				s := between(t, client, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
					tell := func(method, params string) { _ = c.Notify(ctx, method, json.RawMessage(params)) }
					switch q.Method {
					case "account/read":
						_ = c.Reply(ctx, q.ID, json.RawMessage(`{"account":{"type":"apiKey"}}`))
					case "thread/resume":
						_ = c.Reply(ctx, q.ID, json.RawMessage(`{"thread":{"id":"T"}}`))
						tell("turn/started", `{"threadId":"T","turn":{"id":"own","rootTurnId":"own","status":"inProgress"}}`)
						tell("turn/started", `{"threadId":"A","turn":{"id":"of A","rootTurnId":"own","status":"inProgress"}}`)
						tell("item/agentMessage/delta", `{"threadId":"T","turnId":"own","itemId":"m1","delta":"on it"}`)
						ask(ctx, c, "T")
						ask(ctx, c, "A")
					case "thread/turns/list":
						if tt.past == "no" {
							_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: acp.CodeInternal, Message: "not now"})
							return
						}
						_ = c.Reply(ctx, q.ID, json.RawMessage(`{"data":[`+tt.past+`]}`))
					case "turn/interrupt":
						_ = c.Reply(ctx, q.ID, struct{}{})
						interrupted <- string(*q.Params)
						tell("turn/completed", `{"threadId":"T","turn":{"id":"own","rootTurnId":"own","status":"interrupted"}}`)
					default:
						_ = c.Reply(ctx, q.ID, json.RawMessage(`{"data":[]}`))
					}
				}))
				a := s.a
				a.store, a.sessions, a.threads = newStore(t.TempDir()), map[schema.SessionID]*session{}, map[string]*session{}
				a.servers = bridge.NewServers(&bridge.Conn{}, func(context.Context, struct{}) (*server, error) { return s.srv, nil }, a.died)
				s.srv.child = &bridge.Child{}
				var err error
				if tt.past == "" {
					_, err = a.ResumeSession(t.Context(), &schema.ResumeSessionRequest{SessionID: "T", Cwd: "/tmp"})
				} else {
					_, err = a.LoadSession(t.Context(), &schema.LoadSessionRequest{SessionID: "T", Cwd: "/tmp"})
				}
				if failed := tt.past == "no"; failed != (err != nil) {
					t.Fatal(err)
				}
				if err == nil {
					<-client.asked
					<-client.asked
					if err := a.Cancel(t.Context(), &schema.CancelNotification{SessionID: "T"}); err != nil {
						t.Error(err)
					}
					if thread := <-interrupted; !strings.Contains(thread, `"T"`) {
						t.Errorf("%s is interrupted", thread)
					}
				}
				for range 2 {
					if err := <-decided; (err != nil) != (tt.past == "no") {
						t.Error(err)
					}
				}
				synctest.Wait()
				if said := bridgetest.Said(client.all); said != tt.said {
					t.Errorf("it said %q, want %q", said, tt.said)
				}
				for _, one := range a.sessions {
					if one.turns.Busy() {
						t.Error("something runs")
					}
					one.finish()
					one.later.Stop()
					one.work.Wait()
				}
				s.srv.work.Wait()
			})
		})
	}
}

// What codex says about a thread that is opened is bounded. First pieces of texts go, then what begins. What ends something that is held
// counts in any case, and the client is told.
func TestOpen_CodexGoesOnForLong(t *testing.T) {
	for _, tt := range []struct {
		name    string
		more    event // that comes without an end
		bound   int
		shorter bool // what begins behind it is not held
	}{
		{"pieces", event{Method: "item/agentMessage/delta", ItemID: "m", Delta: "."}, maxHeld, false},
		{"all", event{Method: "item/started", Item: &item{ID: "other", Type: "webSearch"}}, maxEvents, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &returning{latecomer: latecomer{asked: make(chan struct{}, 2)}}
			refused := make(chan error, 2)
			s, codex := connected(t, client, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
			a := s.a
			a.sessions, a.threads = map[schema.SessionID]*session{}, map[string]*session{}
			s.servers, s.tooled = map[string]bool{"tools": true}, make(chan struct{})
			o := a.opens(s.thread)
			take := func(e event) { e.Thread, e.TurnID = s.thread, "own"; a.take(s.srv, &e) }
			call := func(method, id, status string) {
				take(event{Method: method, Item: &item{ID: id, Type: "commandExecution", Command: "true", Status: status, ExitCode: new(0)}})
			}
			asks := func(item string) {
				waits, err := codex.DispatchCall(t.Context(), "item/commandExecution/requestApproval", map[string]string{"threadId": s.thread, "turnId": "own", "itemId": item})
				if err != nil {
					t.Fatal(err)
				}
				go func() { refused <- waits.Wait(context.Background(), &struct{}{}) }()
			}
			turn := &turnInfo{ID: "own", Status: "completed"}
			take(event{Method: "turn/started", Turn: turn})
			take(event{Method: "mcpServer/startupStatus/updated", Name: "tools", Status: json.RawMessage(`"starting"`)})
			call("item/started", "c", "inProgress")
			for range 2 * tt.bound {
				take(tt.more)
			}
			call("item/completed", "c", "completed")
			call("item/started", "d", "inProgress")
			call("item/completed", "d", "completed")
			take(event{Method: "mcpServer/startupStatus/updated", Name: "tools", Status: json.RawMessage(`"ready"`)})
			take(event{Method: "turn/completed", Turn: turn})
			take(event{Method: "turn/started", Turn: &turnInfo{ID: "next"}})
			if n := len(o.all); n < tt.bound || n > tt.bound+10 {
				t.Errorf("%d are held", n)
			}
			asks("d")
			if tt.shorter {
				if err := <-refused; err == nil {
					t.Error("a question beyond the bound is not refused")
				}
			}
			if err := a.register(s); err != nil {
				t.Fatal(err)
			}
			if s.turns.Owns("own") || !s.turns.Owns("next") {
				t.Error("the turns are not as they are")
			}
			select {
			case <-s.tooled:
			default:
				t.Error("the MCP server counts as starting")
			}
			ends := map[schema.ToolCallID]bool{}
			for _, u := range client.updates() {
				if c := u.ToolCallUpdate; c != nil && c.Status == schema.ToolCallStatusCompleted {
					ends[c.ToolCallID] = true
				}
			}
			if !ends["c"] || ends["d"] == tt.shorter {
				t.Errorf("these calls ended: %v", ends)
			}
			if u := client.updates()[0]; u.Notice == nil {
				t.Errorf("the client is told %+v", u)
			}
			if !tt.shorter {
				<-client.asked
			}
			s.turns.OwnOver("next")
			s.finish()
			s.work.Wait()
		})
	}
}

// A fork may have what was chosen of its origin, as codex says. It is kept, for codex forgets it with the thread in which nothing is said.
func TestFork_KeepsWhatWasChosen(t *testing.T) {
	const origin, fork = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	s := between(t, latecomer{}, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
		switch q.Method {
		case "account/read":
			_ = c.Reply(ctx, q.ID, json.RawMessage(`{"account":{"type":"apiKey"}}`))
		case "thread/fork":
			_ = c.Reply(ctx, q.ID, json.RawMessage(`{"thread":{"id":"`+fork+`"},"model":"large","reasoningEffort":"high"}`))
		default:
			_ = c.Reply(ctx, q.ID, json.RawMessage(`{"data":[]}`))
		}
	}))
	a := s.a
	a.store, a.sessions, a.threads = newStore(t.TempDir()), map[schema.SessionID]*session{}, map[string]*session{}
	a.servers = bridge.NewServers(&bridge.Conn{}, func(context.Context, struct{}) (*server, error) { return s.srv, nil }, a.died)
	s.srv.child = &bridge.Child{}
	want := record{Cwd: "/tmp", Made: true, Model: "large", Effort: "high"}
	if err := a.store.change(origin, "/tmp", func(r *record) { *r = want }); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ForkSession(t.Context(), &schema.ForkSessionRequest{SessionID: origin, Cwd: "/tmp"}); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.store.Load(fork); !reflect.DeepEqual(got, want) {
		t.Errorf("the fork is kept as %+v", got)
	}
	for _, one := range a.sessions {
		one.finish()
		one.later.Stop()
		one.looking.Stop()
		one.work.Wait()
	}
}
