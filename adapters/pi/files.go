package pi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	pageSize = 50
	maxHead  = 64 << 10 // of a file's first line
)

// conversations are Pi's own records, one file each, in a folder or in folders of
// it for each directory that Pi ran in.
type conversations struct {
	config string // the folder of the user's configuration, "" when there is no home directory
	dir    string
}

// conversationsOf finds Pi's folders by its environment, and the user's settings.
func conversationsOf(env []string) conversations {
	home := bridge.Lookup(env, "HOME")
	expand := func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
			return home + rest
		}
		return path
	}
	var c conversations
	if c.config = expand(bridge.Lookup(env, "PI_CODING_AGENT_DIR")); c.config == "" && home != "" {
		c.config = filepath.Join(home, ".pi", "agent")
	}
	if c.config == "" {
		return c
	}
	if c.dir = expand(bridge.Lookup(env, "PI_CODING_AGENT_SESSION_DIR")); c.dir == "" {
		b, _ := os.ReadFile(filepath.Join(c.config, "settings.json")) // none is usual
		c.dir = expand(rawjson.MemberString(b, "sessionDir"))
	}
	if c.dir == "" {
		c.dir = filepath.Join(c.config, "sessions")
	}
	return c
}

// entry is a line of a conversation's file.
type entry struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Parent  *string         `json:"parentId"`
	Cwd     string          `json:"cwd"`  // of the first line
	Name    string          `json:"name"` // of session_info
	Summary string          `json:"summary"`
	Message json.RawMessage `json:"message"`
}

// glob lists the files that may be conversations.
func (c conversations) glob(name string) []string {
	if c.dir == "" {
		return nil
	}
	flat, _ := filepath.Glob(filepath.Join(c.dir, name))
	deep, _ := filepath.Glob(filepath.Join(c.dir, "*", name))
	return append(flat, deep...)
}

// of returns the file of a session's conversation.
func (c conversations) of(r *record, id string) (string, error) {
	switch {
	case exists(r.File):
		return r.File, nil
	case len(r.Left) > 0 || r.Theirs: // the one with the session's id is not its any more
		return "", bridge.NotFound(schema.SessionID(id))
	}
	return c.find(id)
}

// find returns the file of the conversation that Pi has by that id.
func (c conversations) find(id string) (string, error) {
	if !idForm.MatchString(id) {
		return "", bridge.NotFound(schema.SessionID(id))
	}
	missing := error(bridge.NotFound(schema.SessionID(id)))
	if err := bridge.CanList(c.dir); err != nil {
		missing = err
	}
	for _, f := range c.glob("*_" + id + ".jsonl") {
		head, err := header(f)
		switch {
		case err == nil && head.ID == id:
			return f, nil
		case err != nil && !errors.Is(err, errNone):
			missing = err // it may be this one
		}
	}
	return "", missing
}

// check refuses to continue a conversation in another directory than the one where it was
// held: Pi does not.
func (c conversations) check(file string, id schema.SessionID, cwd string) error {
	head, err := header(file)
	if errors.Is(err, errNone) {
		return bridge.NotFound(id)
	}
	if err != nil {
		return err
	}
	if bridge.SameDir(head.Cwd, cwd) {
		return nil
	}
	return acp.Errorf(acp.CodeInvalidParams, "session %s was held in %s: pi cannot continue it in %s", id, bridge.FirstOf(head.Cwd, "another directory"), cwd).
		WithData(map[string]string{"cwd": head.Cwd})
}

// errNone is the error of a file that is no conversation of Pi: it is gone, empty or damaged.
var errNone = errors.New("there is no conversation of pi in it")

// header reads the first line of a file.
func header(file string) (*entry, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", file, errNone)
	}
	if err != nil {
		return nil, fmt.Errorf("read a conversation: %w", err)
	}
	defer func() { _ = f.Close() }()
	line, err := bridge.NewLines(io.LimitReader(f, maxHead), 0).Next()
	if _, broken := errors.AsType[*fs.PathError](err); broken {
		return nil, fmt.Errorf("read a conversation: %w", err)
	}
	e := new(entry)
	if err != nil || bridge.Lenient(line, e) != nil || e.Type != "session" {
		return nil, fmt.Errorf("read %s: %w", file, errNone)
	}
	return e, nil
}

// held is a file of a conversation in a listing.
type held struct {
	path    string
	changed time.Time
}

// key orders conversations, newest first; it is the cursor behind one.
func (h held) key() string {
	return fmt.Sprintf("%020d-%s", h.changed.UnixNano(), filepath.Base(h.path))
}

// list returns all conversations.
func (c conversations) list() []held {
	var out []held
	for _, f := range c.glob("*.jsonl") {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			out = append(out, held{f, info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b held) int { return cmp.Compare(b.key(), a.key()) })
	return out
}

// summary is what a listing tells of a conversation.
type summary struct {
	id, cwd, title string
	prompts        bool // somebody said something
}

// summarize reads the ends of a file.
func summarize(path string) summary {
	var s summary
	var first, given string
	scan := func(b []byte) {
		for line := range bytes.Lines(b) {
			e := new(entry)
			if json.Unmarshal(line, e) != nil {
				continue
			}
			switch e.Type {
			case "session":
				s.id, s.cwd = e.ID, e.Cwd
			case "session_info":
				given = e.Name
			case "message":
				m := decodeMessage(e.Message)
				if m == nil || m.Role != "user" {
					continue
				}
				s.prompts = true
				if first == "" {
					first = bridge.TitleOf(plain(blocksOf(m.Content)))
				}
			}
		}
	}
	if bridge.Ends(path, scan) {
		s.prompts = true
	}
	s.title = bridge.FirstOf(given, first)
	return s
}

// ListSessions lists Pi's conversations, those that were held in a terminal too.
// The latter are marked as native.
func (a *agent) ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	cwd, after := "", ""
	if r.Cwd != nil {
		cwd = *r.Cwd
	}
	if r.Cursor != nil {
		after = *r.Cursor
	}
	ours := map[string]string{} // by file
	left := map[string]bool{}   // by file
	for id, known := range a.store.All() {
		if !known.Made {
			continue
		}
		if !known.Theirs {
			ours[known.File] = id
		}
		for _, file := range known.Left {
			left[file] = true
		}
	}
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}}
	var last string
	for _, h := range a.files.list() {
		if after != "" && h.key() >= after {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if left[h.path] { // it was a session's that is another one now
			continue
		}
		s := summarize(h.path)
		if !s.prompts || s.cwd == "" || !idForm.MatchString(s.id) || cwd != "" && !bridge.SameDir(s.cwd, cwd) {
			continue
		}
		if len(out.Sessions) == pageSize {
			out.NextCursor = &last
			break
		}
		id, known := ours[h.path]
		info := schema.SessionInfo{SessionID: schema.SessionID(bridge.FirstOf(id, s.id)), Cwd: s.cwd, UpdatedAt: new(h.changed.UTC().Format(time.RFC3339))}
		if s.title != "" {
			info.Title = &s.title
		}
		info.Meta = bridge.Meta(map[string]bool{"native": !known})
		out.Sessions = append(out.Sessions, info)
		last = h.key()
	}
	return out, nil
}
