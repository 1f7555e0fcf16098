package opencode

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// Tools that are shown in a way of their own.
const (
	toolTask    = "task"
	toolTodo    = "todowrite"
	toolInvalid = "invalid"
	toolBash    = "bash"
)

const (
	// showEvery is the least time between two looks at a command's output, in ms.
	showEvery = 100
	// maxOutput bounds the output that is shown of a call: the middle is left out.
	maxOutput = 64 << 10
)

// look is how a call is shown.
type look struct {
	title     string
	kind      schema.ToolKind
	content   []schema.ToolCallContent // before there is a result
	locations []schema.ToolCallLocation
}

// input has the members of tools' inputs that matter.
type input struct {
	Command     string `json:"command"`
	Description string `json:"description"`
	Path        string `json:"path"`
	FilePath    string `json:"filePath"`
	Pattern     string `json:"pattern"`
	URL         string `json:"url"`
	Query       string `json:"query"`
	Content     string `json:"content"`
	Offset      uint32 `json:"offset"`
	Prompt      string `json:"prompt"`
	Subagent    string `json:"subagent_type"`
	Name        string `json:"name"`
	Tool        string `json:"tool"`  // of invalid
	Error       string `json:"error"` // of invalid
	Patch       string `json:"patchText"`
	Workdir     string `json:"workdir"` // of a command
}

// metadata has the members of tools' metadata that matter.
type metadata struct {
	Output  string          `json:"output"` // of a command, all of it so far
	Exit    *int            `json:"exit"`
	Diff    string          `json:"diff"`
	Exists  *bool           `json:"exists"` // of a file that is written
	Session string          `json:"sessionId"`
	Display json.RawMessage `json:"display"`
	// Of a permission.
	FilePath string `json:"filepath"`
	Command  string `json:"command"`
	Parent   string `json:"parentDir"`
}

func decoded[T any](raw json.RawMessage) T {
	var v T
	_ = bridge.Lenient(raw, &v) // what cannot be read is not there
	return v
}

// absolute is a path as clients want it.
func (t *translator) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(t.cwd, path)
}

// describe says how a call is shown.
func (t *translator) describe(tool string, raw json.RawMessage) look {
	in := decoded[input](raw)
	l := look{title: tool, kind: schema.ToolKindOther}
	titled := func(s ...string) {
		l.title = bridge.OneLine(bridge.FirstOf(append(s, l.title)...))
	}
	file := t.absolute(in.FilePath)
	switch tool {
	case toolBash:
		l.kind = schema.ToolKindExecute
		titled(in.Command, in.Description, "Command")
		if in.Description != "" && in.Command != "" && in.Description != in.Command {
			l.content = bridge.TextContent(in.Description)
		}
	case "read":
		l.kind = schema.ToolKindRead
		titled(in.FilePath, "Read")
		l.locations = bridge.At(file, in.Offset)
	case "edit", "write", "apply_patch", "multiedit", "patch":
		l.kind = schema.ToolKindEdit
		titled(in.FilePath, "Edit")
		l.locations = bridge.At(file, 0)
		if in.Patch != "" {
			l.content = bridge.TextContent(bridge.Fenced(in.Patch, "diff"))
		}
	case "list", "glob", "grep", "codesearch":
		l.kind = schema.ToolKindSearch
		titled(in.Pattern, in.Query, in.Path, "Search")
		l.locations = bridge.At(t.absolute(in.Path), 0)
	case "webfetch", "websearch":
		l.kind = schema.ToolKindFetch
		titled(in.URL, in.Query, "Fetch")
	case toolTask:
		l.kind = schema.ToolKindThink
		titled(in.Description, "Subagent")
		if in.Prompt != "" {
			l.content = bridge.TextContent(in.Prompt)
		}
	case "question":
		titled("Question")
	case "skill":
		l.kind = schema.ToolKindRead
		if in.Name != "" {
			titled("Skill " + in.Name)
		}
	case toolInvalid:
		if in.Tool != "" {
			titled(in.Tool)
		}
	}
	return l
}

