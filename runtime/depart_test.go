package runtime

import (
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Who asks something of a session that departs, or opens it, is told where it goes, also while its agent still ends.
func TestDepart_AsItsAgentEnds(t *testing.T) {
	for _, method := range []string{"session/prompt", "session/load", "session/resume"} {
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"close":{}}}`}
			r, err := New(Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake"})
			if err != nil {
				t.Fatal(err)
			}
			tc := connect(t, r, "")
			s := tc.session()
			i, err := r.Session(s)
			if err != nil {
				t.Fatal(err)
			}
			left := make(chan error, 1)
			go func() { left <- r.DepartSession(t.Context(), s, i.EventCount, nil, "node://two") }()
			m := a.conn().next(t, "session/close")
			id := tc.request(method, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[],"prompt":[]}`)
			if _, res := tc.until(id); res.Err() == nil || rawjson.MemberString(res.Err().Data, "movedTo") != "node://two" {
				t.Errorf("%s was answered %s", method, res.Frame())
			}
			a.conn().result(m, `{}`)
			if err := <-left; err != nil {
				t.Error(err)
			}
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
