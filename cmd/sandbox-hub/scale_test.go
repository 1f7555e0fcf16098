package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fleet/join"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	scaleNodes    = 1000
	scaleSessions = 10 // of a node
	scaleEvents   = 5  // of a session
)

// What is promised of a hub with so many.
const (
	mostOfNode = 120 << 10 // bytes of the hub's memory for a node that does nothing
	mostToList = 50 * time.Millisecond
	mostBack   = 30 * time.Second   // until all nodes are there after the hub was killed
	mostAtOnce = scaleNodes * 2 / 3 // nodes that come within one second
)

// scaled is a gateway as far as a hub that copies its sessions asks it.
type scaled struct {
	name  string
	begin <-chan struct{} // closed when it has sessions
}

func (g *scaled) session(i int) runtime.SessionInfo {
	at := time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
	return runtime.SessionInfo{
		ID: fmt.Sprintf("%s-session-%d", g.name, i), Agent: "mock", AgentSessionID: "native", Title: "What session " + strconv.Itoa(i) + " is about", Cwd: "/home/dev/" + g.name,
		State: runtime.StateIdle, Continuity: runtime.ContinuityNative, CreatedAt: at, UpdatedAt: at.Add(time.Minute), EventCount: scaleEvents, Gist: "how its first prompt begins",
	}
}

func (g *scaled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, events := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v2/sessions/"), "/events")
	switch {
	case events:
		after, _ := strconv.Atoi(r.URL.Query().Get("after")) // the hub's own number
		var lines []string
		for seq := after + 1; seq <= scaleEvents; seq++ {
			lines = append(lines, fmt.Sprintf(`{"seq":%d,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"piece %d"}}}}}`, seq, id, seq))
		}
		fmt.Fprintf(w, `{"events":[%s],"hasMore":false}`, strings.Join(lines, ","))
	case id == "changes":
		w.Header().Set("Content-Type", sse.ContentType)
		say := func(c runtime.SessionChange) {
			b, _ := json.Marshal(c) // of a type that can be
			_, _ = w.Write(sse.AppendEvent(nil, 1, b))
		}
		say(runtime.SessionChange{Type: runtime.ChangeReset})
		_ = http.NewResponseController(w).Flush()
		select {
		case <-g.begin:
		case <-r.Context().Done():
			return
		}
		for i := range scaleSessions {
			s := g.session(i)
			say(runtime.SessionChange{Type: runtime.ChangeSession, Session: &s})
		}
		say(runtime.SessionChange{Type: runtime.ChangeCurrent})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		http.NotFound(w, r)
	}
}

// arrivals notes when gateways join, as they say it: a hub that is busy would tell late.
type arrivals struct {
	slog.Handler
	mu sync.Mutex
	at []time.Time
}

// Enabled implements [slog.Handler].
func (*arrivals) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (a *arrivals) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "joined the hub" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at = append(a.at, r.Time)
	}
	return nil
}

// since returns how many have joined in each second behind a time, and when the last one did.
func (a *arrivals) since(begun time.Time) (perSecond map[int]int, last time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	perSecond = map[int]int{}
	for _, at := range a.at {
		if behind := at.Sub(begun); behind >= 0 {
			perSecond[int(behind/time.Second)]++
			last = max(last, behind)
		}
	}
	return perSecond, last
}

// measured returns metrics of the hub by their names.
func (f *fleet) measured(names ...string) []float64 {
	f.t.Helper()
	resp := f.asked("/metrics")
	defer resp.Body.Close()
	out := make([]float64, len(names))
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if i := slices.Index(names, name); i >= 0 {
			out[i], _ = strconv.ParseFloat(value, 64)
		}
	}
	return out
}

// memory returns what the hub's program uses of its memory, without what is garbage, and what
// its process has.
func (f *fleet) memory() (used, resident float64) {
	f.t.Helper()
	const cycles = "go_gc_duration_seconds_count"
	for before := f.measured(cycles)[0]; f.measured(cycles)[0] < before+2; {
		f.get("/v2/nodes", &struct{}{}) // which makes some
	}
	m := f.measured("go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes", "process_resident_memory_bytes")
	return m[0] + m[1], m[2]
}

func (f *fleet) awaitMetric(name string, want float64, each func(now float64)) {
	f.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for {
		now := f.measured(name)[0]
		each(now)
		if now >= want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			f.t.Fatalf("%s is %v, and does not become %v", name, now, want)
		}
	}
}