// called takes a call as a whole.
func (t *translator) called(p *part, at int64) []schema.SessionUpdate {
	if p.Tool == toolTodo && p.Session == t.root && p.State.Status != "error" {
		return nil // the plan shows it
	}
	s := t.parts[p.ID]
	first := s == nil
	if first {
		s = t.remember(p)
		t.calls[p.Message+" "+p.Call] = p.ID
	}
	if s.over {
		return nil
	}
	if p.Tool == toolTask {
		if id := decoded[metadata](p.State.Metadata).Session; id != "" && len(t.children) < maxChildren {
			if t.children[id] == nil {
				t.children[id] = &child{parent: p.Session}
			}
			t.children[id].call = p.ID
		}
	}
	var out []schema.SessionUpdate
	s.tool = p.Tool
	s.look = t.describe(p.Tool, p.State.Input)
	if first {
		out = t.announce(s, p.State)
		if p.State.Status == "pending" {
			return out
		}
	}
	switch p.State.Status {
	case "running":
		u := t.update(s, schema.ToolCallStatusInProgress)
		t.detail(s, u, p.State)
		t.lookBefore(s, p.State)
		output := decoded[metadata](p.State.Metadata).Output
		if p.Tool == toolBash && output != "" {
			s.output = output
		}
		t.goesOn(s, u)
		if p.Tool == toolBash && output != "" {
			if s.at != 0 && at-s.at < showEvery {
				if !slices.Contains(t.dirty, p.ID) {
					t.dirty = append(t.dirty, p.ID)
				}
				return out
			}
			s.at = at
		}
		return append(out, t.fresh(s, u)...)
	case "completed":
		s.over = true
		u := t.update(s, schema.ToolCallStatusCompleted)
		t.detail(s, u, p.State)
		t.result(s, u, p.State)
		return append(out, schema.SessionUpdate{ToolCallUpdate: u})
	case "error":
		s.over = true
		u := t.update(s, schema.ToolCallStatusFailed)
		t.detail(s, u, p.State)
		u.Content = slices.Concat(s.hunks, bridge.TextContent(bridge.FirstOf(bridge.Capped(p.State.Error, maxOutput), "It failed without a reason.")))
		return append(out, schema.SessionUpdate{ToolCallUpdate: u})
	}
	return out
}

// announce shows a call for the first time.
func (t *translator) announce(s *shown, st *toolState) []schema.SessionUpdate {
	l, own := s.look, t.own(s.session)
	if s.tool == toolTask {
		own.Subagent = &bridge.Subagent{Cancel: true}
	}
	if s.tool == toolBash && !empty(st.Input) {
		own.Terminal = t.command(st.Input)
	}
	c := &schema.ToolCall{
		ToolCallID: schema.ToolCallID(s.id), Title: l.title, Name: &s.tool, Kind: l.kind, Status: schema.ToolCallStatusPending,
		Content: l.content, Locations: l.locations, Meta: own.Meta(),
	}
	if !empty(st.Input) {
		c.RawInput = st.Input
	}
	return []schema.SessionUpdate{{ToolCall: c}}
}

func empty(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("{}")) || bytes.Equal(raw, []byte("null"))
}

func (t *translator) update(s *shown, status schema.ToolCallStatus) *schema.ToolCallUpdate {
	return &schema.ToolCallUpdate{ToolCallID: schema.ToolCallID(s.id), Status: status, Meta: t.parentMeta(s.session)}
}

// detail adds what is known of a call once its input is, unless it was said.
func (t *translator) detail(s *shown, u *schema.ToolCallUpdate, st *toolState) {
	now := s.tool + s.look.title + string(st.Input)
	if now == s.told {
		return
	}
	s.told = now
	u.Title, u.Kind, u.Locations = &s.look.title, s.look.kind, s.look.locations
	if !empty(st.Input) {
		u.RawInput = st.Input
	}
}

// fresh returns an update unless it says what was said already.
func (t *translator) fresh(s *shown, u *schema.ToolCallUpdate) []schema.SessionUpdate {
	b, err := schema.Encode(u)
	if err != nil || string(b) == s.last {
		return nil
	}
	s.last = string(b)
	return []schema.SessionUpdate{{ToolCallUpdate: u}}
}

// content is what is shown of a call that goes on.
func (s *shown) content() []schema.ToolCallContent {
	out := append(s.look.content[:len(s.look.content):len(s.look.content)], s.hunks...)
	if s.output != "" {
		out = append(out, shownOutput(bridge.Capped(s.output, maxOutput))...)
	}
	if s.words.Len() > 0 {
		out = append(out, bridge.TextContent(s.words.String())...)
	}
	return out
}

// goesOn shows what there is of a call that has no result.
func (t *translator) goesOn(s *shown, u *schema.ToolCallUpdate) {
	u.Content = s.content()
	t.terminal(s, u, bridge.Terminal{Output: s.output != ""})
}

// command is the command that a call's input asks for.
func (t *translator) command(raw json.RawMessage) *bridge.Terminal {
	in := decoded[input](raw)
	return &bridge.Terminal{Command: in.Command, Cwd: t.absolute(bridge.FirstOf(in.Workdir, t.cwd))}
}

// terminal says what an update tells of the command that its call runs, if it runs one.
func (t *translator) terminal(s *shown, u *schema.ToolCallUpdate, about bridge.Terminal) {
	if s.tool != toolBash {
		return
	}
	if u.RawInput != nil {
		known := t.command(u.RawInput)
		about.Command, about.Cwd = known.Command, known.Cwd
	}
	if about != (bridge.Terminal{}) {
		own := t.own(s.session)
		own.Terminal = &about
		u.Meta = own.Meta()
	}
}

