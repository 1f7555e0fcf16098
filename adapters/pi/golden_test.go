package pi

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// stopped is a translator for which no time passes but what a test lets pass.
func stopped() *translator {
	t := newTranslator("/workspace", nil)
	t.usage.size = 128000
	clock := time.Unix(0, 0)
	t.now = func() time.Time {
		clock = clock.Add(partialPause)
		return clock
	}
	return t
}

// shown renders what becomes of Pi's lines, one line each, and checks it against
// the schema.
func shown(t testing.TB, lines []byte) string {
	t.Helper()
	s := &session{id: "S", cwd: "/workspace"}
	tr := stopped()
	out := bridgetest.NewTranscript(t)
	prompt := new(work)
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	for {
		line, err := in.Next()
		if err != nil {
			break
		}
		e, err := parse(line)
		if err != nil {
			out.WriteString("unparsed " + err.Error() + "\n")
			continue
		}
		if e.Type == "extension_ui_request" {
			q, gate := asked(e, "M")
			switch {
			case gate:
				out.Updates(tr.announce(q.Call, q.Tool, q.Args, ""))
				out.Request("permission", acp.MethodSessionRequestPermission, s.permissionRequest(q, tr.tools[q.Call]))
				out.Updates(tr.allowed(q.Call))
			case e.Method == "notify":
				out.Updates(tr.notified(e))
			default:
				out.WriteString("dialog " + e.Method + "\n")
			}
			continue
		}
		if e.Type == "response" {
			if e.Command == "prompt" && !e.Success {
				out.Note("refused", refused(acp.Errorf(acp.CodeInternal, "%s", e.Error)))
			}
			continue
		}
		out.Updates(tr.translate(e))
		if m := e.message(); e.Type == "message_end" && m != nil && m.Role == "assistant" {
			prompt.last = m
			prompt.count(m.Usage)
		}
		if e.Type != "agent_settled" {
			continue
		}
		if v := prompt.verdict(nil); v.Err != nil {
			out.Note("error", v.Err)
		} else {
			out.WriteString("end " + string(v.Reason) + "\n")
		}
		prompt = new(work)
	}
	return out.String()
}

// TestTranslate_Fixtures replays what Pi wrote in captured runs. Of the model,
// which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	bridgetest.Fixtures(t, 21, shown)
}

// BenchmarkFixtures plays them at full speed, without the process.
func BenchmarkFixtures(b *testing.B) {
	bridgetest.Benchmark(b, shown, "basic-text-thinking", `"type":"text_delta"`)
}

// TestTranslate_Conversations replays Pi's own files.
func TestTranslate_Conversations(t *testing.T) {
	for _, name := range []string{"tools", "compaction"} {
		t.Run(name, func(t *testing.T) {
			tr := stopped()
			got := bridgetest.NewTranscript(t)
			err := replayFile(filepath.Join("testdata/transcript", name+".jsonl"), func(f func(*translator) []schema.SessionUpdate) {
				got.Updates(f(tr))
			})
			if err != nil {
				t.Fatal(err)
			}
			bridgetest.GoldenFile(t, filepath.Join("testdata/transcript", name+".updates"), got.String())
		})
	}
}
