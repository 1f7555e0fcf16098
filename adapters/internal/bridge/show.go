package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const titleLength = 80

// Meta is a _meta with one member, the gateway's.
func Meta(v any) map[string]json.RawMessage {
	b, err := schema.Encode(v)
	if err != nil {
		return nil
	}
	return map[string]json.RawMessage{acp.MetaKey: b}
}

// TextContent is a tool call's content that is a text.
func TextContent(s string) []schema.ToolCallContent {
	return []schema.ToolCallContent{{Content: &schema.Content{Content: schema.TextBlock(s)}}}
}

// DiffContent is a tool call's content that is a change of a file; before is nil
// for a new one.
func DiffContent(path string, before *string, after string) []schema.ToolCallContent {
	return []schema.ToolCallContent{{Diff: &schema.Diff{Path: path, OldText: before, NewText: after}}}
}

// At is a place in a file, with line 0 for the file. A path that is not absolute
// is none.
func At(path string, line uint32) []schema.ToolCallLocation {
	if !filepath.IsAbs(path) {
		return nil
	}
	l := schema.ToolCallLocation{Path: path}
	if line > 0 {
		l.Line = &line
	}
	return []schema.ToolCallLocation{l}
}

// Fenced shows output of a program as it is.
func Fenced(s, language string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + language + "\n" + strings.TrimRight(s, "\n") + "\n" + fence
}

// OneLine shortens a text for a title.
func OneLine(s string) string {
	const most = 200
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// CallID is the id by which the n-th call with an id is shown: models use one
// again, and clients know a call by it.
func CallID(id string, n int) schema.ToolCallID {
	if n > 1 {
		id += "-" + strconv.Itoa(n)
	}
	return schema.ToolCallID(id)
}

// TitleOf makes a session's title of a prompt: its first line, shortened.
func TitleOf(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.TrimSpace(line)
	if r := []rune(line); len(r) > titleLength {
		line = string(r[:titleLength-1]) + "…"
	}
	return line
}

// Link is a resource as text.
func Link(name, uri string) string {
	if name == "" {
		name = uri[strings.LastIndexByte(strings.TrimRight(uri, "/"), '/')+1:]
	}
	return "[@" + name + "](" + uri + ")"
}

// FirstOf returns the first text that is not empty.
func FirstOf(a ...string) string {
	for _, s := range a {
		if s != "" {
			return s
		}
	}
	return ""
}

// Capped shortens a text to about limit bytes by leaving out its middle.
func Capped(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, tail := limit/2, len(s)-limit/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", s[:head], tail-head, s[tail:])
}

// entitled tells a session's title, taken from its first prompt. There is none
// when the prompt has no words.
func entitled(prompt []schema.ContentBlock) []schema.SessionUpdate {
	for _, b := range prompt {
		if b.Text == nil {
			continue
		}
		if title := TitleOf(b.Text.Text); title != "" {
			now := time.Now().UTC().Format(time.RFC3339)
			return []schema.SessionUpdate{{SessionInfoUpdate: &schema.SessionInfoUpdate{Title: &title, UpdatedAt: &now}}}
		}
	}
	return nil
}

// NotFound says that a session does not exist.
func NotFound(id schema.SessionID) *acp.Error {
	return acp.Errorf(acp.CodeResourceNotFound, "session not found: %s", id).WithData(map[string]string{"type": adapters.ErrorType("session_not_found"), "uri": "session:" + string(id)})
}

// IsNotFound reports whether err says that there is no such session. Any other error may
// pass, and the conversation is there.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*acp.Error](err)
	return ok && e.Code == acp.CodeResourceNotFound
}

// CanList returns why a folder cannot be looked through, in which a conversation may be; nil also where there is none.
func CanList(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a conversation: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Readdirnames(1); err != nil && err != io.EOF {
		return fmt.Errorf("look for a conversation: %w", err)
	}
	return nil
}

// Notice shows what an agent reports beside the conversation. Clients that do not know
// notices get the important ones in words, see package acp/version.
func Notice(severity schema.NoticeSeverity, title, description string) []schema.SessionUpdate {
	n := &schema.Notice{Severity: severity, Title: title}
	if description != "" && description != title {
		n.Description = &description
	}
	return []schema.SessionUpdate{{Notice: n}}
}

// Title is what is known of a session's title. The zero value has none. It is
// safe for concurrent use.
type Title struct{ given atomic.Bool }

// Given says that the session has a title, if it has.
func (t *Title) Given(has bool) {
	if has {
		t.given.Store(true)
	}
}

// Of tells the title of a session that has none: its first prompt makes it.
func (t *Title) Of(prompt []schema.ContentBlock) []schema.SessionUpdate {
	if t.given.Swap(true) {
		return nil
	}
	return entitled(prompt)
}

// Tell sends updates of a session. It fails only when the connection has ended,
// which others notice.
func Tell(ctx context.Context, p acp.Peer, log *slog.Logger, id schema.SessionID, updates []schema.SessionUpdate) {
	for _, u := range updates {
		if err := p.Update(ctx, id, u); err != nil {
			log.Debug("send an update", "session", id, "err", err)
		}
	}
}

// TellUnparsed reports a line of the agent that is no message.
func TellUnparsed(ctx context.Context, p acp.Peer, log *slog.Logger, line []byte, reason error) {
	m := ndjson.Unparsed(line, reason)
	if err := p.Notify(ctx, m.Method(), m.Params()); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		log.Debug("report a line that is no message", "err", err)
	}
}
