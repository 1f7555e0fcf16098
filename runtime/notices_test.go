package runtime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
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

// Who is attached to a session that somebody else deletes is told.
func TestNotices_OfADeletion(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch {
		case m.Method() == "session/new":
			c.newSession(m)
		case m.IsRequest():
			c.result(m, `{}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc, plain, other := connect(t, r, ""), connect(t, r, `{}`), connect(t, r, "")
	s := tc.session()
	plain.call("session/resume", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	other.call("session/delete", `{"sessionId":"`+s+`"}`)
	m := tc.nextOf("_sandboxagent/session/ended")
	if m.Session() != s || rawjson.MemberString(m.Params(), "data", "reason") != "deleted" {
		t.Errorf("%s", m.Frame())
	}
	id := plain.request("session/list", `{}`)
	if before, _ := plain.until(id); len(before) > 0 {
		t.Errorf("who has not asked is told %s", before[0].Frame())
	}
}

// Each client is told of notices and compactions as it knows them, whoever the agent was
// started for: as they happen, in a replay, and again on a stream that broke.
func TestNotices_AsEachClientKnowsThem(t *testing.T) {
	const all = `"session":{"notices":{},"compaction":{}}`
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	knowing := connect(t, r, `{`+all+`}`)
	c := a.conn()
	s := knowing.session()
	said := []string{
		`{"sessionUpdate":"notice","severity":"info","title":"Fine"}`,
		`{"sessionUpdate":"notice","severity":"warning","title":"Slow"}`,
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}`,
		`{"sessionUpdate":"compaction_summary_chunk","compactionId":"c","content":{"type":"text","text":"short"}}`,
		`{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed"}`,
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"done"}}`,
	}
	asUpdates := []string{"notice", "notice", "compaction_update in_progress", "compaction_summary_chunk short", "compaction_update completed", "agent_message_chunk done"}
	inWords := []string{"agent_thought_chunk Slow\n", "agent_thought_chunk The conversation was compacted.\n", "agent_message_chunk done"}
	clients := map[string][]string{`{` + all + `}`: asUpdates, `{}`: inWords, `{"subagents":{}}`: inWords, `{"subagents":{},` + all + `}`: asUpdates}
	watching := map[string]*testClient{}
	for caps := range clients {
		watching[caps] = connect(t, r, caps)
		watching[caps].call("session/resume", loadOf(s, "/tmp", ""))
	}
	two := connectTwo(t, r, "")
	two.call("session/resume", loadOf(s, "/tmp", ""))
	for _, update := range said {
		c.update("native-1", update)
	}
	for caps, want := range clients {
		if diff := cmp.Diff(want, watching[caps].told(s, len(want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", caps, diff)
		}
		shown, _ := watching[caps].loaded(s)
		var again []string
		for _, m := range shown {
			again = append(again, brief(m))
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("%s, in a replay (-want +got):\n%s", caps, diff)
		}
	}
	two.expect("notice", "notice", "compaction_update in_progress", "compaction_summary_chunk short", "compaction_update completed", "agent_message_chunk sa.6 done")

	// A client whose stream breaks is given the same events again.
	client, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1,"clientCapabilities":{}}`)), acp.ConnectOptions{Shape: acp.PerSession})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Send(t.Context(), acp.NewRequest("1", "session/load", []byte(loadOf(s, "/tmp", `,"mcpServers":[]`)))); err != nil {
		t.Fatal(err)
	}
	control, err := client.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	var first []string
	for range 2 {
		st, err := client.Stream(s, new(uint64))
		if err != nil {
			t.Fatal(err)
		}
		events := collect(t, st, len(inWords))
		if first == nil {
			first = events
		}
		if diff := cmp.Diff(first, events); diff != "" || !strings.Contains(events[0], "Slow") {
			t.Errorf("again (-first +again):\n%s\n%s", diff, events)
		}
		st.Close()
	}
}