// showOutputs shows the output that came since it was shown last.
func (t *translator) showOutputs() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.dirty {
		s := t.parts[id]
		if s == nil || s.over {
			continue
		}
		u := t.update(s, schema.ToolCallStatusInProgress)
		t.goesOn(s, u)
		out = append(out, schema.SessionUpdate{ToolCallUpdate: u})
	}
	t.dirty = nil
	return out
}

// result shows what a call has brought.
func (t *translator) result(s *shown, u *schema.ToolCallUpdate, st *toolState) {
	meta := decoded[metadata](st.Metadata)
	in := decoded[input](st.Input)
	output := bridge.Capped(st.Output, maxOutput)
	u.Content = nil
	replaced := false
	switch s.tool {
	case toolBash:
		u.Content = s.look.content
		if output != "" {
			u.Content = append(u.Content[:len(u.Content):len(u.Content)], shownOutput(output)...)
		}
		raw := map[string]any{"exitCode": meta.Exit}
		if meta.Exit == nil || *meta.Exit != 0 {
			u.Status = schema.ToolCallStatusFailed // it ended so, or did not end by itself
		}
		u.RawOutput = encoded(raw)
		t.terminal(s, u, bridge.Terminal{Output: output != "", ExitCode: meta.Exit})
	case "read":
		text := rawjson.MemberString(meta.Display, "text")
		if text != "" {
			u.Content = bridge.TextContent(bridge.Fenced(bridge.Capped(text, maxOutput), ""))
		} else if output != "" && len(st.Attachments) == 0 {
			u.Content = bridge.TextContent(output)
		}
	case "edit", "apply_patch", "multiedit", "patch":
		if hunks := diffOf(t.absolute(bridge.FirstOf(in.FilePath, meta.FilePath)), meta.Diff); len(hunks) > 0 {
			u.Content = hunks
		} else {
			u.Content = slices.Concat(s.hunks, bridge.TextContent(output))
		}
	case "write":
		path := t.absolute(in.FilePath)
		hunks := diffOf(path, meta.Diff)
		switch {
		case len(hunks) > 0:
			u.Content = hunks
		case len(s.hunks) > 0:
			u.Content = s.hunks
		default:
			// Of a file that was there, the old text is not known yet.
			u.Content = bridge.DiffContent(path, nil, in.Content)
			switch {
			case meta.Exists == nil || !*meta.Exists:
			case s.before != nil:
				u.Content = bridge.DiffContent(path, s.before, in.Content)
			default:
				u.Content = append(bridge.TextContent("Replaced the whole file."), u.Content...)
				replaced = true
			}
		}
	case toolTask:
		text := output
		if _, rest, ok := strings.Cut(text, "<task_result>"); ok {
			text, _, _ = strings.Cut(rest, "</task_result>")
		}
		u.Content = append(s.look.content[:len(s.look.content):len(s.look.content)], bridge.TextContent(strings.TrimSpace(text))...)
	case toolInvalid:
		u.Status = schema.ToolCallStatusFailed
		u.Content = bridge.TextContent(bridge.FirstOf(output, in.Error, "The call was not valid."))
	default:
		if output != "" {
			u.Content = bridge.TextContent(output)
		}
	}
	t.changes.note(s, t.absolute(bridge.FirstOf(in.FilePath, meta.FilePath)), replaced)
	for _, a := range st.Attachments {
		mime, data, ok := strings.Cut(strings.TrimPrefix(a.URL, "data:"), ";base64,")
		if ok && strings.HasPrefix(mime, "image/") {
			u.Content = append(u.Content, schema.ToolCallContent{Content: &schema.Content{Content: schema.ContentBlock{Image: &schema.ImageContent{Data: data, MimeType: mime}}}})
		}
	}
}

// diffOf shows a unified diff as changes of a file.
func diffOf(path, diff string) []schema.ToolCallContent {
	var out []schema.ToolCallContent
	for _, h := range bridge.Hunks(diff) {
		before := &h.Before
		if *before == "" && strings.Contains(diff, "@@ -0,0 ") {
			before = nil // a new file
		}
		out = append(out, bridge.DiffContent(path, before, h.After)...)
	}
	return out
}

// shut closes a call that gets no end of its own.
func (t *translator) shut(s *shown) []schema.SessionUpdate {
	s.over = true
	u := t.update(s, schema.ToolCallStatusFailed)
	t.goesOn(s, u)
	return []schema.SessionUpdate{{ToolCallUpdate: u}}
}

// own says whose subagent makes a call.
func (t *translator) own(session string) bridge.Own {
	return bridge.Own{Parent: t.parent(session)}
}

func (t *translator) parentMeta(session string) map[string]json.RawMessage {
	return t.own(session).Meta()
}

func encoded(v any) json.RawMessage {
	b, err := schema.Encode(v)
	if err != nil {
		return nil
	}
	return b
}
