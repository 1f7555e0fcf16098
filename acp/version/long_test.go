package version_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// longLog returns a log of n entries, in turns of 500: words, and a command that says more
// in each tenth entry.
func longLog(n int) []version.Entry {
	var lines []string
	for turn := 1; len(lines) < n; turn++ {
		call, said := fmt.Sprintf("c%d", turn), ""
		lines = append(lines, "c3 "+prompt(fmt.Sprint(turn), "go"), "p-3 "+chunk("user_message", "go"),
			ofCommand("tool_call", call, `,"title":"make","status":"in_progress"`, `"terminal":{"command":"make","cwd":"/w"}`))
		for i := range 495 {
			if i%10 > 0 {
				lines = append(lines, "u "+chunk("agent_message", fmt.Sprintf("word %d ", i)))
				continue
			}
			said += fmt.Sprintf(`line %d\n`, i)
			lines = append(lines, ofCommand("tool_call_update", call, `,"status":"in_progress"`+console(said), `"terminal":{"output":true}`))
		}
		lines = append(lines, ofCommand("tool_call_update", call, `,"status":"completed"`, `"terminal":{"exitCode":0}`),
			fmt.Sprintf(`r3 {"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"}}`, turn))
	}
	return logOf(lines[:n]...)
}

// A long replay is the conversation that was told live, for who has nothing of it and for
// who has the beginning already.
func TestView_LongReplay(t *testing.T) {
	turns := 40
	if agentcache.IsLong() {
		turns = 200
	}
	log := longLog(turns * 500)
	live, replayed := newConversation(), newConversation()
	for _, f := range read(log, 0) {
		live.two([]byte(f))
	}
	for _, f := range read(log[:len(log)/10], 0) {
		replayed.two([]byte(f))
	}
	for _, f := range read(log, len(log)) {
		replayed.two([]byte(f))
	}
	live.Stops, replayed.Stops = nil, nil
	if diff := cmp.Diff(live, replayed); diff != "" {
		t.Errorf("(-live +replay):\n%.4000s", diff)
	}
	if n, d := len(live.Items), live.Terminals[fmt.Sprint("c", turns)]; n != 3*turns || d.Command != "make" || len(d.Output) < 400 {
		t.Errorf("%d messages and calls, and the last terminal is %+v", n, d)
	}
}

// BenchmarkView measures what a client of version 2 costs for each entry: of words, and of
// a command whose output is long already.
func BenchmarkView(b *testing.B) {
	output := fmt.Sprintf("%065000d", 1)
	for name, line := range map[string]string{
		"words":   "u " + chunk("agent_message", "some words of an answer"),
		"command": ofCommand("tool_call_update", "c", `,"status":"in_progress"`+console(output), `"terminal":{"output":true}`),
	} {
		b.Run(name, func(b *testing.B) {
			e, v := logOf(line)[0], version.NewView(about)
			var out version.Frames
			b.SetBytes(int64(len(e.Frame)))
			b.ReportAllocs()
			for b.Loop() {
				e.Seq++
				out.Reset()
				v.Step(e, false, &out)
			}
		})
	}
}
