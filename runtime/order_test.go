package runtime

import (
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// What a client asks of a session that has no process is done in the order in which it was asked for, though all of it waits for
// one: a prompt begins with the mode that was set before it, and what is set behind it comes behind it.
func TestRequests_WaitForAProcessInTheirOrder(t *testing.T) {
	t.Parallel()
	set := func(mode string) []string {
		return []string{acp.MethodSessionSetMode, `{"sessionId":"SESSION","modeId":"` + mode + `"}`}
	}
	say := func(text string) []string { return []string{acp.MethodSessionPrompt, prompt("SESSION", text)} }
	for _, asked := range [][][]string{
		{set("a"), say("x")},
		{say("x"), set("a")},
		{set("a"), set("b"), say("x"), set("c")},
		{set("a"), say("x"), set("b"), set("c"), set("d")},
	} {
		_, g, tc, s := dormantSession(t)
		var want []string
		var ids []acp.ID
		for _, one := range asked {
			ids = append(ids, tc.request(one[0], strings.ReplaceAll(one[1], "SESSION", s)))
			want = append(want, one[0]+rawjson.MemberString([]byte(one[1]), "modeId"))
		}
		<-g.starting
		g.let <- nil
		awaitConn(t, g, 2)
		g.conn().result(g.conn().next(t, acp.MethodSessionResume), `{"modes":{"currentModeId":"z","availableModes":[]}}`)
		var got []string
		for range asked {
			m := <-g.conn().got
			got = append(got, m.Method()+rawjson.MemberString(m.Params(), "modeId"))
			result := `{}`
			if m.Method() == acp.MethodSessionPrompt {
				result = `{"stopReason":"end_turn"}`
			}
			g.conn().result(m, result)
		}
		if !slices.Equal(want, got) {
			t.Errorf("the agent was sent %q, want %q", got, want)
		}
		for range ids {
			for m := tc.next(); !m.IsResponse() || !slices.Contains(ids, m.ID()); m = tc.next() {
				continue
			}
		}
	}
}
