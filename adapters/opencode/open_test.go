package opencode

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// Only a session that opencode says it does not have is gone.
func TestFind_GoneOrNotNow(t *testing.T) {
	for status, gone := range map[int]bool{
		http.StatusNotFound: true, http.StatusBadRequest: false, http.StatusUnauthorized: false,
		http.StatusTooManyRequests: false, http.StatusInternalServerError: false,
	} {
		answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"name":"E","data":{"message":"no"}}`))
		}))
		s := &server{a: &agent{}, base: answers.URL, http: answers.Client()}
		if _, err := s.find(t.Context(), "ses_1"); err == nil || bridge.IsNotFound(err) != gone {
			t.Errorf("HTTP %d: %v", status, err)
		}
		answers.Close()
	}
}

// A session that is given up is not left in OpenCode's list, whenever in its making that is. OpenCode makes it also
// when nobody waits for the answer any more.
func TestCreate_GivenUp(t *testing.T) {
	for name, when := range map[string]string{"never": "", "before OpenCode makes it": "asked", "before OpenCode answers": "made"} {
		t.Run(name, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			var mu sync.Mutex
			there := map[string]bool{}
			at := func(moment string) {
				if moment == when {
					giveUp()
				}
			}
			answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				mu.Lock()
				defer mu.Unlock()
				if r.Method == http.MethodDelete {
					delete(there, r.URL.Path)
					_, _ = w.Write([]byte(`true`))
					return
				}
				at("asked")
				there["/session/ses_1"] = true
				at("made")
				_, _ = w.Write([]byte(`{"id":"ses_1"}`))
			}))
			a := &agent{log: slog.New(slog.DiscardHandler), store: newStore(t.TempDir())}
			srv := &server{a: a, log: a.log, base: answers.URL, http: answers.Client(), ended: make(chan struct{})}
			var made info
			err := a.create(ctx, srv, "/session", map[string]any{}, &made)
			answers.Close() // waits for the handlers
			if given := when != ""; given != errors.Is(err, context.Canceled) || given == there["/session/ses_1"] {
				t.Errorf("%v, OpenCode has %v", err, there)
			}
		})
	}
}
