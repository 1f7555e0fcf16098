package claude

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// FuzzTranslate feeds lines of any kind to the translator, live and as a
// transcript. Whatever comes out must be valid.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	seen := map[string]int{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		lines, _, _ := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
		for line := range strings.Lines(lines) {
			// Short ones, a few of each kind: what is slow to check is slow to fuzz.
			kind := acp.MemberString([]byte(line), "type") + acp.MemberString([]byte(line), "subtype") + acp.MemberString([]byte(line), "event", "type")
			if seen[kind]++; len(line) < 3000 && seen[kind] <= 5 {
				f.Add([]byte(line))
			}
		}
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		valid := acptest.New(t)
		for _, known := range []bool{true, false} {
			tr := newTranslator(func(path string) (string, bool) { return path, path != "" })
			tr.notices, tr.compaction = known, known
			prompt := &turn{done: make(chan verdict, 1)}
			in := bridge.NewLines(bytes.NewReader(lines), 1<<20)
			check := func(list []acp.SessionUpdate) {
				for _, u := range list {
					b, err := acp.Encode(u)
					if err != nil {
						t.Fatalf("%v: %+v", err, u)
					}
					m := acp.NewNotification(acp.MethodSessionUpdate, append(append([]byte(`{"sessionId":"S","update":`), b...), '}'))
					if err := valid.ValidateFrame(m.Frame(), nil); err != nil {
						t.Fatalf("%v: %s", err, m.Frame())
					}
				}
			}
			for {
				line, err := in.Next()
				if _, ok := err.(*bridge.TooLongError); ok {
					continue
				}
				if err != nil {
					break
				}
				entry := new(entry)
				if lenient(line, entry) == nil {
					check(tr.entry(entry, ""))
				}
				e, err := parse(line)
				if err != nil {
					continue
				}
				prompt.note(e)
				r := new(controlRequest)
				if lenient(e.Request, r) == nil {
					check(tr.asked(r))
					list := choicesOf(r, []string{modeDefault, modeBypass})
					if _, err := acp.Encode(permissionRequest("S", r, list)); err != nil {
						t.Fatal(err)
					}
				}
				check(tr.translate(e))
				if e.Type == "result" && prompt.answers(e) {
					prompt.judge(e)
				}
			}
			check(tr.leftOpen())
		}
	})
}
