package claude

import (
	"bytes"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// shown renders what becomes of the program's lines, one line each, and checks
// it against the schema.
func shown(t testing.TB, lines []byte) string {
	t.Helper()
	tr := newTranslator(nil)
	set := settings{mode: modeDefault}
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
		prompt.note(e)
		if e.Type == "control_request" {
			r := new(controlRequest)
			if err := bridge.Lenient(e.Request, r); err != nil {
				t.Fatal(err)
			}
			if r.Subtype != "can_use_tool" {
				out.WriteString("asks " + r.Subtype + "\n")
				continue
			}
			out.Updates(tr.asked(r))
			if q, ok := questionsOf("S", r); ok {
				out.Note("question", q)
				continue
			}
			list := choicesOf(r, set.modeIDs())
			out.Request("permission", acp.MethodSessionRequestPermission, permissionRequest("S", r, list))
			for _, c := range list {
				out.Note("  "+string(c.option.OptionID)+":", c.answer)
			}
			continue
		}
		out.Updates(tr.translate(e))
		if e.Type != "result" {
			continue
		}
		if !prompt.answers(e) {
			out.WriteString("end of a turn that nobody prompted\n")
			continue
		}
		if v := prompt.judge(e); v.Err != nil {
			out.Note("error", v.Err)
		} else {
			out.WriteString("end " + string(v.Reason) + "\n")
		}
		prompt = new(work)
	}
	return out.String()
}

// TestTranslate_Fixtures replays what the program wrote in captured runs. Of the
// model, which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	bridgetest.Fixtures(t, 140, shown)
}

// BenchmarkFixtures plays them at full speed, without the process.
func BenchmarkFixtures(b *testing.B) {
	bridgetest.Benchmark(b, shown, "01-hello-text", `"type":"text_delta"`)
}