// A thousand nodes with ten thousand sessions at one hub: what it takes of memory, how long a list
// takes, and that all nodes are back soon after the hub was killed, and not all at once.
func TestScale(t *testing.T) {
	agentcache.Long(t, "minutes; a benchmark of package fleet measures the memory of nodes")
	nodes, promised := scaleNodes, t.Errorf
	if raced() { // it cannot have more than 8,000 goroutines, and its figures are others
		nodes, promised = scaleNodes/10, t.Logf
	}
	f := startHub(t, "--no-bundles")
	file := filepath.Join(t.TempDir(), "join-token")
	if err := os.WriteFile(file, []byte(f.command("token", "create", "--kind", "join")), 0o600); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	empty, emptyProcess := f.memory()
	ofNode := func() (used, resident float64) {
		used, resident = f.memory()
		return (used - empty) / float64(nodes), (resident - emptyProcess) / float64(nodes)
	}
	begin := make(chan struct{})
	ctx, leave := context.WithCancel(context.Background())
	var own sync.WaitGroup
	defer own.Wait()
	defer leave()
	began := time.Now()
	joined := &arrivals{Handler: slog.DiscardHandler}
	for i := range nodes {
		g := &scaled{name: fmt.Sprintf("node-%d", i), begin: begin}
		joiner, err := join.New(join.Options{Hub: address, TokenFile: file, Name: g.name, Labels: map[string]string{"team": "a"}, Version: "test", Logger: slog.New(joined)})
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: g}
		own.Go(func() { _ = srv.Serve(joiner.Listener()) })
		own.Go(func() {
			joiner.Run(ctx)
			_ = srv.Close()
		})
	}
	f.awaitMetric("sandbox_hub_tunnels", float64(nodes), func(float64) {})
	t.Logf("%d nodes have joined after %v", nodes, time.Since(began).Round(time.Millisecond))
	idle, resident := ofNode()
	t.Logf("a node that does nothing takes %.0f KiB of the hub's memory, %.0f KiB of its process", idle/1024, resident/1024)
	if idle > mostOfNode {
		promised("a node takes %.0f KiB, want %d at most", idle/1024, mostOfNode>>10)
	}

	began = time.Now()
	close(begin)
	f.awaitMetric("sandbox_hub_replicated_events_total", float64(nodes*scaleSessions*scaleEvents), func(float64) {})
	copied := time.Since(began)
	idle, resident = ofNode()
	t.Logf("%d sessions are copied after %v; just then a node with its %d takes %.0f KiB of the hub's memory, %.0f KiB of its process", nodes*scaleSessions, copied.Round(time.Millisecond), scaleSessions, idle/1024, resident/1024)
	for _, query := range []string{"", "?node=node-7", "?sort=created&agent=mock", "?limit=1000", "?state=idle&label=team=a"} {
		var times []time.Duration
		for range 21 {
			began := time.Now()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/v2/sessions"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+f.admin)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || n < 100 || resp.StatusCode != http.StatusOK {
				t.Fatalf("list%s: %s, %d bytes, %v", query, resp.Status, n, err)
			}
			times = append(times, time.Since(began))
		}
		slices.Sort(times)
		t.Logf("list%s: median %v, slowest %v", query, times[10].Round(10*time.Microsecond), times[20].Round(10*time.Microsecond))
		if times[10] > mostToList {
			promised("list%s takes %v, want %v at most", query, times[10], mostToList)
		}
	}

	f.kill(syscall.SIGKILL)
	f.start()
	began = time.Now()
	slowest, asked := time.Duration(0), began
	f.awaitMetric("sandbox_hub_tunnels", float64(nodes), func(float64) {
		slowest = max(slowest, time.Since(asked))
		asked = time.Now()
	})
	perSecond, took := joined.since(began)
	t.Logf("all nodes are back %v after the hub was started again; by second: %v; meanwhile it answers within %v", took.Round(time.Millisecond), perSecond, slowest.Round(time.Millisecond))
	for second, n := range perSecond {
		if n > mostAtOnce {
			promised("%d nodes came in second %d, want %d at most", n, second, mostAtOnce)
		}
	}
	if took > mostBack {
		promised("all nodes are back after %v, want %v at most", took, mostBack)
	}
}
