package claude

import (
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// TestTranslate_Transcripts replays the program's own records of conversations:
// one with a subagent and an interrupted turn, one that was compacted.
func TestTranslate_Transcripts(t *testing.T) {
	for _, name := range []string{"session", "compacted"} {
		t.Run(name, func(t *testing.T) {
			tr := newTranslator(nil)
			got := bridgetest.NewTranscript(t)
			err := replayFile(filepath.Join("testdata/transcript", name+".jsonl"), func(f func(*translator) []schema.SessionUpdate) {
				got.Updates(f(tr))
			})
			if err != nil {
				t.Fatal(err)
			}
			bridgetest.GoldenFile(t, filepath.Join("testdata/transcript", name+".updates"), got.String())
		})
	}
}
