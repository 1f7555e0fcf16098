package amp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	pageSize = 50
	// maxThread bounds the copies of threads that are read; larger ones are
	// listed without a title, and not replayed.
	maxThread = 256 << 20
)

// thread is the program's copy of a conversation, one file each.
type thread struct {
	ID       string       `json:"id"`
	Title    string       `json:"title"`
	Main     string       `json:"mainThreadID"` // of which this is a subagent's
	Messages []threadPart `json:"messages"`
	Env      struct {
		Initial struct {
			Trees []struct {
				URI string `json:"uri"`
			} `json:"trees"`
		} `json:"initial"`
	} `json:"env"`
}

// threadPart is a message of a thread.
type threadPart struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Meta    struct {
		SentAt int64 `json:"sentAt"` // milliseconds since 1970, of a prompt
	} `json:"meta"`
	State struct {
		Type  string `json:"type"`
		Stop  string `json:"stopReason"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"state"`
}

// cwd is the folder that a thread was held in, "" when unknown.
func (t *thread) cwd() string {
	if len(t.Env.Initial.Trees) == 0 {
		return ""
	}
	u, err := url.Parse(t.Env.Initial.Trees[0].URI)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	return u.Path
}

// first is the first prompt.
func (t *thread) first() string {
	for _, m := range t.Messages {
		if m.Role != "user" {
			continue
		}
		for _, b := range blocksOf(m.Content) {
			if b.Type == "text" {
				return b.Text
			}
		}
	}
	return ""
}

func (a *agent) threadFile(id string) string {
	return filepath.Join(bridge.DataDir(a.environ(), ID), "threads", id+".json")
}

// readThread reads a copy; nil when there is none.
func readThread(path string) (*thread, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() > maxThread {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read amp's copy of a thread: %w", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read amp's copy of a thread: %w", err)
	}
	t := new(thread)
	if err := bridge.Lenient(b, t); err != nil {
		return nil, fmt.Errorf("read amp's copy of a thread: %w", err)
	}
	return t, nil
}

// overtaken reports whether somebody else has gone on with the thread, in a terminal, since
// the process did something: then the copy has a prompt that the process does not know.
func (s *session) overtaken() bool {
	s.mu.Lock()
	p, path := s.p, s.a.threadFile(s.thread)
	idle := p != nil && !p.over
	var heard time.Time
	if idle {
		heard = p.heard
	}
	s.mu.Unlock()
	if !idle || s.turnOf(p) != nil || !bridge.Written(path).After(heard) {
		return false
	}
	t, err := readThread(path)
	return err == nil && t != nil && slices.ContainsFunc(t.Messages, func(m threadPart) bool { return m.Meta.SentAt > heard.UnixMilli() })
}

// cutReason says why the newest message was cut short, "" when nobody knows. It is
// not known yet while the copy was not written since the prompt was given, or ends
// with another message: then it tells of the turn before.
func (s *session) cutReason(given time.Time) (reason string, known bool) {
	s.mu.Lock()
	path := s.a.threadFile(s.thread)
	s.mu.Unlock()
	const coarse = 10 * time.Millisecond // by which a file's time may be early
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Before(given.Add(-coarse)) {
		return "", false
	}
	t, err := readThread(path)
	if err != nil || t == nil || len(t.Messages) == 0 {
		return "", false
	}
	last := t.Messages[len(t.Messages)-1]
	return last.State.Error.Message, last.Role == "assistant" && last.State.Type != "streaming"
}

// replay sends what was said in the thread, as far as its copy knows.
func (s *session) replay() error {
	t, err := readThread(s.a.threadFile(s.thread))
	if err != nil {
		return err
	}
	if t == nil {
		s.l.Cannot("replay", "amp keeps no copy of this thread on this machine")
		return nil
	}
	for _, m := range t.Messages {
		s.emit(func(tr *translator) []schema.SessionUpdate { return tr.past(&m) })
	}
	s.emit(func(tr *translator) []schema.SessionUpdate { return tr.abandoned(false) })
	return nil
}

// past translates a message of a copy.
func (t *translator) past(m *threadPart) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	e := &event{Type: m.Role, Message: message{Content: m.Content}}
	switch m.Role {
	case "assistant":
		out = t.assistant(e)
	case "user":
		id := schema.MessageID(t.mint())
		for _, raw := range rawjson.Elements(m.Content) {
			switch rawjson.MemberString(raw, "type") {
			case "text":
				u := schema.UserMessage(schema.TextBlock(rawjson.MemberString(raw, "text")))
				u.UserMessageChunk.MessageID = id
				out = append(out, u)
			case "tool_result":
				b := pastResult(raw)
				out = append(out, t.ended(&b)...)
			}
		}
	}
	return out
}

// pastResult is a result of a copy in the form that it has on the wire.
func pastResult(raw json.RawMessage) block {
	var r struct {
		ID  string `json:"toolUseID"`
		Run struct {
			Status string          `json:"status"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
			Reason string          `json:"reason"`
		} `json:"run"`
	}
	_ = bridge.Lenient(raw, &r) // then it belongs to no call
	b := block{Type: "tool_result", ToolUseID: r.ID, IsError: r.Run.Status != "done"}
	text := ""
	switch {
	case r.Run.Status == "done":
		text = bridge.FirstOf(bridge.Text(r.Run.Result), string(r.Run.Result))
	case len(r.Run.Error) > 0:
		text = bridge.FirstOf(bridge.Text(r.Run.Error), rawjson.MemberString(r.Run.Error, "message"))
	default:
		text = bridge.FirstOf(r.Run.Reason, r.Run.Status)
	}
	b.Content = quoted(text)
	return b
}

// held is a copy in a listing.
type held struct {
	id, path string
	changed  time.Time
}

// key orders threads, newest first; it is the cursor behind one.
func (h held) key() string { return fmt.Sprintf("%020d-%s", h.changed.UnixNano(), h.id) }

// ListSessions lists the threads that the program has copies of. Those that were
// not made here are marked as native.
func (a *agent) ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	var all []held
	found, _ := filepath.Glob(a.threadFile("T-*"))
	for _, f := range found {
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		if info, err := os.Stat(f); err == nil && isThread(id) {
			all = append(all, held{id, f, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(b.key(), a.key()) })
	ours := map[string]string{}
	for id, r := range a.store.All() {
		ours[r.Thread] = id
	}
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}}
	last := ""
	for _, h := range all {
		if r.Cursor != nil && h.key() >= *r.Cursor {
			continue
		}
		if len(out.Sessions) == pageSize {
			out.NextCursor = &last
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, err := readThread(h.path)
		if err != nil || t == nil || t.Main != "" || t.cwd() == "" || len(t.Messages) == 0 || r.Cwd != nil && t.cwd() != filepath.Clean(*r.Cwd) {
			continue
		}
		id, made := ours[h.id]
		info := schema.SessionInfo{SessionID: schema.SessionID(bridge.FirstOf(id, h.id)), Cwd: t.cwd(), UpdatedAt: new(h.changed.UTC().Format(time.RFC3339))}
		if title := bridge.FirstOf(t.Title, bridge.TitleOf(t.first())); title != "" {
			info.Title = &title
		}
		info.Meta = bridge.Meta(map[string]bool{"native": !made})
		out.Sessions = append(out.Sessions, info)
		last = h.key()
	}
	return out, nil
}
