package pi

import (
	"bytes"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// FuzzTranslate feeds lines of any kind to the translator, live and as a
// conversation's file. Whatever comes out must be valid.
func FuzzTranslate(f *testing.F) {
	kind := func(line []byte) string {
		return "of " + rawjson.MemberString(line, "type") + rawjson.MemberString(line, "assistantMessageEvent", "type") + rawjson.MemberString(line, "toolName") + rawjson.MemberString(line, "method")
	}
	bridgetest.Seed(f, 3, kind, func(line string) { f.Add([]byte(line)) })
	f.Fuzz(func(t *testing.T, lines []byte) {
		tr := stopped()
		tr.file = func(path string) before { return before{there: path != "", read: len(path)%2 == 0, text: path} }
		s := &session{id: "S", cwd: "/workspace"}
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
				out.Updates(tr.entry(entry))
			}
			e, err := parse(line)
			if err != nil {
				continue
			}
			out.Updates(tr.translate(e))
			out.Updates(tr.notified(e))
			if q, ok := asked(e, "M"); ok {
				out.Request("permission", acp.MethodSessionRequestPermission, s.permissionRequest(q, tr.tools[q.Call]))
			}
			if m := e.message(); m != nil {
				prompt.last = m
				prompt.count(m.Usage)
				prompt.judge()
			}
		}
		out.Updates(tr.abandoned())
	})
}
