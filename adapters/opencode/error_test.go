package opencode

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// OpenCode says in an event why it refuses a prompt. One that comes late is of the turn before, and explains nothing of the one
// that runs.
func TestPrompt_ErrorOfTheTurnBefore(t *testing.T) {
	defer func(was time.Duration) { reasonPause = was }(reasonPause)
	reasonPause = 50 * time.Millisecond
	at := func(when time.Time) string {
		return fmt.Sprintf("evt_%012x", when.UnixMilli()<<12&(1<<48-1)) + "random"
	}
	for name, tt := range map[string]struct {
		id   string
		want string
	}{
		"of now":                 {at(time.Now().Add(time.Hour)), "why"},
		"of the turn before":     {at(time.Now().Add(-time.Minute)), "opencode refused"},
		"of an early version":    {"", "why"},
		"whose time is not told": {"evt_1", "why"},
	} {
		t.Run(name, func(t *testing.T) {
			var s *session
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/message") {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				e, err := parse(fmt.Appendf(nil, `{"payload":{"id":%q,"type":"session.error","properties":{"sessionID":"S","error":{"name":"UnknownError","data":{"message":"why"}}}}}`, tt.id))
				if err != nil {
					t.Error(err)
				}
				s.observe(e)
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"name":"UnknownError","data":{"message":"Unexpected server error. Check server logs for details."}}`)
			}))
			defer there.Close()
			a := &agent{peer: decider{}, log: slog.New(slog.DiscardHandler), conn: &bridge.Conn{}, sessions: map[schema.SessionID]*session{}}
			srv := &server{a: a, log: a.log, http: there.Client(), prompts: there.Client(), base: there.URL, ended: make(chan struct{})}
			s = a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
			defer s.quit()
			a.sessions["S"] = s
			_, err := a.Prompt(t.Context(), &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock("x")}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it fails with %v, want %q", err, tt.want)
			}
		})
	}
}
