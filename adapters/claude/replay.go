package claude

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// entry is a line of a transcript.
type entry struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	UUID      string          `json:"uuid"`
	Parent    string          `json:"parentUuid"`
	Logical   string          `json:"logicalParentUuid"` // where the conversation was compacted
	Source    string          `json:"sourceToolAssistantUUID"`
	Sidechain bool            `json:"isSidechain"`
	Meta      bool            `json:"isMeta"`
	Compact   bool            `json:"isCompactSummary"`
	Cwd       string          `json:"cwd"`
	Error     string          `json:"error"`
	APIError  bool            `json:"isApiErrorMessage"`
	Message   json.RawMessage `json:"message"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"toolUseResult"`

	CustomTitle string `json:"customTitle"`
	AITitle     string `json:"aiTitle"`
	Summary     string `json:"summary"`
}

// spoken reports whether the entry is part of what was said.
func (e *entry) spoken() bool { return e.Type == "user" || e.Type == "assistant" }

// prompt is what the user said, as it was typed.
func (e *entry) prompt() string {
	if e.Meta || e.Compact || e.Sidechain {
		return ""
	}
	m := (&event{Message: e.Message}).message()
	if m == nil {
		return ""
	}
	var parts []string
	for _, b := range blocks(m.Content) {
		if b.Type == "text" {
			parts = append(parts, typed(b.Text))
		}
	}
	return strings.TrimSpace(strings.Join(parts, "\n"))
}

// typed turns the text of an entry into what the user typed, "" when the program
// wrote it.
func typed(s string) string {
	trimmed := strings.TrimSpace(s)
	switch {
	case strings.HasPrefix(trimmed, "<command-name>"), strings.HasPrefix(trimmed, "<command-message>"):
		return strings.TrimSpace(tagged(s, "command-name") + " " + tagged(s, "command-args"))
	case strings.HasPrefix(trimmed, "<local-command-"), strings.HasPrefix(trimmed, "<task-notification"),
		strings.HasPrefix(trimmed, "[Request interrupted"), strings.HasPrefix(trimmed, "<system-reminder>"):
		return ""
	}
	return s
}

// tagged returns what stands between a pair of tags.
func tagged(s, tag string) string {
	_, rest, ok := strings.Cut(s, "<"+tag+">")
	if !ok {
		return ""
	}
	inner, _, _ := strings.Cut(rest, "</"+tag+">")
	return strings.TrimSpace(inner)
}

