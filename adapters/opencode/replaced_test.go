package opencode

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// The old text of a file that is replaced is what was there before the call. A file that
// was written since, which may have been the call, is not taken for it.
func TestTranslate_ReplacedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	began := time.Now()
	for name, c := range map[string]struct {
		written time.Duration // when the file was, from the begin of the call
		old     bool
	}{
		"before":     {-time.Minute, true},
		"since":      {time.Second, false},
		"at its end": {0, false},
	} {
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := began.Add(c.written)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		tr := newTranslator("ses_1", "/workspace")
		tr.textOf = textBefore
		var last *schema.ToolCallUpdate
		for _, status := range []string{"running", "completed"} {
			st := &toolState{Status: status, Input: fmt.Appendf(nil, `{"filePath":%q,"content":"new"}`, file), Metadata: []byte(`{"exists":true}`)}
			st.Time.Start = began.UnixMilli()
			for _, u := range tr.translate(&event{Type: "message.part.updated", Session: "ses_1", Part: &part{
				ID: "prt_1", Session: "ses_1", Message: "msg_1", Type: "tool", Tool: "write", Call: "c", State: st,
			}}) {
				last = u.ToolCallUpdate
			}
		}
		if last == nil || last.Status != schema.ToolCallStatusCompleted {
			t.Fatalf("%s: the call ends with %+v", name, last)
		}
		diff := last.Content[len(last.Content)-1].Diff
		if diff == nil || diff.NewText != "new" || (diff.OldText != nil) != c.old || c.old && *diff.OldText != "old" {
			t.Errorf("%s: shown as %+v", name, diff)
		}
	}
}
