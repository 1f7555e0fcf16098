package codex

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// FuzzTranslate feeds lines of any kind to translators. Whatever comes out must
// be valid.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	const open = `{"id":1,"result":{"thread":{"id":"T"}}}` + "\n"
	seen := map[string]int{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		lines, _, _ := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
		for line := range strings.Lines(lines) {
			// Short ones, a few of each kind: what is slow to check is slow to fuzz.
			kind := acp.MemberString([]byte(line), "method") + acp.MemberString([]byte(line), "params", "item", "type")
			thread := acp.MemberString([]byte(line), "params", "threadId")
			if seen[kind]++; kind != "" && len(line) < 3000 && seen[kind] <= 3 {
				f.Add([]byte(open + strings.ReplaceAll(line, thread+`"`, `T"`)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		shownLines(t, lines, true)
		shownLines(t, lines, false)
	})
}
