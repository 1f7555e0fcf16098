package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// The record of an earlier version does not say whether a permissionMode that the agent was not opened with yet is newer than the mode
// that was chosen. It is, but for a mode that a load has asked for as well: a session that must only read does so in any case.
func TestRecord_OfAnEarlierVersionWithAPermissionModeThatWaits(t *testing.T) {
	for name, tt := range map[string]struct{ loads, waits, set string }{
		"reads only":          {`"permissionMode":"readonly"`, "readonly", ""},
		"reads only, a mode":  {`"permissionMode":"readonly","mode":"write"`, "readonly", ""},
		"another":             {`"permissionMode":"bypass"`, "bypass", ""},
		"nothing of it":       {`"instructions":"be brief"`, "", "write"},
		"another, and a mode": {`"permissionMode":"bypass","mode":"write"`, "bypass", "write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := &fakeAgent{id: "fake", caps: reopening, info: takesPermission, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
			a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"n",`+offersOf+`}`))
			tc.until(id)
			id = tc.request("session/set_mode", `{"sessionId":"n","modeId":"write"}`)
			a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			tc.until(id)
			tc.ends(a)
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "sessions", "n", "session.json")
			record, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			setup, _ := rawjson.Member(record, "setup")
			asks := []byte(`{"cwd":"/tmp","mcpServers":[]` + own(tt.loads) + `}`)
			record = rawjson.SetMember(rawjson.SetMember(rawjson.DeleteMember(record, "modeOver"), setup, "setupBefore"), asks, "setup")
			if err := os.WriteFile(path, record, 0o600); err != nil {
				t.Fatal(err)
			}
			opened, set := connect(t, newRuntime(t, dir, a), "").opensAgain(t, a, "n", "plan")
			waits := rawjson.MemberString(opened.m.Params(), "_meta", acp.MetaKey, "permissionMode")
			if got := strings.Join(set, " "); waits != tt.waits || got != tt.set {
				t.Errorf("opened with %q, and set to %q: want %q, %q", waits, got, tt.waits, tt.set)
			}
		})
	}
}
