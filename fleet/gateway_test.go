package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// gateway answers as a gateway does that has sessions. What the tests need of it is under
// their control: it says what it is told to say, also what no gateway would.
type gateway struct {
	mu       sync.Mutex
	sessions map[string]*held
	feed     []runtime.SessionChange
	more     chan struct{}                               // closed and replaced when the feed grows
	page     func(w http.ResponseWriter, id string) bool // in place of events if it returns true
	asked    int                                         // pages of events
}

// held is a session of a gateway.
type held struct {
	info   runtime.SessionInfo
	oldest uint64
	lines  []string // the events
}

var begun = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func newGateway() *gateway {
	return &gateway{sessions: map[string]*held{}, more: make(chan struct{})}
}

// said is an event in which the agent says a text.
func said(seq int, text string) string {
	b, _ := json.Marshal(text) // of a string
	return fmt.Sprintf(`{"seq":%d,"time":"2026-01-02T03:04:05.%03dZ","direction":"agent","message":{"jsonrpc":"2.0", "method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%s}}}}}`, seq, seq%1000, b)
}

// put sets the events of a session, which may be a new one, and tells of it.
func (g *gateway) put(id string, created time.Time, lines ...string) {
	g.tell(id, created, len(lines), lines...)
}

// tell says that a session has count events and gives those.
func (g *gateway) tell(id string, created time.Time, count int, lines ...string) {
	g.tellState(id, runtime.StateIdle, created, count, lines...)
}

func (g *gateway) tellState(id string, state runtime.State, created time.Time, count int, lines ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	info := runtime.SessionInfo{
		ID: id, Agent: "mock", Title: "about " + id, Cwd: "/work", State: state, CreatedAt: created,
		UpdatedAt: created.Add(time.Duration(count) * time.Second), EventCount: uint64(count),
	}
	g.sessions[id] = &held{info: info, oldest: 1, lines: lines}
	g.addLocked(runtime.SessionChange{Type: runtime.ChangeSession, Session: &info})
}

func (g *gateway) forget(id string, told bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, id)
	if told {
		g.addLocked(runtime.SessionChange{Type: runtime.ChangeDeleted, SessionID: id})
	}
}

func (g *gateway) addLocked(c runtime.SessionChange) {
	g.feed = append(g.feed, c)
	close(g.more)
	g.more = make(chan struct{})
}

func (g *gateway) pagesAsked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2/sessions/")
	if path == "changes" {
		g.changes(w, r)
		return
	}
	id, ok := strings.CutSuffix(path, "/events")
	if !ok {
		http.NotFound(w, r)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after")) // the hub's own numbers
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	g.mu.Lock()
	g.asked++
	page, s := g.page, g.sessions[id]
	g.mu.Unlock()
	if page != nil && page(w, id) {
		return
	}
	if s == nil {
		problem.Write(w, problem.New(problem.SessionNotFound, "no"))
		return
	}
	if after < int(s.oldest)-1 {
		problem.Write(w, problem.New(problem.EventsExpired, "old").With("oldestSeq", s.oldest))
		return
	}
	if after > int(s.info.EventCount) {
		problem.Write(w, problem.New(problem.InvalidRequest, "the session has no event %d", after).With("parameter", "after"))
		return
	}
	lines := slices.DeleteFunc(slices.Clone(s.lines), func(line string) bool { return replica.SeqOf([]byte(line)) <= uint64(after) })
	n := min(limit, len(lines))
	fmt.Fprintf(w, `{"events":[%s],"hasMore":%v}`, strings.Join(lines[:n], ","), n < len(lines))
}

func (g *gateway) changes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", sse.ContentType)
	g.mu.Lock()
	list := []runtime.SessionChange{{Type: runtime.ChangeReset}}
	for _, s := range g.sessions {
		list = append(list, runtime.SessionChange{Type: runtime.ChangeSession, Session: &s.info})
	}
	list, at := append(list, runtime.SessionChange{Type: runtime.ChangeCurrent}), len(g.feed)
	g.mu.Unlock()
	for {
		for _, c := range list {
			b, _ := json.Marshal(c) // of a type that can be
			if _, err := w.Write(sse.AppendEvent(nil, 1, b)); err != nil {
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
		g.mu.Lock()
		list, at = slices.Clone(g.feed[at:]), len(g.feed)
		more := g.more
		g.mu.Unlock()
		if len(list) > 0 {
			continue
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// copied returns when the hub has all that a node has said of a session.
func (h *hub) copied(id string, count int) {
	h.t.Helper()
	h.await(fmt.Sprintf("%s has %d events", id, count), func() bool {
		for _, s := range h.store.Sessions() {
			if s.Session == id && s.Gone == nil && s.Through == uint64(count) {
				return true
			}
		}
		return false
	})
}

// startCopier is a hub that copies sessions.
func startCopier(t testing.TB) *hub { return startCopierOn(t, "hub", store.Options{Dir: t.TempDir()}) }
