package amp

import (
	"bytes"
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// counter makes ids of messages that are the same in each run.
func counter() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("message-%d", n) }
}

// shown renders what becomes of the program's lines, one line each, and checks it
// against the schema.
func shown(t testing.TB, lines []byte) string {
	t.Helper()
	tr := newTranslator(nil, counter())
	out := bridgetest.NewTranscript(t)
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	end := func(v turn.Verdict) {
		if v.Err != nil {
			out.Note("error", v.Err)
		} else {
			out.WriteString("end " + string(v.Reason) + "\n")
		}
	}
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
		out.Updates(tr.translate(e))
		switch v, ends, cut := over(e); {
		case e.Type == "result":
			end(judge(e))
		case cut:
			out.WriteString("cut short\n")
		case ends:
			end(v)
		}
	}
	out.Updates(tr.abandoned(false))
	return out.String()
}

// TestTranslate_Fixtures replays what the program wrote in captured runs. Of the
// model, which was scripted, the texts and numbers mean nothing. One file has lines
// that are documented and were not seen.
func TestTranslate_Fixtures(t *testing.T) { bridgetest.Fixtures(t, 13, shown) }

// BenchmarkFixtures plays them at full speed, without the process.
func BenchmarkFixtures(b *testing.B) {
	bridgetest.Benchmark(b, shown, "", "")
}
