package codex

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// hearing is a client that keeps how calls end, and cancels what it is asked when it may.
type hearing struct {
	latecomer
	mu    sync.Mutex
	heard []string
	shows string // the call that was said last to show a subagent
}

func (h *hearing) Ask(ctx context.Context, _ string, _, _ any) error {
	select {
	case <-h.may:
		return nil // nothing is selected
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hearing) Update(_ context.Context, _ schema.SessionID, update any) error {
	if u, ok := update.(schema.SessionUpdate); ok && u.ToolCallUpdate != nil && strings.Contains(string(u.ToolCallUpdate.Meta[acp.MetaKey]), `"subagent"`) {
		h.mu.Lock()
		h.shows = string(u.ToolCallUpdate.ToolCallID)
		h.mu.Unlock()
	}
	if u, ok := update.(schema.SessionUpdate); ok && u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != schema.ToolCallStatusInProgress {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.heard = append(h.heard, string(u.ToolCallUpdate.ToolCallID)+" "+string(u.ToolCallUpdate.Status))
	}
	return nil
}

func (h *hearing) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.heard, ", ")
}

// family is a session whose turns have subagents.
type family struct {
	*session
	codex  *jsonrpc2.Conn // its end of the connection
	client *hearing
	mu     sync.Mutex
	asked  []string // what codex was to break off
	early  bool     // codex refuses the first of it
}

func newFamily(t *testing.T) *family {
	f := &family{client: &hearing{latecomer: latecomer{may: make(chan struct{})}}}
	f.session, f.codex = connected(t, f.client, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
		var to struct{ ThreadID, ProcessID string }
		_ = json.Unmarshal(*q.Params, &to)
		f.mu.Lock()
		defer f.mu.Unlock()
		if q.Method == "turn/interrupt" {
			f.asked = append(f.asked, to.ThreadID)
		}
		if q.Method == "thread/backgroundTerminals/terminate" {
			f.asked = append(f.asked, to.ProcessID)
		}
		if f.early {
			f.early = false
			_ = c.ReplyWithError(ctx, q.ID, &jsonrpc2.Error{Code: -32600, Message: "no active turn to interrupt"})
			return
		}
		_ = c.Reply(ctx, q.ID, struct{}{})
	}))
	return f
}

func (f *family) brokenOff() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, " ")
}

func (f *family) starts(thread, turn string) {
	f.take(&event{Method: "turn/started", Thread: thread, Turn: &turnInfo{ID: turn}})
}

func (f *family) ends(thread, turn, status string) {
	f.take(&event{Method: "turn/completed", Thread: thread, Turn: &turnInfo{ID: turn, Status: status}})
}

// asks has a thread ask for a permission, and returns what is decided.
func (f *family) asks(thread string) <-chan string {
	f.a.threads = map[string]*session{thread: f.session}
	decided := make(chan string, 1)
	go func() {
		var r struct{ Decision string }
		if err := f.codex.Call(context.Background(), "item/commandExecution/requestApproval", map[string]string{"threadId": thread, "itemId": "of " + thread}, &r); err != nil {
			r.Decision = err.Error()
		}
		decided <- r.Decision
	}()
	synctest.Wait()
	return decided
}

// startsFor is starts of a subagent whose turn tells where it comes from.
func (f *family) startsFor(root, thread, turn string) {
	f.take(&event{Method: "turn/started", Thread: thread, Turn: &turnInfo{ID: turn, Root: root}})
}

// tells has a turn tell a subagent something by a call, in the course of which something happens.
func (f *family) tells(turn, call, child string, amid func()) {
	it := item{ID: call, Type: "collabAgentToolCall", Tool: toolSend, Status: "inProgress", Receivers: []string{child}}
	begun := it
	f.take(&event{Method: "item/started", Thread: f.thread, TurnID: turn, Item: &begun})
	amid()
	it.Status = "completed"
	f.take(&event{Method: "item/completed", Thread: f.thread, TurnID: turn, Item: &it})
}

