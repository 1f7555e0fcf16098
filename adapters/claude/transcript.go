package claude

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	pageSize = 50
	// maxFolder is the length from which on the program shortens the name of a
	// project's folder and adds a hash.
	maxFolder = 200
)

// transcripts are the program's own records of conversations, one file each,
// below a folder for each directory it ran in.
type transcripts struct {
	projects string // "" when there is no home directory
}

func transcriptsOf(env []string) transcripts {
	dir := bridge.Lookup(env, "CLAUDE_CONFIG_DIR")
	if home := bridge.Lookup(env, "HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".claude")
	}
	if dir == "" {
		return transcripts{}
	}
	return transcripts{filepath.Join(dir, "projects")}
}

// folderOf is the name of the folder of a directory's conversations.
func folderOf(cwd string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, cwd)
}

// belongs reports whether conversations in folder were held in cwd.
func belongs(folder, cwd string) bool {
	if real, err := filepath.EvalSymlinks(cwd); err == nil && matches(folder, folderOf(real)) {
		return true
	}
	return matches(folder, folderOf(cwd))
}

func matches(folder, want string) bool {
	if len(want) > maxFolder {
		return strings.HasPrefix(folder, want[:maxFolder])
	}
	return folder == want
}

// find returns the file of a conversation. The program opens one only in the
// directory where it was held, so another cwd is an error; "" is any.
func (t transcripts) find(id, cwd string) (string, error) {
	var elsewhere string
	if bridge.IsUUID(id) && t.projects != "" {
		found, _ := filepath.Glob(filepath.Join(t.projects, "*", id+".jsonl"))
		for _, f := range found {
			if cwd == "" || belongs(filepath.Base(filepath.Dir(f)), cwd) {
				return f, nil
			}
			elsewhere = f
		}
	}
	if elsewhere == "" {
		if err := bridge.CanList(t.projects); err != nil {
			return "", err
		}
		return "", bridge.NotFound(schema.SessionID(id))
	}
	there := summarize(elsewhere).cwd
	return "", acp.Errorf(acp.CodeInvalidParams, "session %s was held in %s: claude cannot continue it in %s", id, bridge.FirstOf(there, "another directory"), cwd).
		WithData(map[string]string{"cwd": there})
}

// remove removes a conversation, and what its subagents and tools left.
func (t transcripts) remove(id string) error {
	if !bridge.IsUUID(id) || t.projects == "" {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(t.projects, "*", id+".jsonl"))
	for _, f := range found {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete session %s: %w", id, err)
		}
		if err := os.RemoveAll(strings.TrimSuffix(f, ".jsonl")); err != nil {
			return fmt.Errorf("delete session %s: %w", id, err)
		}
	}
	return nil
}

// held is a file of a conversation in a listing.
type held struct {
	id, path string
	changed  time.Time
}

// key orders conversations, newest first; it is the cursor behind one.
func (h held) key() string { return fmt.Sprintf("%020d-%s", h.changed.UnixNano(), h.id) }

// list returns the conversations that were held in cwd, "" for all.
func (t transcripts) list(cwd string) []held {
	var out []held
	found, _ := filepath.Glob(filepath.Join(t.projects, "*", "*.jsonl"))
	for _, f := range found {
		id := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		if !bridge.IsUUID(id) || cwd != "" && !belongs(filepath.Base(filepath.Dir(f)), cwd) {
			continue
		}
		if info, err := os.Stat(f); err == nil {
			out = append(out, held{id, f, info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b held) int { return cmp.Compare(b.key(), a.key()) })
	return out
}

// summary is what a listing tells of a conversation.
type summary struct {
	cwd, title string
	prompts    bool // somebody said something
}

// summarize reads the ends of a transcript.
func summarize(path string) summary {
	var s summary
	var first, given, made string
	scan := func(b []byte) {
		for line := range bytes.Lines(b) {
			var e entry
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			s.cwd = bridge.FirstOf(s.cwd, e.Cwd)
			given = bridge.FirstOf(e.CustomTitle, given)
			made = bridge.FirstOf(e.AITitle, e.Summary, made)
			if e.Type == "user" || e.Type == "assistant" {
				s.prompts = true
			}
			if first == "" && e.Type == "user" {
				first = bridge.TitleOf(e.prompt())
			}
		}
	}
	if bridge.Ends(path, scan) {
		s.prompts = true
	}
	s.title = bridge.FirstOf(given, made, first)
	return s
}

// ListSessions lists the conversations of this program, those that were held in
// a terminal too. The latter are marked as native.
func (a *agent) ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	cwd, after := "", ""
	if r.Cwd != nil {
		cwd = *r.Cwd
	}
	if r.Cursor != nil {
		after = *r.Cursor
	}
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}}
	ours := a.store.aliases()
	var last string
	for _, h := range a.files.list(cwd) {
		if after != "" && h.key() >= after {
			continue
		}
		if len(out.Sessions) == pageSize {
			out.NextCursor = &last
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := summarize(h.path)
		if !s.prompts || s.cwd == "" {
			continue
		}
		id, known := ours[h.id]
		if known && id == "" {
			continue // an earlier part of a conversation that is listed
		}
		info := schema.SessionInfo{SessionID: schema.SessionID(bridge.FirstOf(id, h.id)), Cwd: s.cwd, UpdatedAt: new(h.changed.UTC().Format(time.RFC3339))}
		if s.title != "" {
			info.Title = &s.title
		}
		info.Meta = bridge.Meta(map[string]bool{"native": !known})
		out.Sessions = append(out.Sessions, info)
		last = h.key()
	}
	return out, nil
}
