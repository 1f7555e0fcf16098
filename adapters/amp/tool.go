package amp

import (
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxWholeFile bounds the files that a diff shows whole. Of larger ones it shows
// the changed place.
const maxWholeFile = 256 << 10

const (
	toolTask = "Task" // runs a subagent
	toolBash = "Bash" // runs a command
)

// Tools by what they can do. Others are of no kind that is known.
var (
	reads    = []string{"Read", "Grep", "glob", "Glob", "finder", "get_diagnostics", "oracle", "librarian", "mermaid", "skill", "look_at", "find_thread", "read_thread", "web_search", "read_web_page", "task_list", toolTask}
	edits    = []string{"create_file", "edit_file", "undo_edit", "delete_file", "format_file", "apply_patch"}
	searches = []string{"Grep", "glob", "Glob", "finder", "find_thread", "web_search", "librarian"}
)

// look is how a call is shown.
type look struct {
	title     string
	kind      schema.ToolKind
	content   []schema.ToolCallContent
	locations []schema.ToolCallLocation
}

// input has the members of the tools' inputs that are shown.
type input struct {
	Command     string   `json:"cmd"`
	Cwd         string   `json:"cwd"` // of a command
	Path        string   `json:"path"`
	Range       []uint32 `json:"read_range"`
	Content     string   `json:"content"`
	Old         string   `json:"old_str"`
	New         string   `json:"new_str"`
	All         bool     `json:"replace_all"`
	Pattern     string   `json:"pattern"`
	FilePattern string   `json:"filePattern"`
	Query       string   `json:"query"`
	Objective   string   `json:"objective"`
	URL         string   `json:"url"`
	Description string   `json:"description"`
	Prompt      string   `json:"prompt"`
	Task        string   `json:"task"`
	Title       string   `json:"title"`
	Action      string   `json:"action"`
	Name        string   `json:"name"`
}

// describe says how a call is shown; before is the text of the file that it will
// change, when known.
func describe(name string, raw json.RawMessage, before *string) look {
	var in input
	_ = bridge.Lenient(raw, &in) // what cannot be read is not shown
	l := look{title: name, kind: schema.ToolKindOther}
	titled := func(s string) {
		if s = bridge.OneLine(s); s != "" {
			l.title = s
		}
	}
	if slices.Contains(edits, name) {
		l.kind = schema.ToolKindEdit
	}
	if slices.Contains(searches, name) {
		l.kind = schema.ToolKindSearch
		titled(strings.TrimSpace(name + " " + bridge.FirstOf(in.Pattern, in.FilePattern, in.Query, in.Objective)))
		l.locations = bridge.At(in.Path, 0)
	}
	switch name {
	case toolBash:
		l.kind = schema.ToolKindExecute
		titled(in.Command)
	case "Read", "look_at":
		l.kind = schema.ToolKindRead
		if in.Path != "" {
			titled("Read " + in.Path)
			l.locations = bridge.At(in.Path, 0)
			if len(in.Range) > 0 {
				l.locations = bridge.At(in.Path, in.Range[0])
			}
		}
	case "create_file":
		if in.Path != "" {
			titled("Write " + in.Path)
			l.content, l.locations = bridge.DiffContent(in.Path, before, in.Content), bridge.At(in.Path, 0)
		}
	case "edit_file":
		if in.Path != "" {
			titled("Edit " + in.Path)
			l.content, l.locations = editDiff(&in, before)
		}
	case "undo_edit", "format_file":
		titled(name + " " + in.Path)
		l.locations = bridge.At(in.Path, 0)
	case "delete_file":
		l.kind = schema.ToolKindDelete
		titled("Delete " + in.Path)
		l.locations = bridge.At(in.Path, 0)
	case "read_web_page":
		l.kind = schema.ToolKindFetch
		if in.URL != "" {
			titled("Fetch " + in.URL)
		}
	case toolTask, "oracle":
		l.kind = schema.ToolKindThink
		titled(bridge.FirstOf(in.Description, in.Task))
		if s := bridge.FirstOf(in.Prompt, in.Task); s != "" {
			l.content = bridge.TextContent(s)
		}
	case "task_list":
		l.kind = schema.ToolKindThink
		titled("Tasks: " + strings.TrimSpace(in.Action+" "+in.Title))
	case "skill":
		titled("Skill " + in.Name)
	default:
		if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
			if server, tool, ok := strings.Cut(rest, "__"); ok {
				titled(server + ": " + tool)
			}
		}
	}
	return l
}