// spawns has a turn of a thread make a subagent by a call.
func (f *family) spawns(thread, turn, call, child string) {
	it := item{ID: call, Type: "collabAgentToolCall", Tool: toolSpawn, Status: "inProgress"}
	begun := it
	f.take(&event{Method: "item/started", Thread: thread, TurnID: turn, Item: &begun})
	it.Status, it.Receivers = "completed", []string{child}
	f.take(&event{Method: "item/completed", Thread: thread, TurnID: turn, Item: &it})
}

// A turn that is broken off ends with its subagents, and those of them. Codex would go on with all of them. What an earlier turn has
// left goes on, and so does all of a turn that failed.
func TestSubagents_EndWithTheTurnThatIsBrokenOff(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		own, early   bool // nobody prompted for the turn; a subagent has not begun
		asked, heard string
	}{
		{"broken off", "interrupted", false, false, "B C", "second failed, third failed"},
		{"nobody prompted", "interrupted", true, false, "B C", "second failed, third failed"},
		{"not begun", "interrupted", false, true, "B B C", "second failed, third failed"},
		{"failed", "failed", false, false, "", ""},
		{"done", "completed", false, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFamily(t)
				begun, over := prompted(f.session)
				<-begun
				f.starts(f.thread, "one")
				f.spawns(f.thread, "one", "first", "A")
				f.ends(f.thread, "one", "completed")
				<-over
				if !tt.own {
					begun, over = prompted(f.session)
					<-begun
				}
				f.starts(f.thread, "two")
				f.spawns(f.thread, "two", "second", "B")
				f.starts("B", "of B")
				if !tt.early {
					f.spawns("B", "of B", "third", "C")
				}
				f.early = tt.early
				f.ends(f.thread, "two", tt.status)
				if tt.early {
					synctest.Wait()
					f.spawns("B", "of B", "third", "C")
				}
				if !tt.own {
					<-over
				}
				f.work.Wait()
				asked := slices.Sorted(strings.FieldsSeq(f.brokenOff())) // it comes in any order
				if d := cmp.Diff(tt.asked, strings.Join(asked, " ")); d != "" {
					t.Errorf("codex was to break off (-want +got)\n%s", d)
				}
				if d := cmp.Diff(tt.heard, f.client.all()); d != "" {
					t.Errorf("these calls ended (-want +got)\n%s", d)
				}
				f.ends("A", "of A", "completed")
				if !strings.HasSuffix(f.client.all(), "first completed") {
					t.Errorf("the end of what the earlier turn has left is not shown: %s", f.client.all())
				}
			})
		})
	}
}

// The subagents of a session end with it.
func TestSubagents_EndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t)
		begun, over := prompted(f.session)
		<-begun
		f.starts(f.thread, "one")
		f.spawns(f.thread, "one", "first", "A")
		f.spawns(f.thread, "one", "second", "B")
		f.ends(f.thread, "one", "completed")
		<-over
		f.ends("B", "of B", "completed")
		f.end(t.Context())
		if got := f.brokenOff(); got != "A" {
			t.Errorf("codex was to break off %q, want the subagent that works", got)
		}
	})
}

