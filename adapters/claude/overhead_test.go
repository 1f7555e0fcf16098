package claude

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
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
			const answers = `{"type":"control_response","response":{"subtype":"success","request_id":%s,"response":{"account":{"apiKeySource":"test"},"current_permission_mode":%q}}}` + "\n"
			fmt.Fprintf(out, answers, id, flagOf(os.Args, "--permission-mode"))
			if mode == "unread" && rawjson.MemberString(line, "request", "subtype") == "get_settings" { // the last of the start
				told := make(chan os.Signal, 1)
				signal.Notify(told, syscall.SIGTERM)
				<-told
				return
			}
		case "control_response":
			if rawjson.MemberString(line, "response", "request_id") == "r-last" {
				fmt.Fprintf(out, `{"type":"result","subtype":"success","is_error":true,"result":%q}`+"\n", rawjson.MemberString(line, "response", "error"))
			}
		case "user":
			fmt.Fprintln(out, `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}`)
			if mode == "crowded" { // what subagents ask goes on behind the turn
				const asks = `{"type":"control_request","request_id":"r-%v","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"touch x"},"tool_use_id":"t-%[1]v","agent_id":%[2]q}}` + "\n"
				for i := range turn.MaxAsks {
					fmt.Fprintf(out, asks, i, "a")
				}
				fmt.Fprintf(out, asks, "last", "")
				continue
			}
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

// BenchmarkLine measures the time from a line of the program to the frame that the gateway reads.
func BenchmarkLine(b *testing.B) {
	conn := openPlayer(b, b.TempDir())
	id := newPlayed(b, conn)
	var took []time.Duration
	for b.Loop() {
		before := len(took)
		request(b, conn, acp.MethodSessionPrompt, `{"sessionId":"`+id+`","prompt":[{"type":"text","text":"go"}]}`, func(m *acp.Message) {
			if n, err := strconv.ParseInt(rawjson.MemberString(m.Update(), "content", "text"), 10, 64); err == nil {
				took = append(took, time.Since(time.Unix(0, n)))
			}
		})
		if len(took) != before+played {
			b.Fatalf("%d lines came of %d", len(took)-before, played)
		}
	}
	slices.Sort(took)
	for _, percent := range []int{50, 90, 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Nanoseconds())/1e3, fmt.Sprintf("p%d-µs", percent))
	}
}

// BenchmarkIdleSession measures what a session costs the gateway while nothing happens.
func BenchmarkIdleSession(b *testing.B) {
	use := func() int64 {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	newPlayed(b, openPlayer(b, b.TempDir())) // what all share
	before, goroutines, sessions := use(), goruntime.NumGoroutine(), 0
	for b.Loop() {
		conn := openPlayer(b, b.TempDir())
		id := newPlayed(b, conn)
		request(b, conn, acp.MethodSessionPrompt, `{"sessionId":"`+id+`","prompt":[{"type":"text","text":"`+strings.Repeat("x", 1<<10)+`"}]}`, nil)
		sessions++
	}
	b.ReportMetric(float64(use()-before)/float64(sessions)/1024, "KiB/session")
	b.ReportMetric(float64(goruntime.NumGoroutine()-goroutines)/float64(sessions), "goroutines/session")
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
