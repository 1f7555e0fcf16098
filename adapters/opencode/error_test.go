package opencode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync/atomic"
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

// counter is a client that counts calls that have failed.
type counter struct {
	decider
	failed atomic.Int32
}

func (c *counter) Update(_ context.Context, _ schema.SessionID, update any) error {
	if u, ok := update.(schema.SessionUpdate); ok && u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusFailed {
		c.failed.Add(1)
	}
	return nil
}

// The last events of a turn may not come, and who waits for them may cancel. What the session does then is not closed when they would
// have been waited for long enough.
func TestPrompt_CancelledBehindItsAnswer(t *testing.T) {
	defer func(end, aborted time.Duration) { endPause, abortedPause = end, aborted }(endPause, abortedPause)
	endPause, abortedPause = time.Second, time.Millisecond
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/message"):
			_, _ = io.WriteString(w, `{"info":{"id":"msg_1","role":"assistant","sessionID":"S","time":{"completed":1},"error":{"name":"APIError","data":{"message":"no"}}},"parts":[]}`)
		case strings.HasSuffix(r.URL.Path, "/abort"):
			_, _ = io.WriteString(w, `true`)
		default:
			_, _ = io.WriteString(w, `[]`)
		}
	}))
	defer there.Close()
	client := &counter{}
	a := &agent{peer: client, log: slog.New(slog.DiscardHandler), abortBound: abortBound, conn: &bridge.Conn{}, sessions: map[schema.SessionID]*session{}}
	srv := &server{a: a, log: a.log, http: there.Client(), prompts: there.Client(), base: there.URL, ended: make(chan struct{})}
	s := a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
	defer s.quit()
	a.sessions["S"] = s
	over := make(chan error)
	go func() {
		_, err := a.Prompt(t.Context(), &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock("x")}})
		over <- err
	}()
	one := s.turns.Current()
	for ; one == nil; one = s.turns.Current() {
		goruntime.Gosched()
	}
	<-one.Work.posted
	one.Stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		`{"payload":{"type":"message.updated","properties":{"info":{"id":"msg_2","role":"assistant","sessionID":"S"}}}}`,
		`{"payload":{"type":"message.part.updated","properties":{"part":{"id":"prt_2","sessionID":"S","messageID":"msg_2","type":"tool","tool":"bash","callID":"c","state":{"status":"running","input":{"command":"x"}}}}}}`,
	} {
		e, err := parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		s.take(e)
	}
	s.work.Wait()
	if n := client.failed.Load(); n > 0 {
		t.Errorf("%d calls that go on have failed", n)
	}
}

// OpenCode may say that it is idle before it answers a request that has no message of its own, such as a compaction. That is its end,
// and nothing is waited for.
func TestPrompt_IdleBeforeTheAnswer(t *testing.T) {
	defer func(was time.Duration) { endPause = was }(endPause)
	endPause = 200 * time.Millisecond
	for name, late := range map[string]bool{"of the compaction": false, "of what was before it": true} {
		t.Run(name, func(t *testing.T) {
			var s *session
			before := newMessageID()
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if !strings.HasSuffix(r.URL.Path, "/summarize") {
					return
				}
				id := before
				if !late {
					id = newMessageID()
				}
				s.observe(&event{Type: "message.updated", Session: "S", message: &message{ID: id, Session: "S", Role: "user"}})
				s.observe(&event{Type: "session.idle", Session: "S"})
				_, _ = io.WriteString(w, "true")
			}))
			defer there.Close()
			var said bytes.Buffer
			log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
			a := &agent{peer: decider{}, log: log, conn: &bridge.Conn{}, sessions: map[schema.SessionID]*session{}}
			srv := &server{a: a, log: a.log, http: there.Client(), prompts: there.Client(), base: there.URL, ended: make(chan struct{})}
			s = a.newSession(srv, "S", &setup{Setup: &bridge.Setup{Cwd: t.TempDir()}}, &catalog{})
			a.sessions["S"] = s
			r, err := a.Prompt(t.Context(), &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock("/compact")}})
			s.quit()
			if err != nil || r.StopReason != schema.StopReasonEndTurn {
				t.Errorf("it ended with %v, %v", r, err)
			}
			if waits := strings.Contains(said.String(), "was not reported"); waits != late {
				t.Errorf("its end was waited for: %t", waits)
			}
		})
	}
}