// conversation returns the numbers of the lines that belong to the conversation
// as it ended: not what was said in branches that were given up.
func conversation(path string) (map[int]bool, error) {
	type link struct {
		line            int
		parent, logical string
		message         string // of the API, which has several entries
	}
	links := map[string]link{}
	results := map[string][]int{}  // of calls, by the entry that made them
	parts := map[string][]string{} // entries by the API's message
	last := ""
	err := bridge.EachEntry(path, func(n int, e *entry) error {
		if e.UUID == "" {
			return nil
		}
		l := link{line: n, parent: e.Parent, logical: e.Logical}
		if e.Type == "assistant" {
			l.message = bridge.FirstOf(rawjson.MemberString(e.Message, "id"), e.UUID)
			parts[l.message] = append(parts[l.message], e.UUID)
		}
		links[e.UUID] = l
		if e.Type == "user" && len(e.Output) > 0 {
			by := bridge.FirstOf(e.Source, e.Parent)
			results[by] = append(results[by], n)
		}
		if e.spoken() && !e.Sidechain {
			last = e.UUID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	wanted, been := map[int]bool{}, map[string]bool{}
	for id := last; id != ""; {
		l, ok := links[id]
		if !ok || been[id] {
			break
		}
		been[id], wanted[l.line] = true, true
		// Of calls in parallel only one, or its result alone, is an ancestor of
		// what follows.
		for _, part := range slices.Concat(parts[l.message], []string{id}) {
			wanted[links[part].line] = true
			for _, line := range results[part] {
				wanted[line] = true
			}
		}
		id = bridge.FirstOf(l.parent, l.logical)
	}
	return wanted, nil
}

// replay sends what was said in a conversation as updates.
func (s *session) replay(path string) error {
	return replayFile(path, func(f func(t *translator) []schema.SessionUpdate) { s.emit(f) })
}

// replayFile translates a transcript, subagents' own files included.
func replayFile(path string, emit func(func(t *translator) []schema.SessionUpdate)) error {
	wanted, err := conversation(path)
	if err != nil {
		return err
	}
	agents := subagents(strings.TrimSuffix(path, ".jsonl"))
	err = bridge.EachEntry(path, func(n int, e *entry) error {
		if !wanted[n] {
			return nil
		}
		emit(func(t *translator) []schema.SessionUpdate { return t.entry(e, "") })
		for _, call := range calls(e) {
			file := agents[call]
			if file == "" {
				continue
			}
			delete(agents, call)
			err := bridge.EachEntry(file, func(_ int, e *entry) error {
				emit(func(t *translator) []schema.SessionUpdate { return t.entry(e, call) })
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	emit(func(t *translator) []schema.SessionUpdate { return t.leftOpen() })
	return nil
}

// calls returns the ids of the calls that an entry makes.
func calls(e *entry) []string {
	if e.Type != "assistant" {
		return nil
	}
	m := (&event{Message: e.Message}).message()
	if m == nil {
		return nil
	}
	var ids []string
	for _, b := range blocks(m.Content) {
		if b.Type == "tool_use" {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// subagents returns the transcripts of subagents by the calls they worked for.
func subagents(dir string) map[string]string {
	out := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(dir, "subagents", "agent-*.meta.json"))
	for _, f := range found {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		file := strings.TrimSuffix(f, ".meta.json") + ".jsonl"
		if _, err := os.Stat(file); err != nil {
			continue // the program had not written it yet
		}
		if call := rawjson.MemberString(b, "toolUseId"); call != "" {
			out[call] = file
		}
	}
	return out
}

// entry translates an entry. parent is the call that a subagent works for.
func (t *translator) entry(e *entry, parent string) []schema.SessionUpdate {
	ev := &event{Type: e.Type, UUID: e.UUID, Parent: parent, Message: e.Message, Error: e.Error, Output: e.Output}
	if e.Meta || e.Compact || e.Sidechain && parent == "" {
		return nil
	}
	switch {
	case e.Type == "assistant":
		if e.APIError && ev.Error == "" {
			ev.Error = "unknown"
		}
		return t.assistant(ev)
	case e.Type == "user":
		out := t.user(ev)
		if parent == "" {
			out = append(out, t.prompted(ev)...)
		}
		return out
	case e.Type == "system" && e.Subtype == "local_command":
		s := bridge.Text(e.Content)
		if shown := tagged(s, "local-command-stdout"); shown != "" {
			return []schema.SessionUpdate{t.chunk(schema.AgentMessage(schema.TextBlock(shown)), e.UUID)}
		}
		if s = strings.TrimSpace(typed(s)); s != "" {
			return []schema.SessionUpdate{t.chunk(schema.UserMessage(schema.TextBlock(s)), e.UUID)}
		}
	}
	return nil
}

// prompted shows what the user said.
func (t *translator) prompted(e *event) []schema.SessionUpdate {
	m := e.message()
	if m == nil {
		return nil
	}
	var out []schema.SessionUpdate
	for _, b := range blocks(m.Content) {
		switch {
		case b.Type == "text":
			if s := typed(b.Text); strings.TrimSpace(s) != "" {
				out = append(out, t.chunk(schema.UserMessage(schema.TextBlock(s)), e.UUID))
			}
		case b.Type == "image" && b.Source != nil && b.Source.Type == "base64":
			image := schema.ContentBlock{Image: &schema.ImageContent{Data: b.Source.Data, MimeType: b.Source.MediaType}}
			out = append(out, t.chunk(schema.UserMessage(image), e.UUID))
		}
	}
	return out
}

// leftOpen ends the calls that had no end when the conversation was left.
func (t *translator) leftOpen() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		if c := t.tools[id]; !c.over && c.shown {
			c.end()
			out = append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusFailed}})
		}
	}
	clear(t.tasks)
	return out
}
