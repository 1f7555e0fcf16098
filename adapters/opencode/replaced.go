package opencode

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// changes are what a turn has done to files as far as its calls say. OpenCode does
// not tell the old text of a file that is replaced as a whole; its diff of the turn
// has it, where git manages the directory.
type changes struct {
	count    map[string]int    // calls that changed a file, by path
	replaced map[string]*shown // the calls whose old text is not known
	blind    bool              // a command ran, or a patch was applied, which may have changed anything
}

func newChanges() changes { return changes{count: map[string]int{}, replaced: map[string]*shown{}} }

// note takes a call that is over.
func (c *changes) note(s *shown, path string, unknown bool) {
	switch {
	case s.look.kind == schema.ToolKindExecute, s.look.kind == schema.ToolKindEdit && path == "":
		c.blind = true
	case s.look.kind == schema.ToolKindEdit:
		c.count[path]++
		if unknown {
			c.replaced[path] = s
		}
	}
}

// lookBefore reads the file that a write is about to replace. OpenCode tells of the call
// when it begins with it, so the file may be written already: that is seen by its time.
func (t *translator) lookBefore(s *shown, st *toolState) {
	if s.tool != "write" || s.before != nil || t.textOf == nil || empty(st.Input) || st.Time.Start == 0 {
		return
	}
	if text, ok := t.textOf(t.absolute(decoded[input](st.Input).FilePath), time.UnixMilli(st.Time.Start)); ok {
		s.before = &text
	}
}

// clockSlack is how far the times of files lag behind the clock, and more.
const clockSlack = 20 * time.Millisecond

// textBefore is [translator.textOf]. The time is looked at last: what was read is older.
func textBefore(path string, since time.Time) (string, bool) {
	text, ok := bridge.TextBefore("", path)
	return text, ok && bridge.Written(path).Before(since.Add(-clockSlack))
}

// fileDiff is what a turn has done to a file.
type fileDiff struct {
	File  string `json:"file"` // below the root of the repository
	Patch string `json:"patch"`
}

// fill shows the old text of files that were replaced, where the diff of the turn
// can only be the call's.
func (t *translator) fill(list []fileDiff) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, d := range list {
		for path, s := range t.changes.replaced {
			if t.changes.count[path] != 1 || !strings.HasSuffix(path, string(filepath.Separator)+filepath.FromSlash(d.File)) {
				continue
			}
			if hunks := diffOf(path, d.Patch); len(hunks) > 0 {
				out = append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{
					ToolCallID: schema.ToolCallID(s.id), Content: hunks, Meta: t.parentMeta(s.session),
				}})
			}
		}
	}
	return out
}

const (
	// fillBound limits how long OpenCode is asked for the diff of a turn.
	fillBound = 10 * time.Second
	// fillWait is how long a turn's end waits for a diff that is not made yet: OpenCode makes it
	// beside its other work. Of a file that git ignores there never is one.
	fillWait  = 3 * time.Second
	fillPause = 200 * time.Millisecond
)

// showReplaced asks for the old text of files that the turn has replaced.
func (s *session) showReplaced(ctx context.Context, t *work, stopping func() bool) {
	s.out.Lock()
	wanted := 0
	for path := range s.tr.changes.replaced {
		if s.tr.changes.count[path] == 1 && !s.tr.changes.blind { // of others the diff is not the call's
			wanted++
		}
	}
	s.out.Unlock()
	if wanted == 0 {
		return
	}
	ctx, cancel := bridge.Within(ctx, fillBound)
	defer cancel()
	shown := map[schema.ToolCallID]bool{}
	for began := time.Now(); ; {
		var list []fileDiff
		if err := s.srv.call(ctx, "GET", at("/session/"+string(s.id)+"/diff", s.cwd, "messageID", t.id), nil, &list); err != nil {
			s.log.Debug("ask for the diff of a turn", "err", err)
			return
		}
		s.emit(func(tr *translator) []schema.SessionUpdate {
			return slices.DeleteFunc(tr.fill(list), func(u schema.SessionUpdate) bool {
				was := shown[u.ToolCallUpdate.ToolCallID]
				shown[u.ToolCallUpdate.ToolCallID] = true
				return was
			})
		})
		if len(shown) >= wanted || time.Since(began) > fillWait || stopping() || !underGit(s.cwd) {
			return
		}
		select {
		case <-time.After(fillPause):
		case <-ctx.Done():
			return
		}
	}
}

// underGit reports whether git manages a directory, as OpenCode finds out.
func underGit(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}
