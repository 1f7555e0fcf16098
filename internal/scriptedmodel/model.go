package scriptedmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// maxBody bounds a request; a larger one is refused.
const maxBody = 64 << 20

// Model is a running scripted model.
type Model struct {
	// URL is http://127.0.0.1:PORT, without a path. Which path an agent wants as
	// its base differs: Anthropic and Gemini none, OpenAI's dialects /v1.
	URL string

	srv  *http.Server
	stop context.CancelFunc
	wg   sync.WaitGroup // the server and its handlers
	seq  atomic.Int64

	mu      sync.Mutex
	rules   []rule
	all     []*Request
	unknown []string
	// ampAsked are the methods of Amp's server that were called.
	ampAsked []string
	changed  chan struct{} // closed and replaced when all changes
	closed   bool
}

// Start starts a model that is closed when the test ends.
func Start(t testing.TB) *Model {
	t.Helper()
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// New starts a model on a free port of 127.0.0.1.
func New() (*Model, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the scripted model: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Model{URL: "http://" + ln.Addr().String(), stop: stop, changed: make(chan struct{})}
	m.srv = &http.Server{
		Handler:           http.HandlerFunc(m.serve),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	m.wg.Go(func() { _ = m.srv.Serve(ln) })
	return m, nil
}

// Close ends the requests in flight and the server, and waits for both. It may
// be called more than once.
func (m *Model) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	_ = m.srv.Close()
	m.wg.Wait()
}

// On makes the model play the steps for the turns that match, one for each round
// of tool results. Newer rules go before older ones, all of them before the
// ready-made ones.
func (m *Model) On(match Match, steps ...Step) {
	m.OnRequest(match, func(*Request) []Step { return steps })
}

// OnRequest is On with steps made for each request, perhaps concurrently.
func (m *Model) OnRequest(match Match, steps func(r *Request) []Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rules = append(m.rules, rule{match, steps})
}

// Requests returns the model calls so far, in the order of their arrival.
func (m *Model) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Request, 0, len(m.all))
	for _, r := range m.all {
		out = append(out, *r)
	}
	return out
}

// Turns returns the requests of kind [Turn].
func (m *Model) Turns() []Request {
	return slices.DeleteFunc(m.Requests(), func(r Request) bool { return r.Kind != Turn })
}

// Unknown returns "METHOD path" of all requests that no dialect knows, such as
// an attempt to reach another host through this server as a proxy.
func (m *Model) Unknown() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.unknown)
}

// Await returns the first request that satisfies ok, now or later: a request is
// looked at when it arrives and when its outcome is known.
func (m *Model) Await(ctx context.Context, ok func(r *Request) bool) (Request, error) {
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		for _, r := range m.Requests() {
			if ok(&r) {
				return r, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("await a request to the scripted model, of which %d came: %w", len(m.Requests()), ctx.Err())
		}
	}
}

// newID returns an id that no other answer of this model has.
func (m *Model) newID(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, m.seq.Add(1)) }

func (m *Model) serve(w http.ResponseWriter, req *http.Request) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	m.wg.Add(1)
	m.mu.Unlock()
	defer m.wg.Done()

	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		writeJSON(w, http.StatusRequestEntityTooLarge, openAIFailure(http.StatusRequestEntityTooLarge, "", err.Error()))
		return
	}
	path := req.URL.Path
	d := dialectOf(path)
	switch {
	case isAmp(req):
		m.amp(w, req)
	case req.Method == http.MethodPost && d != nil:
		m.answer(w, req, d, body)
	case req.Method == http.MethodPost && (strings.HasSuffix(path, "/messages/count_tokens") || strings.HasSuffix(path, ":countTokens")):
		n := len(body)/4 + 1
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": n, "totalTokens": n})
	case path == "/" && (req.Method == http.MethodHead || req.Method == http.MethodGet):
		w.WriteHeader(http.StatusOK)
	case req.Method == http.MethodGet && strings.HasSuffix(path, "/models"):
		// One object that satisfies all: "data" is OpenAI's and Anthropic's,
		// "models" is Gemini's and Codex's.
		model := map[string]any{"id": "scripted-1", "object": "model", "type": "model", "display_name": "Scripted 1", "created": 1, "owned_by": "test"}
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{model}, "models": []any{}, "has_more": false})
	default:
		m.mu.Lock()
		m.unknown = append(m.unknown, req.Method+" "+req.URL.Redacted())
		m.mu.Unlock()
		status := http.StatusNotFound
		if req.Method == http.MethodConnect {
			status = http.StatusForbidden
		}
		writeJSON(w, status, openAIFailure(status, "not_found_error", "the scripted model has no route "+req.Method+" "+path))
	}
}

// answer plays a step for one model call.
func (m *Model) answer(w http.ResponseWriter, req *http.Request, d dialect, body []byte) {
	r := &Request{Path: req.URL.Path, Header: req.Header.Clone(), Body: body, Received: time.Now()}
	if err := d.decode(r); err != nil {
		writeJSON(w, http.StatusBadRequest, d.failure(http.StatusBadRequest, "", "the scripted model cannot read the request: "+err.Error()))
		m.record(r)
		m.finish(r, Failed)
		return
	}
	r.classify()
	m.mu.Lock()
	rules := m.rules[:len(m.rules):len(m.rules)]
	m.mu.Unlock()
	step := choose(r, rules)
	m.record(r)

	view := *r // the record changes when the outcome is known
	p := &player{ctx: req.Context(), w: w, req: &view, d: d, id: m.newID}
	if r.Stream {
		p.stream = d.stream(&events{w: w}, &view, m.newID)
	} else {
		p.stream = &whole{p: p}
	}
	outcome := p.play(step)
	m.finish(r, outcome)
	if outcome == Dropped {
		panic(http.ErrAbortHandler)
	}
}

func (m *Model) record(r *Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, r)
	m.wakeLocked()
}

func (m *Model) finish(r *Request, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Outcome = o
	m.wakeLocked()
}

func (m *Model) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// dialect reads requests of one provider and writes its answers.
type dialect interface {
	decode(r *Request) error
	stream(e *events, r *Request, id func(prefix string) string) stream
	whole(r *Request, id func(prefix string) string, parts []part, stop string, u tokens) any
	failure(status int, kind, message string) any
}

// dialectOf returns the dialect of a path, or nil.
func dialectOf(path string) dialect {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return anthropic{}
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.HasSuffix(path, ":streamGenerateContent"), strings.HasSuffix(path, ":generateContent"):
		return gemini{}
	}
	return nil
}

var errNoJSON = errors.New("the body is not the JSON that this dialect has")

func unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", errNoJSON, err)
	}
	return nil
}
