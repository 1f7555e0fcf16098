package claude

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// TestTranslate_Transcripts replays the program's own records of conversations:
// one with a subagent and an interrupted turn, one that was compacted.
func TestTranslate_Transcripts(t *testing.T) {
	for _, name := range []string{"session", "compacted"} {
		t.Run(name, func(t *testing.T) {
			valid := acptest.New(t)
			tr := newTranslator(nil)
			var got strings.Builder
			err := replayFile(filepath.Join("testdata/transcript", name+".jsonl"), func(f func(*translator) []acp.SessionUpdate) {
				for _, u := range f(tr) {
					b, err := acp.Encode(u)
					if err != nil {
						t.Fatal(err)
					}
					got.WriteString(string(b) + "\n")
					m := acp.NewNotification(acp.MethodSessionUpdate, append(append([]byte(`{"sessionId":"S","update":`), b...), '}'))
					if err := valid.ValidateFrame(m.Frame(), nil); err != nil {
						t.Errorf("%v: %.300s", err, m.Frame())
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata/transcript", name+".updates")
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
				t.Errorf("-want +got; go test -run TestTranslate -update writes it anew\n%s", diff)
			}
		})
	}
}
