package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// claudePlayer makes the test binary play Claude Code's side of its line
// protocol: it answers control requests with nothing, and a prompt "stream N"
// with N lines that carry the time at which they were written.
const claudePlayer = "TEST_CLAUDE_PLAYER"

func init() {
	if os.Getenv(claudePlayer) == "" {
		return
	}
	playClaude(os.Stdin, os.Stdout)
	os.Exit(0)
}

func playClaude(in io.Reader, out io.Writer) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			Type      string          `json:"type"`
			RequestID json.RawMessage `json:"request_id"`
		}
		switch _ = json.Unmarshal(line, &m); m.Type {
		case "control_request":
			fmt.Fprintf(out, `{"type":"control_response","response":{"subtype":"success","request_id":%s,"response":{"account":{"apiKeySource":"test"}}}}`+"\n", m.RequestID)
			if bytes.Contains(line, []byte("end_session")) {
				return
			}
		case "user":
			n := 1
			if _, rest, ok := bytes.Cut(line, []byte("stream ")); ok {
				_, _ = fmt.Sscanf(string(rest), "%d", &n)
			}
			fmt.Fprintln(out, `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}`)
			for range n {
				fmt.Fprintf(out, `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"at %d."}},"session_id":"s","parent_tool_use_id":null,"uuid":"u"}`+"\n", time.Now().UnixNano())
				time.Sleep(time.Millisecond) // the pace of a fast model
			}
			fmt.Fprintln(out, `{"type":"result","subtype":"success","is_error":false}`)
		}
	}
}

// playedClaude is a gateway whose Claude Code is the player, and a connection
// to it in the dialect that answers in the POST's response.
type playedClaude struct {
	tb   testing.TB
	g    *gateway
	conn string
	hc   *http.Client
}

func newPlayedClaude(tb testing.TB) *playedClaude {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &playedClaude{tb: tb, g: newGateway(tb, "--default-agent", "claude"), hc: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	p.g.env = []string{"HOME=" + tb.TempDir(), "SANDBOX_AGENT_CLAUDE_BIN=" + exe, claudePlayer + "=1"}
	p.g.start()
	resp, _ := p.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`)
	p.conn = resp.Header.Get("X-ACP-Connection-Id")
	return p
}

func (p *playedClaude) request(method, body string) *http.Response {
	p.tb.Helper()
	req, err := http.NewRequestWithContext(p.tb.Context(), method, p.g.url+"/v2/rpc", strings.NewReader(body))
	if err != nil {
		p.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodGet {
		req.Header.Set("Accept", "text/event-stream")
	}
	if p.conn != "" {
		req.Header.Set("X-ACP-Connection-Id", p.conn)
	}
	resp, err := p.hc.Do(req)
	if err != nil {
		p.tb.Fatal(err)
	}
	return resp
}

func (p *playedClaude) post(body string) (*http.Response, []byte) {
	p.tb.Helper()
	resp := p.request(http.MethodPost, body)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || bytes.Contains(b, []byte(`"error":`)) {
		p.tb.Fatalf("%s: %v: %s", resp.Status, err, b)
	}
	return resp, b
}

func (p *playedClaude) session() string {
	p.tb.Helper()
	cwd, _ := json.Marshal(p.tb.TempDir())
	_, b := p.post(`{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":` + string(cwd) + `,"mcpServers":[]}}`)
	var m struct {
		Result struct{ SessionID string }
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Result.SessionID == "" {
		p.tb.Fatalf("session/new: %v, %s", err, b)
	}
	return m.Result.SessionID
}

func (p *playedClaude) prompt(session, text string) {
	p.tb.Helper()
	_, b := p.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":"turn","method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`, session, text))
	if !bytes.Contains(b, []byte("end_turn")) {
		p.tb.Fatalf("the turn ended with %s", b)
	}
}

// BenchmarkClaude_LineToClient measures the time from a line that the native
// process writes to the byte that a client reads from its event stream, through
// bridge, log and HTTP. The unit of an iteration is a turn of 400 lines.
func BenchmarkClaude_LineToClient(b *testing.B) {
	const lines = 400
	p := newPlayedClaude(b)
	id := p.session()
	stream := p.request(http.MethodGet, "")
	defer stream.Body.Close()
	seen := make(chan time.Duration, lines)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for in := bufio.NewReader(stream.Body); ; {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			now := time.Now().UnixNano()
			if _, rest, ok := bytes.Cut(line, []byte(`"at `)); ok {
				digits, _, _ := bytes.Cut(rest, []byte("."))
				if at, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
					seen <- time.Duration(now - at)
				}
			}
		}
	}()
	var took []time.Duration
	b.ResetTimer()
	for b.Loop() {
		p.prompt(id, "stream "+strconv.Itoa(lines))
		for range lines {
			select {
			case d := <-seen:
				took = append(took, d)
			case <-time.After(patience):
				b.Fatalf("%d lines came", len(took))
			}
		}
	}
	b.StopTimer()
	stream.Body.Close()
	<-read
	slices.Sort(took)
	for name, at := range map[string]int{"median-µs": 50, "p90-µs": 90, "p99-µs": 99} {
		b.ReportMetric(float64(took[len(took)*at/100])/float64(time.Microsecond), name)
	}
	b.ReportMetric(0, "ns/op") // the player's pace, which says nothing
}

// BenchmarkClaude_IdleSession measures the resident memory that a session with
// one turn behind it costs the gateway, its agent's own process aside.
func BenchmarkClaude_IdleSession(b *testing.B) {
	const sessions = 50
	p := newPlayedClaude(b)
	some := func(n int) {
		for range n {
			p.prompt(p.session(), "stream 1")
		}
	}
	some(10) // what the first ones cost once
	before, made := p.rss(), 0
	for b.Loop() {
		some(sessions)
		made += sessions
	}
	b.ReportMetric(float64(p.rss()-before)/1024/float64(made), "KiB/session")
	b.ReportMetric(0, "ns/op")
}

// rss is the gateway's resident memory in bytes.
func (p *playedClaude) rss() int64 {
	p.tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.g.cmd.Process.Pid))
	if err != nil {
		p.tb.Skip(err) // there is no other way to ask on this system
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				p.tb.Fatal(err)
			}
			return kib << 10
		}
	}
	p.tb.Fatalf("no VmRSS in %s", status)
	panic("unreachable")
}