// A subagent that has ended works again when a later turn tells it something. It ends with that turn, and with the session. What it says
// is shown in the call that told it, whenever in the course of that call its turn begins and ends. One that an earlier turn has left at
// work ends with neither of them.
func TestSubagents_ThatAreToldMore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		work  func(f *family)
		asked string // what codex was to break off, with the turn
		heard string // how calls ended, before that
	}{
		{"it begins behind the call", func(f *family) {
			f.tells("two", "more", "A", func() {})
			f.startsFor("two", "A", "again")
		}, "A", "spawned completed"},
		{"it begins in the call", func(f *family) {
			f.tells("two", "more", "A", func() { f.startsFor("two", "A", "again") })
		}, "A", "spawned completed"},
		{"it does not tell where it comes from", func(f *family) {
			f.tells("two", "more", "A", func() {})
			f.starts("A", "again")
		}, "A", "spawned completed"},
		{"it has not begun", func(f *family) { f.tells("two", "more", "A", func() {}) }, "A", "spawned completed"},
		{"it is over in the call", func(f *family) {
			f.tells("two", "more", "A", func() {
				f.startsFor("two", "A", "again")
				f.ends("A", "again", "completed")
			})
		}, "", "spawned completed, more completed"},
		{"it is over", func(f *family) {
			f.tells("two", "more", "A", func() {})
			f.startsFor("two", "A", "again")
			f.ends("A", "again", "completed")
		}, "", "spawned completed, more completed"},
		{"nobody told it", func(f *family) { f.startsFor("two", "A", "again") }, "A", "spawned completed"},
		{"it works for an earlier turn", func(f *family) {
			f.startsFor("one", "B", "of B")
			f.tells("two", "more", "B", func() {})
		}, "", "spawned completed, more completed"},
		{"it is broken off for more", func(f *family) {
			f.startsFor("one", "B", "of B")
			f.tells("two", "more", "B", func() {})
			f.ends("B", "of B", "interrupted")
			f.startsFor("two", "B", "again")
		}, "B", "spawned completed, more completed, left failed"},
	} {
		for _, closes := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", closed"}[closes], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFamily(t)
					begun, over := prompted(f.session)
					<-begun
					f.starts(f.thread, "one")
					f.spawns(f.thread, "one", "spawned", "A")
					f.startsFor("one", "A", "of A")
					f.spawns(f.thread, "one", "left", "B")
					f.ends("A", "of A", "completed")
					f.ends(f.thread, "one", "completed")
					<-over
					begun, over = prompted(f.session)
					<-begun
					f.starts(f.thread, "two")
					tt.work(f)
					if got := f.client.all(); got != tt.heard {
						t.Errorf("these calls ended: %s, want %s", got, tt.heard)
					}
					want := tt.asked
					if closes {
						f.ends(f.thread, "two", "completed")
						<-over
						f.end(t.Context())
						if want != "B" {
							want = strings.TrimSpace(want + " B")
						}
					} else {
						f.ends(f.thread, "two", "interrupted")
						<-over
					}
					f.work.Wait()
					if got := strings.Join(slices.Sorted(strings.FieldsSeq(f.brokenOff())), " "); got != want {
						t.Errorf("codex was to break off %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// What a subagent that is told more says belongs to the call that told it, also where codex breaks it off for that.
func TestSubagents_SayWhatTheyWereTold(t *testing.T) {
	for _, when := range []string{"before", "in it", "behind it"} { // it has ended
		synctest.Test(t, func(t *testing.T) {
			f := newFamily(t)
			begun, over := prompted(f.session)
			one := <-begun
			f.starts(f.thread, "one")
			f.spawns(f.thread, "one", "spawned", "A")
			f.startsFor("one", "A", "of A")
			ends := func(now string) {
				if now == when {
					f.ends("A", "of A", "interrupted")
				}
			}
			ends("before")
			f.tells("one", "more", "A", func() { ends("in it") })
			ends("behind it")
			f.startsFor("one", "A", "again")
			f.take(&event{Method: "item/agentMessage/delta", Thread: "A", TurnID: "again", ItemID: "words", Delta: "well"})
			f.out.Lock()
			said := f.tr.items["more"].words.String()
			threads := f.tr.threadsOf("more")
			f.out.Unlock()
			if said != "well" || !slices.Equal(threads, []string{"A"}) || f.client.shows != "more" {
				t.Errorf("%s: the call says %q, and shows %q; the client knows that of %s", when, said, threads, f.client.shows)
			}
			f.ends("A", "again", "completed")
			if !strings.HasSuffix(f.client.all(), "more completed") {
				t.Errorf("%s: the call does not end: %s", when, f.client.all())
			}
			one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
			<-over
		})
	}
}

// With a turn what it and its subagents ask is cancelled. Clients cancel what a subagent asks as well that an earlier turn has left
// behind, and gateways for them: that is declined, and the subagent goes on, also where the answer comes behind the turn. When nobody
// prompts it is what the cancel is meant for.
func TestSubagents_AskBesideATurnThatIsBrokenOff(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFamily(t)
			begun, over := prompted(f.session)
			<-begun
			f.starts(f.thread, "one")
			f.spawns(f.thread, "one", "left", "A")
			f.startsFor("one", "A", "of A")
			f.ends(f.thread, "one", "completed")
			<-over
			begun, over = prompted(f.session)
			two := <-begun
			f.starts(f.thread, "two")
			f.spawns(f.thread, "two", "own", "B")
			f.startsFor("two", "B", "of B")
			got := map[string]<-chan string{"left": f.asks("A"), "own": f.asks(f.thread), "subagent": f.asks("B"), "unnamed": f.asks("C")}
			two.Stop()
			synctest.Wait()
			got["left, asked behind it"], got["own, asked behind it"] = f.asks("A"), f.asks(f.thread)
			for who, decided := range got {
				if stays := strings.HasPrefix(who, "left"); stays != (len(decided) == 0) || !stays && <-decided != "cancel" {
					t.Errorf("%s: it is to stay open: %v", who, stays)
				}
			}
			ends := func() {
				f.ends(f.thread, "two", "interrupted")
				<-over
			}
			behind := "decline"
			if late {
				ends()
				behind = "cancel" // it was not there when the turn was cancelled
			}
			close(f.client.may)
			if decided := <-got["left"]; decided != "decline" {
				t.Errorf("it is decided to %s, late: %t", decided, late)
			}
			if decided := <-got["left, asked behind it"]; decided != behind {
				t.Errorf("asked behind the cancel: it is decided to %s, late: %t", decided, late)
			}
			if !late {
				ends()
			}
			if decided := <-f.asks("A"); decided != "cancel" {
				t.Errorf("when nobody prompts it is decided to %s", decided)
			}
			f.work.Wait()
			if strings.Contains(f.brokenOff(), "A") {
				t.Errorf("codex was to break off %s", f.brokenOff())
			}
		})
	}
}

