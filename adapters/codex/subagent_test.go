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

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// hearing is a client that keeps how calls end.
type hearing struct {
	latecomer
	mu    sync.Mutex
	heard []string
}

func (h *hearing) Update(_ context.Context, _ schema.SessionID, update any) error {
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
	client *hearing
	mu     sync.Mutex
	asked  []string // what codex was to break off
	early  bool     // codex refuses the first of it
}

func newFamily(t *testing.T) *family {
	f := &family{client: &hearing{}}
	f.session = between(t, f.client, scripted(func(ctx context.Context, c *jsonrpc2.Conn, q *jsonrpc2.Request) {
		var to struct{ ThreadID string }
		_ = json.Unmarshal(*q.Params, &to)
		f.mu.Lock()
		defer f.mu.Unlock()
		if q.Method == "turn/interrupt" {
			f.asked = append(f.asked, to.ThreadID)
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
