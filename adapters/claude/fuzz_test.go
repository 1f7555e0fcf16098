package claude

import (
	"bytes"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// FuzzTranslate feeds lines of any kind to the translator, live and as a
// transcript. Whatever comes out must be valid.
func FuzzTranslate(f *testing.F) {
	kind := func(line []byte) string {
		return "of " + rawjson.MemberString(line, "type") + rawjson.MemberString(line, "subtype") + rawjson.MemberString(line, "event", "type")
	}
	bridgetest.Seed(f, 5, kind, func(line string) { f.Add([]byte(line)) })
	f.Fuzz(func(t *testing.T, lines []byte) {
		tr := newTranslator(func(path string) (string, bool) { return path, path != "" })
		out := bridgetest.NewTranscript(t)
		prompt := new(work)
		in := bridge.NewLines(bytes.NewReader(lines), 1<<20)
		for {
			line, err := in.Next()
			if _, ok := err.(*ndjson.TooLongError); ok {
				continue
			}
			if err != nil {
				break
			}
			entry := new(entry)
			if bridge.Lenient(line, entry) == nil {
				out.Updates(tr.entry(entry, ""))
			}
			e, err := parse(line)
			if err != nil {
				continue
			}
			prompt.note(e)
			r := new(controlRequest)
			if bridge.Lenient(e.Request, r) == nil {
				out.Updates(tr.asked(r))
				list := choicesOf(r, []string{modeDefault, modeBypass})
				if _, err := schema.Encode(permissionRequest("S", r, list)); err != nil {
					t.Fatal(err)
				}
			}
			out.Updates(tr.translate(e))
			if e.Type == "result" && prompt.answers(e) {
				prompt.judge(e)
			}
		}
		out.Updates(tr.leftOpen())
	})
}