// A cancel does not end what turns have left behind: it may be what a user goes on working with.
func TestCancel_LeavesWhatIsLeftBehind(t *testing.T) {
	for name, want := range map[string]string{"idle": "", "a prompt": "", "by itself": "T"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFamily(t)
			f.a.sessions = map[schema.SessionID]*session{f.id: f.session}
			begun, over := prompted(f.session)
			<-begun
			f.starts(f.thread, "one")
			f.spawns(f.thread, "one", "left", "A")
			f.startsFor("one", "A", "of A")
			f.spawns(f.thread, "one", "done", "B")
			f.startsFor("one", "B", "of B")
			for _, one := range []struct{ thread, turn, process string }{{f.thread, "one", "p"}, {"B", "of B", "q"}} {
				f.take(&event{Method: "item/started", Thread: one.thread, TurnID: one.turn, Item: &item{ID: one.process, Type: "commandExecution", Process: one.process, Status: "inProgress"}})
			}
			f.ends("B", "of B", "completed")
			f.ends(f.thread, "one", "completed")
			<-over
			switch name {
			case "a prompt":
				begun, over = prompted(f.session)
				<-begun
			case "by itself":
				f.starts(f.thread, "own")
			}
			if err := f.a.Cancel(t.Context(), &schema.CancelNotification{SessionID: f.id}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if got := strings.Join(slices.Sorted(strings.FieldsSeq(f.brokenOff())), " "); got != want {
				t.Errorf("%s: codex was to break off %q, want %q", name, got, want)
			}
			if name == "a prompt" {
				f.ends(f.thread, "two", "completed")
				f.turns.Current().Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
				<-over
			}
			f.turns.OwnOver("own")
			f.finish()
			f.work.Wait()
		})
	}
}
