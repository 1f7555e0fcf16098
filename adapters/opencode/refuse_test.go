package opencode

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// decider is a client that chooses an option for each call it is asked about, when it is given one.
type decider struct {
	acp.Peer
	options map[schema.ToolCallID]chan schema.PermissionOptionID
	chose   chan schema.ToolCallID
}

func (decider) Update(context.Context, schema.SessionID, any) error { return nil }

func (c decider) Ask(_ context.Context, _ string, params, result any) error {
	call := params.(*schema.RequestPermissionRequest).ToolCall.ToolCallID
	result.(*schema.RequestPermissionResponse).Outcome.Selected = &schema.SelectedPermissionOutcome{OptionID: <-c.options[call]}
	c.chose <- call
	return nil
}

// OpenCode rejects with one call whatever else its message asks at that time. So the rejection waits for what the message's
// other calls ask, also when they ask behind it, and until the client has decided about that.
func TestRefuse_WaitsForOtherCalls(t *testing.T) {
	for name, askFirst := range map[string]bool{"that ask already": true, "that ask a moment later": false} {
		t.Run(name, func(t *testing.T) {
			told := make(chan string, 8)
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct{ Reply string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				told <- r.URL.Path + " " + body.Reply
				w.WriteHeader(http.StatusNoContent)
			}))
			defer there.Close()
			client := decider{options: map[schema.ToolCallID]chan schema.PermissionOptionID{"bad": make(chan schema.PermissionOptionID, 1), "good": make(chan schema.PermissionOptionID, 1)}, chose: make(chan schema.ToolCallID, 2)}
			a := &agent{peer: client, log: slog.New(slog.DiscardHandler)}
			srv := &server{a: a, log: a.log, http: there.Client(), base: there.URL, ended: make(chan struct{})}
			s := a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
			defer s.quit()
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
