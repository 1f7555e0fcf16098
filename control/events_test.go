package control

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// wire is a ResponseWriter that can be read while it is written to.
type wire struct {
	mu       sync.Mutex
	header   http.Header
	status   int
	body     strings.Builder
	deadline time.Time
}

func (w *wire) Header() http.Header { return w.header }

func (w *wire) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.body.Write(b)
}

func (w *wire) Flush() {}

func (w *wire) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	return nil
}

// head returns what the answer began with.
func (w *wire) head() (status int, contentType string, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status, w.header.Get("Content-Type"), w.deadline
}

// taken returns what was written since the last call.
func (w *wire) taken() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.body.String()
	w.body.Reset()
	return s
}

// stream opens a session's stream; ended is closed when the handler returned.
func stream(t *testing.T, s *Server, target, last string) (w *wire, ended chan struct{}) {
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+target, nil)
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	w, ended = &wire{header: http.Header{}}, make(chan struct{})
	go func() {
		defer close(ended)
		s.ServeHTTP(w, r)
	}()
	return w, ended
}

// feed is a FollowEvents that yields what comes on a channel.
func feed(events <-chan runtime.Event, after *uint64, end error) func(context.Context, uint64) iter.Seq2[runtime.Event, error] {
	return func(ctx context.Context, from uint64) iter.Seq2[runtime.Event, error] {
		*after = from
		return func(yield func(runtime.Event, error) bool) {
			for {
				select {
				case ev, ok := <-events:
					if !ok {
						if end != nil {
							yield(runtime.Event{}, end)
						}
						return
					}
					if !yield(ev, nil) {
						return
					}
				case <-ctx.Done():
					yield(runtime.Event{}, ctx.Err())
					return
				}
			}
		}
	}
}

const frame = `{"seq":6,"time":"2026-03-04T05:06:07.00000089Z","direction":"agent","message":{"jsonrpc":"2.0", "method":"x<y"}}`

func TestEvents_Stream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan runtime.Event)
		var after uint64
		s := New(Options{Sessions: &fake{follow: feed(events, &after, nil)}})
		w, ended := stream(t, s, "/v2/sessions/s1/events?after=2", "5")
		synctest.Wait()
		if status, contentType, _ := w.head(); status != 200 || contentType != "text/event-stream" {
			t.Fatalf("status %d, type %s", status, contentType)
		}
		if after != 5 {
			t.Errorf("after %d: Last-Event-ID did not win", after)
		}
		events <- event(6)
		synctest.Wait()
		if diff := cmp.Diff("event: message\nid: 6\ndata: "+frame+"\n\n", w.taken()); diff != "" {
			t.Errorf("event differs (-want +got):\n%s", diff)
		}
		_, _, deadline := w.head()
		if got := time.Until(deadline); got != 60*time.Second {
			t.Errorf("write deadline in %v, want 60s", got)
		}
		time.Sleep(31 * time.Second) // of the bubble's own clock
		synctest.Wait()
		if got := w.taken(); got != ":\n\n:\n\n" {
			t.Errorf("in 31 s %q, want two heartbeats", got)
		}
		s.Shutdown(t.Context())
		<-ended
		if got := w.taken(); got != "" {
			t.Errorf("at shutdown %q, want nothing", got)
		}
	})
}

func TestEvents_StreamEndsWithProblem(t *testing.T) {
	events := make(chan runtime.Event)
	close(events)
	var after uint64
	s := newServer(t, Options{Sessions: &fake{follow: feed(events, &after, problem.New(problem.EventsExpired, "gone"))}})
	w, ended := stream(t, s, "/v2/sessions/s1/events", "")
	<-ended
	if got := w.taken(); !strings.HasPrefix(got, "event: error\ndata: {") || !strings.Contains(got, "events_expired") || !strings.HasSuffix(got, "}\n\n") {
		t.Errorf("stream %q", got)
	}
}

func TestEvents_StreamDoesNotShowInternalErrors(t *testing.T) {
	events := make(chan runtime.Event)
	close(events)
	var after uint64
	s := newServer(t, Options{Sessions: &fake{follow: feed(events, &after, errors.New("open /secret"))}})
	w, ended := stream(t, s, "/v2/sessions/s1/events", "")
	<-ended
	if got := w.taken(); !strings.Contains(got, "internal") || strings.Contains(got, "secret") {
		t.Errorf("stream %q", got)
	}
}

func TestEvents_StreamRefusals(t *testing.T) {
	expired := func(uint64, int) ([]runtime.Event, bool, error) {
		return nil, false, problem.New(problem.EventsExpired, "gone")
	}
	tests := []struct {
		name, target, last string
		events             func(uint64, int) ([]runtime.Event, bool, error)
		status             int
	}{
		{"no session", "/v2/sessions/nope/events", "", nil, 404},
		{"bad id", "/v2/sessions/s1/events", "x", nil, 400},
		{"bad after", "/v2/sessions/s1/events?after=x", "", nil, 400},
		{"bad version", "/v2/sessions/s1/events?acp=3", "", nil, 400},
		{"a stream of version 2", "/v2/sessions/s1/events?acp=2", "", nil, 400},
		{"expired", "/v2/sessions/s1/events", "1", expired, 410},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, Options{Sessions: &fake{events: tt.events}})
			w, ended := stream(t, s, tt.target, tt.last)
			<-ended
			if w.status != tt.status || w.header.Get("Content-Type") != problem.ContentType {
				t.Errorf("status %d, type %s, want %d and a problem", w.status, w.header.Get("Content-Type"), tt.status)
			}
		})
	}
}

func TestEvents_HeadDoesNotStream(t *testing.T) {
	s := newServer(t, Options{})
	r := httptest.NewRequestWithContext(t.Context(), "HEAD", "http://localhost/v2/sessions/s1/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, type %s", w.Code, w.Header().Get("Content-Type"))
	}
}

// A page of events can be without secrets; a stream cannot.
func TestEvents_Clean(t *testing.T) {
	if got := string(cleaned([]byte(`{"text":"hush now"}`), strings.NewReplacer("hush", "[removed]").Replace)); got != `{"text":"[removed] now"}` {
		t.Errorf("cleaned: %s", got)
	}
	if got := string(cleaned([]byte(`{"text":1}`), strings.NewReplacer(`"text"`, "[removed]").Replace)); got != `"[removed]"` {
		t.Errorf("what is no JSON any more: %s", got)
	}
}
