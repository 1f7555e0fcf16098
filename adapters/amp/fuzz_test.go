package amp

import (
	"bytes"
	"encoding/json"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// FuzzTranslate feeds lines of any kind to the translator: as the program writes
// them, as parts of a thread's copy, and as the input of a call that is asked
// about. Whatever comes out must be valid.
func FuzzTranslate(f *testing.F) {
	kind := func(line []byte) string {
		return "of " + rawjson.MemberString(line, "type") + rawjson.MemberString(line, "subtype")
	}
	bridgetest.Seed(f, 5, kind, func(line string) { f.Add([]byte(line)) })
	f.Add([]byte(`{"role":"user","content":[{"type":"tool_result","toolUseID":"toolu_4","run":{"status":"error","error":{"message":"no"}}}]}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		tr := newTranslator(func(path string) (string, bool) { return path, path != "" }, counter())
		out := bridgetest.NewTranscript(t)
		in := bridge.NewLines(bytes.NewReader(lines), 1<<20)
		for {
			line, err := in.Next()
			if err != nil {
				break
			}
			part := new(threadPart)
			if bridge.Lenient(line, part) == nil {
				out.Updates(tr.past(part))
			}
			if r := (&request{Tool: "create_file", ID: string(line), Input: line}); json.Valid(line) && len(line) > 0 {
				out.Updates(tr.asked(r))
				out.Request("permission", acp.MethodSessionRequestPermission, permissionRequest("S", "/workspace", r, tr.tools[r.ID]))
			}
			e, err := parse(line)
			if err != nil {
				continue
			}
			out.Updates(tr.translate(e))
			if e.Type == "result" {
				judge(e)
			}
		}
		out.Updates(tr.abandoned(true))
		if b := plainJSON(lines); json.Valid(lines) && !json.Valid(b) {
			t.Errorf("%q became %q", lines, b)
		}
	})
}
