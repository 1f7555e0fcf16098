package codex

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// FuzzTranslate feeds lines of any kind to translators. Whatever comes out must
// be valid.
func FuzzTranslate(f *testing.F) {
	const open = `{"id":1,"result":{"thread":{"id":"T"}}}` + "\n"
	kind := func(line []byte) string {
		return acp.MemberString(line, "method") + acp.MemberString(line, "params", "item", "type")
	}
	bridgetest.Seed(f, 3, kind, func(line string) {
		thread := acp.MemberString([]byte(line), "params", "threadId")
		f.Add([]byte(open + strings.ReplaceAll(line, thread+`"`, `T"`)))
	})
	f.Fuzz(func(t *testing.T, lines []byte) {
		shownLines(t, lines, true)
		shownLines(t, lines, false)
	})
}
