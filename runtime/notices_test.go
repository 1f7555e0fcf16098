package runtime

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// What the gateway says beside the protocol is for clients that know it: those that ask
// for it, or for anything else of the gateway's own.
func TestNotices_OnlyForThoseWhoAsked(t *testing.T) {
	a := &fakeAgent{id: "fake"}
	r := newRuntime(t, t.TempDir(), a)
	for caps, want := range map[string]bool{
		`{}`: false, `{"_meta":{"other":1}}`: false, `{"_meta":{"sandboxagent.dev":{}}}`: false, `{"_meta":{"sandboxagent.dev":{"eventIds":true,"notices":false}}}`: false,
		`{"_meta":{"sandboxagent.dev":{"notices":true}}}`: true, `{"_meta":{"sandboxagent.dev":{"eventIds":true}}}`: true,
	} {
		c := connect(t, r, caps)
		own := rawjson.MemberString([]byte(c.call("session/new", newParams(`{"isolation":"session"}`))), "sessionId")
		conn := a.conn()
		conn.send(`{"jsonrpc":"2.0","method":"_sandboxagent/agent/unparsed","params":{}}`)
		id := c.request("session/prompt", prompt(own, "x"))
		m := conn.next(t, "session/prompt")
		conn.send(`{"jsonrpc":"2.0","method":"_sandboxagent/agent/unparsed","params":{}}`)
		conn.chunk(m.Session(), "said")
		conn.crash(errCrash)
		before, _ := c.until(id)
		got := map[string]int{}
		for _, m := range before {
			if strings.HasPrefix(m.Method(), "_sandboxagent/") {
				got[m.Method()]++
			}
		}
		if texts(before) != "said" || (got["_sandboxagent/session/ended"] == 1) != want || (got["_sandboxagent/agent/unparsed"] > 0) != want {
			t.Errorf("%s: told %v, shown %q, wants them: %v", caps, got, texts(before), want)
		}
		c.close()
	}
}
