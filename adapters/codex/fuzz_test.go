package codex

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// FuzzTranslate feeds lines of any kind to translators. Whatever comes out must
// be valid.
func FuzzTranslate(f *testing.F) {
	const open = `{"id":1,"result":{"thread":{"id":"T"}}}` + "\n"
	kind := func(line []byte) string {
		return rawjson.MemberString(line, "method") + rawjson.MemberString(line, "params", "item", "type")
	}
	bridgetest.Seed(f, 3, kind, func(line string) {
		thread := rawjson.MemberString([]byte(line), "params", "threadId")
		f.Add([]byte(open + strings.ReplaceAll(line, thread+`"`, `T"`)))
	})
	f.Fuzz(func(t *testing.T, lines []byte) {
		shownLines(t, lines)
	})
}
