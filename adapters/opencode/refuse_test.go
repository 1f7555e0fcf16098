package opencode

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// decider is a client that chooses an option for each call it is asked about, when it is given one.
type decider struct {
	acp.Peer
	options map[schema.ToolCallID]chan schema.PermissionOptionID
	chose   chan schema.ToolCallID
}

func (decider) Update(context.Context, schema.SessionID, any) error { return nil }

func (c decider) Ask(ctx context.Context, _ string, params, result any) error {
	call := params.(*schema.RequestPermissionRequest).ToolCall.ToolCallID
	select {
	case option := <-c.options[call]:
		result.(*schema.RequestPermissionResponse).Outcome.Selected = &schema.SelectedPermissionOutcome{OptionID: option}
		c.chose <- call
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// OpenCode rejects with one call whatever else its message asks at that time. So the rejection waits for what the message's
// other calls ask, also when they ask behind it, and until the client has decided about that.
func TestRefuse_WaitsForOtherCalls(t *testing.T) {
	for name, askFirst := range map[string]bool{"that ask already": true, "that ask a moment later": false} {
		t.Run(name, func(t *testing.T) {
			told := make(chan string, 8)
			client := decider{options: map[schema.ToolCallID]chan schema.PermissionOptionID{"bad": make(chan schema.PermissionOptionID, 1), "good": make(chan schema.PermissionOptionID, 1)}, chose: make(chan schema.ToolCallID, 2)}
			s := beside(t, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct{ Reply string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				told <- r.URL.Path + " " + body.Reply
				w.WriteHeader(http.StatusNoContent)
			}))
			s.out.Lock()
			for _, id := range []string{"bad", "good"} {
				s.tr.parts[id] = &shown{id: id, session: "S", message: "m", kind: "tool"}
				s.tr.calls["m "+id] = id
			}
			s.out.Unlock()
			ask := func(id string) {
				s.asked(&event{Session: "S", ask: ask{ID: "per_" + id, Permission: "bash", Patterns: []string{id}, Tool: &toolRef{Message: "m", Call: id}}})
			}
			if askFirst {
				ask("good")
			}
			client.options["bad"] <- optionReject
			ask("bad")
			<-client.chose
			if !askFirst {
				ask("good")
			}
			client.options["good"] <- optionOnce
			if d := cmp.Diff([]string{"/permission/per_good/reply once", "/permission/per_bad/reply reject"}, []string{<-told, <-told}); d != "" {
				t.Error(d)
			}
		})
	}
}

// What the client allows for the session answers what else is open and covered by it. OpenCode tells of an answer before it has
// answered the request that brings it.
func TestDecide_AlwaysAnswersWhatElseIsOpen(t *testing.T) {
	client := decider{options: map[schema.ToolCallID]chan schema.PermissionOptionID{"per_1": make(chan schema.PermissionOptionID, 1)}, chose: make(chan schema.ToolCallID, 1)}
	told := make(chan string, 8)
	var s *session
	s = beside(t, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.Split(r.URL.Path, "/")[2]
		told <- id
		s.take(&event{Type: "permission.replied", Session: "S", RequestID: id})
		w.WriteHeader(http.StatusNoContent)
	}))
	want := []string{"per_1", "per_2", "per_3"}
	for _, id := range want {
		s.take(&event{Type: "permission.asked", Session: "S", ask: ask{ID: id, Permission: "bash", Patterns: []string{"echo " + id}, Always: []string{"echo *"}}})
	}
	s.mu.Lock()
	first := s.asks["per_1"]
	s.mu.Unlock()
	client.options["per_1"] <- optionAlways
	<-first.done // all is answered then
	var got []string
	for len(told) > 0 {
		got = append(got, <-told)
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	s.quit()
	s.work.Wait()
}
