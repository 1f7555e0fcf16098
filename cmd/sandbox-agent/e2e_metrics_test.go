package main_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape is what /metrics showed: counters and gauges by their line without the
// value, histograms by the line of their count.
type scrape map[string]float64

// scrape reads the metrics as a scraper does.
func (g *gateway) scrape() scrape {
	g.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(g.get("/metrics", nil)))
	if err != nil {
		g.t.Fatal(err)
	}
	out := scrape{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			line := name
			if len(labels) > 0 {
				line += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[line] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				out[line] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				out[line] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// since returns what has changed, by lines of the gateway's own metrics.
func (s scrape) since(before scrape) map[string]float64 {
	out := map[string]float64{}
	for line, v := range s {
		if d := v - before[line]; d != 0 && strings.HasPrefix(line, "sandbox_agent_") {
			out[strings.TrimPrefix(line, "sandbox_agent_")] = d
		}
	}
	return out
}

// expect compares what has changed with the lines given; others may change too.
func (s scrape) expect(t *testing.T, before scrape, want map[string]float64) {
	t.Helper()
	got := s.since(before)
	if s.has(before, want) {
		return
	}
	for line, v := range want {
		if got[line] != v {
			t.Errorf("%s changed by %v, want %v", line, got[line], v)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(got)) {
		t.Logf("%s %+v", line, got[line])
	}
}

func (s scrape) has(before scrape, want map[string]float64) bool {
	got := s.since(before)
	for line, v := range want {
		if got[line] != v {
			return false
		}
	}
	return true
}

// expectSoon is expect for what is counted a moment after a client can know of it: a
// request when its handler has returned, a process when it has ended.
func (g *gateway) expectSoon(t *testing.T, before scrape, want map[string]float64) {
	t.Helper()
	now := g.scrape()
	for end := time.Now().Add(patience); !now.has(before, want) && time.Now().Before(end); now = g.scrape() {
	}
	now.expect(t, before, want)
}

func TestMetrics(t *testing.T) {
	received := filepath.Join(t.TempDir(), "received")
	g := newGateway(t, slices.Concat(meteredFlags(t), []string{"--token", token})...)
	g.env = []string{"METERED_LOG=" + received}
	g.start()
	start := g.scrape()

	c := connect(t, g, inline, options{})
	s := c.newSession()
	c.prompt(s, "hello")
	c.prompt(s, "stream 500 10")
	t.Run("turns and updates", func(t *testing.T) {
		g.scrape().expect(t, start, map[string]float64{
			`turns_started_total{agent="mock"}`:                     2,
			`turns_ended_total{agent="mock",outcome="end_turn"}`:    2,
			`turn_duration_seconds{agent="mock"}`:                   2,
			`turn_first_update_seconds{agent="mock"}`:               2,
			`updates_total{agent="mock"}`:                           float64(g.updates(s)),
			`turns_open{agent="mock"}`:                              0,
			`agent_process_starts_total{agent="mock"}`:              1,
			`agent_processes{agent="mock"}`:                         1,
			`agent_start_seconds{agent="mock",outcome="ok"}`:        1,
			`sessions{state="idle"}`:                                1,
			`connections{transport="inline"}`:                       1,
			`rpc_requests_total{method="session/new",outcome="ok"}`: 1,
		})
	})

	t.Run("forwarding", func(t *testing.T) {
		before := g.scrape()
		const sampled = 16 // one batch of so many is timed, and each turn is at least one
		for range sampled {
			c.prompt(s, "hello")
		}
		if n := g.scrape().since(before)["forward_seconds"]; n < 1 {
			t.Errorf("%v batches were timed in %d turns, want at least 1", n, sampled)
		}
	})

	t.Run("asks", func(t *testing.T) {
		before := g.scrape()
		for _, option := range []string{"allow_once", "reject_once"} {
			from := c.mark()
			turn := c.start("session/prompt", promptParams(s, "permission"))
			ask := c.find(from, "the request", func(m *message) bool { return m.Method == "session/request_permission" })
			during := g.scrape()
			if during[`sandbox_agent_asks_open{agent="mock",kind="permission"}`] != 1 || during[`sandbox_agent_turns_open{agent="mock"}`] != 1 || during[`sandbox_agent_sessions{state="waiting"}`] != 1 {
				t.Errorf("while the agent asks: %v", during.since(before))
			}
			c.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": option}})
			if _, err := c.wait(turn); err != nil {
				t.Fatal(err)
			}
		}
		turn := c.start("session/prompt", promptParams(s, "permission"))
		g.until("an open request", func() bool {
			return g.scrape()[`sandbox_agent_asks_open{agent="mock",kind="permission"}`] == 1
		})
		c.notify("session/cancel", map[string]any{"sessionId": s})
		if _, err := c.wait(turn); err != nil {
			t.Fatal(err)
		}
		g.expectSoon(t, before, map[string]float64{
			`asks_total{agent="mock",kind="permission"}`:                                 3,
			`asks_answered_total{agent="mock",kind="permission",outcome="allow_once"}`:   1,
			`asks_answered_total{agent="mock",kind="permission",outcome="reject_once"}`:  1,
			`asks_answered_total{agent="mock",kind="permission",outcome="cancelled"}`:    1,
			`asks_open{agent="mock",kind="permission"}`:                                  0,
			`ask_wait_seconds{kind="permission"}`:                                        3,
			`turns_ended_total{agent="mock",outcome="end_turn"}`:                         2,
			`turns_ended_total{agent="mock",outcome="cancelled"}`:                        1,
			`turns_open{agent="mock"}`:                                                   0,
			`turn_first_update_seconds{agent="mock"}`:                                    3,
			`http_requests_total{method="POST",route="/v2/rpc",status="200"}`:            3,
			`http_requests_total{method="POST",route="/v2/rpc",status="202"}`:            3,
			`http_request_duration_seconds{method="POST",route="/v2/rpc"}`:               6,
			`rpc_requests_total{method="session/prompt",outcome="ok"}`:                   0,
			`agent_process_starts_total{agent="mock"}`:                                   0,
			`agent_process_exits_total{agent="mock",kind="crash"}`:                       0,
			`http_requests_total{method="GET",route="/v2/sessions/{id}",status="200"}`:   0,
			`turns_ended_total{agent="mock",outcome="other"}`:                            0,
			`turns_ended_total{agent="mock",outcome="failed"}`:                           0,
			`asks_answered_total{agent="mock",kind="permission",outcome="other"}`:        0,
			`asks_answered_total{agent="mock",kind="permission",outcome="dropped"}`:      0,
			`asks_answered_total{agent="mock",kind="permission",outcome="withdrawn"}`:    0,
			`asks_answered_total{agent="mock",kind="permission",outcome="allow_always"}`: 0,
		})
	})

	t.Run("queue", func(t *testing.T) {
		before := g.scrape()
		slow := c.start("session/prompt", promptParams(s, "slow"))
		g.until("a running turn", func() bool { return g.scrape()[`sandbox_agent_sessions{state="running"}`] == 1 })
		next := c.start("session/prompt", promptParams(s, "hello"))
		g.until("a queued prompt", func() bool { return g.scrape()["sandbox_agent_prompts_queued"] == 1 })
		c.notify("session/cancel", map[string]any{"sessionId": s})
		for _, ch := range []<-chan message{slow, next} {
			if m := c.response(ch); m.Error != nil {
				t.Error(m.Error)
			}
		}
		g.expectSoon(t, before, map[string]float64{
			`turns_started_total{agent="mock"}`:                   2,
			`turns_ended_total{agent="mock",outcome="cancelled"}`: 2,
			`turns_open{agent="mock"}`:                            0,
			`prompts_queued`:                                      0,
		})
	})

	t.Run("ends of processes", func(t *testing.T) {
		before := g.scrape()
		if _, err := c.call("session/prompt", promptParams(s, "crash")); err == nil {
			t.Error("the turn did not fail")
		}
		c.prompt(s, "hello") // on a new process
		for _, p := range g.agents() {
			if err := kill(p.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		g.expectSoon(t, before, map[string]float64{
			`agent_process_exits_total{agent="mock",kind="crash"}`:  1,
			`agent_process_exits_total{agent="mock",kind="killed"}`: 1,
			`agent_process_starts_total{agent="mock"}`:              1,
			`agent_processes{agent="mock"}`:                         -1,
			`turns_ended_total{agent="mock",outcome="failed"}`:      1,
			`turns_ended_total{agent="mock",outcome="end_turn"}`:    1,
			`sessions{state="idle"}`:                                -1,
			`sessions{state="dormant"}`:                             1,
		})
	})

	t.Run("tokens and cost", func(t *testing.T) {
		before := g.scrape()
		m := connect(t, g, wsocket, options{agent: "metered"})
		ms := m.newSession()
		m.prompt(ms, "one")
		m.prompt(ms, "two")
		g.expectSoon(t, before, map[string]float64{
			`tokens_total{agent="metered",kind="input"}`:                     200,
			`tokens_total{agent="metered",kind="output"}`:                    40,
			`tokens_total{agent="metered",kind="thought"}`:                   2,
			`tokens_total{agent="metered",kind="cache_read"}`:                120,
			`tokens_total{agent="metered",kind="cache_write"}`:               10,
			`cost_total{agent="metered",currency="EUR"}`:                     0.5,
			`updates_total{agent="metered"}`:                                 4,
			`turns_ended_total{agent="metered",outcome="end_turn"}`:          2,
			`connections{transport="websocket"}`:                             1,
			`http_requests_total{method="GET",route="/v2/rpc",status="101"}`: 1,
			`http_requests_open`:                                             0, // a WebSocket is counted as a connection
		})
		// An agent that has begun anew counts from nothing.
		if _, err := m.call("session/prompt", promptParams(ms, "die")); err == nil {
			t.Error("the turn did not fail")
		}
		m.prompt(ms, "three")
		g.expectSoon(t, before, map[string]float64{`cost_total{agent="metered",currency="EUR"}`: 0.75})
	})

	t.Run("connections", func(t *testing.T) {
		before := g.scrape()
		st := connect(t, g, standard, options{})
		st.prompt(st.newSession(), "hello")
		g.expectSoon(t, before, map[string]float64{`connections{transport="standard"}`: 1})
		st.close()
		g.expectSoon(t, before, map[string]float64{`connections{transport="standard"}`: 0, `sessions{state="idle"}`: 1})
	})

	t.Run("journal", func(t *testing.T) {
		now := g.scrape()
		var page struct {
			Sessions []struct {
				EventCount float64 `json:"eventCount"`
			} `json:"sessions"`
		}
		g.get("/v2/sessions", &page)
		var events, size float64
		for _, s := range page.Sessions {
			events += s.EventCount
		}
		logs, err := filepath.Glob(filepath.Join(g.dir, "sessions", "*", "log.journal"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range logs {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size += float64(info.Size())
		}
		if len(logs) != 3 || now["sandbox_agent_journal_appends_total"] != events || now["sandbox_agent_journal_disk_bytes"] != size ||
			now["sandbox_agent_journal_written_bytes_total"] != size || now["sandbox_agent_journal_write_errors_total"] != 0 || now["sandbox_agent_journal_failing"] != 0 {
			t.Errorf("%d logs with %v events in %v bytes: %v", len(logs), events, size, now.since(scrape{}))
		}
		if now["sandbox_agent_journal_sync_seconds"] < 1 {
			t.Error("no sync was timed")
		}
		if now[`sandbox_agent_http_requests_total{method="GET",route="/metrics",status="200"}`] < 1 {
			t.Error("scrapes are not counted")
		}
	})

	t.Run("files, processes and problems", func(t *testing.T) {
		before := g.scrape()
		path := filepath.Join(t.TempDir(), "secret-name")
		if code, body := g.files("PUT", "file", at(path), strings.NewReader(strings.Repeat("x", 12345))); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		for range 2 {
			g.files("GET", "file", at(path), nil)
		}
		g.post("GET", "/v2/sessions/nope", "")
		g.post("GET", "/v2/no/such/route", "")
		id := g.program(true, "echo ready; sleep 1000")
		g.expectSoon(t, before, map[string]float64{
			`file_transfer_bytes_total{direction="upload"}`:                            12345,
			`file_transfer_bytes_total{direction="download"}`:                          2 * 12345,
			`http_requests_total{method="PUT",route="/v2/fs/file",status="201"}`:       1,
			`http_requests_total{method="GET",route="/v2/fs/file",status="200"}`:       2,
			`http_requests_total{method="GET",route="/v2/sessions/{id}",status="404"}`: 1,
			`http_requests_total{method="GET",route="other",status="404"}`:             1,
			`problems_total{type="session_not_found"}`:                                 1,
			`problems_total{type="not_found"}`:                                         1,
			`processes_running`:                                                        1,
			`terminals_running`:                                                        1,
			`processes_started_total`:                                                  1,
		})
		if code, body := g.post("DELETE", "/v2/processes/"+id, ""); code >= 300 {
			t.Errorf("%d %s", code, body)
		}
		g.expectSoon(t, before, map[string]float64{`processes_running`: 0, `terminals_running`: 0})
	})

	t.Run("labels are bounded", func(t *testing.T) {
		text := string(g.get("/metrics", nil))
		var sessions struct {
			Sessions []struct {
				SessionID string `json:"sessionId"`
			} `json:"sessions"`
		}
		g.get("/v2/sessions", &sessions)
		for _, s := range sessions.Sessions {
			if strings.Contains(text, s.SessionID) {
				t.Errorf("the metrics name session %s", s.SessionID)
			}
		}
		for _, secret := range []string{g.dir, "secret-name", token, "nope"} {
			if strings.Contains(text, secret) {
				t.Errorf("the metrics have %q", secret)
			}
		}
	})
}

// updates counts the updates of agents in a session's log.
func (g *gateway) updates(session string) (n int) {
	for _, e := range g.events(session) {
		var m struct {
			Method string `json:"method"`
		}
		if err := json.Unmarshal(e.Message, &m); err != nil {
			g.t.Fatal(err)
		}
		if e.Direction == "agent" && m.Method == "session/update" {
			n++
		}
	}
	return n
}

func TestMetrics_WhoMayRead(t *testing.T) {
	g := startGateway(t, "--token", token)
	get := func(path string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		return resp.StatusCode, cmp.Or(resp.Header.Get("Content-Type"), "-") + " " + b.String()
	}
	if code, body := get("/metrics", http.Header{}); code != 401 || !strings.Contains(body, "token_invalid") {
		t.Errorf("without the token: %d %s", code, body)
	}
	if code, body := get("/metrics", http.Header{"Authorization": {"Bearer " + token}}); code != 200 || !strings.HasPrefix(body, "text/plain; version=0.0.4") {
		t.Errorf("with the token: %d %.100s", code, body)
	}
	open := http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/openmetrics-text;version=1.0.0"}}
	if code, body := get("/metrics", open); code != 200 || !strings.HasPrefix(body, "application/openmetrics-text") || !strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("OpenMetrics: %d %.100s", code, body)
	}
	cl := &commandLine{t: t, env: []string{"PATH=" + os.Getenv("PATH"), "SANDBOX_AGENT_TOKEN=" + token}}
	if code, out, errOut := cl.run("metrics", "--endpoint", g.url); code != 0 || !strings.Contains(out, "\nsandbox_agent_build_info{") {
		t.Errorf("exit %d\n%.300s%s", code, out, errOut)
	}
	none := startGateway(t, "--no-metrics")
	var p struct{ Type string }
	if code, body := none.post("GET", "/metrics", ""); code != 501 || json.Unmarshal([]byte(body), &p) != nil || p.Type != "urn:sandbox-agent:error:not_supported" || !strings.Contains(body, "--no-metrics") {
		t.Errorf("without metrics: %d %s", code, body)
	}
	c := connect(t, none, inline, options{})
	c.prompt(c.newSession(), "hello") // unobserved
}

func TestRequestID(t *testing.T) {
	g := startGateway(t, "--log-requests", "--log-format", "json", "--token", token)
	get := func(path string, ids ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.authorize(req.Header)
		req.Header["X-Request-Id"] = ids
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		return resp, b.String()
	}
	resp, body := get("/v2/sessions/nope/transcript?redact=query-secret", "abc-123_x.Y:/+=")
	var p struct{ RequestID string }
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.RequestID != "abc-123_x.Y:/+=" || resp.Header.Get("X-Request-Id") != p.RequestID {
		t.Errorf("%v, problem %s, header %q", err, body, resp.Header.Get("X-Request-Id"))
	}
	seen := map[string]bool{}
	for _, bad := range [][]string{nil, {""}, {"has blank"}, {"ä"}, {strings.Repeat("x", 129)}, {"two", "of them"}, {`"quoted"`}, {"<b>"}} {
		resp, _ := get("/v2/version", bad...)
		id := resp.Header.Get("X-Request-Id")
		if len(id) < 16 || seen[id] || slices.Contains(bad, id) {
			t.Errorf("%q became %q", bad, id)
		}
		seen[id] = true
	}
	resp, _ = get("/v2/version", strings.Repeat("x", 128))
	if id := resp.Header.Get("X-Request-Id"); len(id) != 128 {
		t.Errorf("a long id became %q", id)
	}
	get("/v2/version", "the-last")
	g.until("the log of the last request", func() bool { return strings.Contains(g.stderr.String(), `"the-last"`) })
	b := g.stderr.String()
	type line struct {
		Level, Msg, Method, Path, Route, Remote string
		RequestID                               string `json:"request_id"`
		Status, Bytes                           int
		Duration                                int64
	}
	found := 0
	for raw := range strings.Lines(b) {
		var l line
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if l.RequestID != "abc-123_x.Y:/+=" {
			continue
		}
		found++
		l.Remote = l.Remote[:strings.LastIndexByte(l.Remote, ':')]
		if l.Duration <= 0 || l.Bytes != len(body) {
			t.Errorf("%s", raw)
		}
		l.Duration, l.Bytes = 0, 0
		if want := (line{"INFO", "request", "GET", "/v2/sessions/nope/transcript", "/v2/sessions/{id}/transcript", "127.0.0.1", "abc-123_x.Y:/+=", 404, 0, 0}); l != want {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
	if found != 1 || strings.Contains(b, "query-secret") || strings.Contains(b, token) {
		t.Errorf("the request is in %d lines of the log:\n%s", found, b)
	}
}
