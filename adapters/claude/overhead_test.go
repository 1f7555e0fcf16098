package claude

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// playerVar makes the test binary play the program: it answers control requests
// with nothing and every prompt with lines that carry the time they were
// written. It measures what lies between a line and a frame, and nothing else.
const playerVar = "TEST_PLAYER"

const played = 400 // lines for one prompt

func play(in io.Reader, out io.Writer) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		mode := os.Getenv(playerVar)
		switch rawjson.MemberString(line, "type") {
		case "control_request":
			if mode == "silent" || mode == "deaf" && rawjson.MemberString(line, "request", "subtype") == "interrupt" {
				continue
			}
			id, _ := rawjson.Member(line, "request_id")
			fmt.Fprintf(out, `{"type":"control_response","response":{"subtype":"success","request_id":%s,"response":{"account":{"apiKeySource":"test"}}}}`+"\n", id)
		case "user":
			fmt.Fprintln(out, `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}`)
			if mode == "deaf" {
				fmt.Fprintln(out, `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"on and on"}}}`)
				continue
			}
			if mode == "asking" {
				fmt.Fprintln(out, `{"type":"control_request","request_id":"r-1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"touch x"},"tool_use_id":"t-1"}}`)
				continue
			}
			for range played {
				fmt.Fprintf(out, `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%d"}},"session_id":"s","parent_tool_use_id":null,"uuid":"u"}`+"\n", time.Now().UnixNano())
				time.Sleep(time.Millisecond) // the pace of a fast model
			}
			fmt.Fprintln(out, `{"type":"result","subtype":"success","is_error":false}`)
		}
	}
}

func openPlayer(tb testing.TB, state string) acp.Conn {
	tb.Helper()
	return openPlayerAs(tb, state, "1")
}

func openPlayerAs(tb testing.TB, state, mode string) acp.Conn {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := New().Open(context.Background(), adapters.Options{
		StateDir: state, Program: adapters.Program{Path: exe, Env: []string{playerVar + "=" + mode}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request writes a request and reads up to its response.
func request(tb testing.TB, conn acp.Conn, method, params string, each func(m *acp.Message)) json.RawMessage {
	tb.Helper()
	if err := conn.Write(context.Background(), acp.NewRequest("1", method, []byte(params))); err != nil {
		tb.Fatal(err)
	}
	for {
		m, err := conn.Read(context.Background())
		if err != nil {
			tb.Fatal(err)
		}
		if m.IsResponse() {
			if e := m.Err(); e != nil {
				tb.Fatal(e)
			}
			return slices.Clone(m.Result())
		}
		if each != nil {
			each(&m)
		}
	}
}

func newPlayed(tb testing.TB, conn acp.Conn) string {
	tb.Helper()
	cwd, _ := schema.Encode(tb.TempDir())
	return rawjson.MemberString(request(tb, conn, acp.MethodSessionNew, `{"cwd":`+string(cwd)+`,"mcpServers":[]}`, nil), "sessionId")
}

// TestOverhead_OfOneLine measures the time from a line of the program to the
// frame that the gateway reads.
func TestOverhead_OfOneLine(t *testing.T) {
	conn := openPlayer(t, t.TempDir())
	id := newPlayed(t, conn)
	var took []time.Duration
	request(t, conn, acp.MethodSessionPrompt, `{"sessionId":"`+id+`","prompt":[{"type":"text","text":"go"}]}`, func(m *acp.Message) {
		if n, err := strconv.ParseInt(rawjson.MemberString(m.Update(), "content", "text"), 10, 64); err == nil {
			took = append(took, time.Since(time.Unix(0, n)))
		}
	})
	if len(took) != played {
		t.Fatalf("%d lines came of %d", len(took), played)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("from line to frame: median %v, 90%% %v, 99%% %v", median, took[len(took)*9/10], took[len(took)*99/100])
	if limit := time.Millisecond; median > limit && !raceEnabled {
		t.Errorf("the median is %v, want at most %v", median, limit)
	}
}

// TestOverhead_OfAnIdleSession measures what a session costs the gateway while
// nothing happens.
func TestOverhead_OfAnIdleSession(t *testing.T) {
	const sessions = 10
	use := func() int64 {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	warm := openPlayer(t, t.TempDir())
	newPlayed(t, warm)
	before, goroutines := use(), goruntime.NumGoroutine()
	for range sessions {
		conn := openPlayer(t, t.TempDir())
		id := newPlayed(t, conn)
		request(t, conn, acp.MethodSessionPrompt, `{"sessionId":"`+id+`","prompt":[{"type":"text","text":"`+strings.Repeat("x", 1<<10)+`"}]}`, nil)
	}
	each := (use() - before) / sessions
	t.Logf("an idle session takes %d KiB and %d goroutines", each>>10, (goruntime.NumGoroutine()-goroutines)/sessions)
	if each > 1<<20 && !raceEnabled {
		t.Errorf("an idle session takes %d bytes, want at most 1 MiB", each)
	}
}

func BenchmarkTranslate(b *testing.B) {
	line := []byte(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a few words "}},"session_id":"s","parent_tool_use_id":null,"uuid":"u"}`)
	t := newTranslator(nil)
	b.ReportAllocs()
	for b.Loop() {
		e, err := parse(line)
		if err != nil || len(t.translate(e)) != 1 {
			b.Fatal(err)
		}
	}
}