// changes returns the path of the file whose text a call replaces, "" for none.
func changes(name string, raw json.RawMessage) string {
	var in input
	if name != "create_file" && name != "edit_file" || bridge.Lenient(raw, &in) != nil {
		return ""
	}
	return in.Path
}

// editDiff shows an edit: of the whole file when it is known and small.
func editDiff(in *input, before *string) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	if before != nil && in.Old != "" {
		if i := strings.Index(*before, in.Old); i >= 0 {
			line := uint32(strings.Count((*before)[:i], "\n") + 1)
			if len(*before) > maxWholeFile {
				return bridge.DiffContent(in.Path, &in.Old, in.New), bridge.At(in.Path, line)
			}
			n := 1
			if in.All {
				n = -1
			}
			return bridge.DiffContent(in.Path, before, strings.Replace(*before, in.Old, in.New, n)), bridge.At(in.Path, line)
		}
	}
	return bridge.DiffContent(in.Path, &in.Old, in.New), bridge.At(in.Path, 0)
}

// output has the members of the tools' structured results that are shown.
type output struct {
	Output   *string `json:"output"`
	ExitCode *int    `json:"exitCode"`
	Content  *string `json:"content"`
	Diff     string  `json:"diff"`
}

// outcome is the update that a call's result means. Results with a structure are
// JSON in a text.
func outcome(c *tool, b *block) *schema.ToolCallUpdate {
	text := b.text()
	u := &schema.ToolCallUpdate{ToolCallID: schema.ToolCallID(c.id), Status: schema.ToolCallStatusCompleted, Meta: c.own().Meta()}
	var o output
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		u.RawOutput = json.RawMessage(text)
		_ = bridge.Lenient(u.RawOutput, &o) // what cannot be read is not shown
	} else if encoded, err := schema.Encode(text); err == nil {
		u.RawOutput = encoded
	}
	if b.IsError {
		u.Status = schema.ToolCallStatusFailed
		u.Content = bridge.TextContent(bridge.Fenced(text, ""))
		return u
	}
	switch c.name {
	case toolBash:
		if o.ExitCode != nil && *o.ExitCode != 0 {
			u.Status = schema.ToolCallStatusFailed
		}
		if o.Output != nil {
			text = *o.Output
		}
		own := c.own()
		own.Terminal = &bridge.Terminal{Output: true, ExitCode: o.ExitCode}
		u.Meta = own.Meta()
		u.Content = bridge.TextContent(bridge.Fenced(text, "console"))
	case "Read":
		if o.Content != nil {
			text = *o.Content
			u.RawOutput = rawjson.DeleteMember(u.RawOutput, "content") // it is shown
		}
		u.Content = bridge.TextContent(bridge.Fenced(text, ""))
	case "create_file": // the diff of the announcement stays
	case "edit_file":
		u.Content, u.Locations = editOutcome(c, o.Diff)
	default:
		u.Content = bridge.TextContent(text)
	}
	return u
}

// editOutcome shows what an edit changed, when the file was not read in time.
func editOutcome(c *tool, diff string) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	var in input
	_ = bridge.Lenient(c.input, &in)
	if c.before != nil && strings.Contains(*c.before, in.Old) || in.Path == "" {
		return nil, nil // the diff of the announcement stays
	}
	var out []schema.ToolCallContent
	line := uint32(0)
	diff = strings.TrimSuffix(strings.TrimSuffix(diff, "```"), "\n")
	for _, h := range bridge.Hunks(diff) {
		if line == 0 {
			line = h.Line
		}
		out = append(out, bridge.DiffContent(in.Path, &h.Before, h.After)...)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, bridge.At(in.Path, line)
}
