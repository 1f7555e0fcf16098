package claude

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxWholeFile bounds the files that a diff shows whole. Of larger ones it shows
// the changed places.
const maxWholeFile = 256 << 10

// look is how a call is shown.
type look struct {
	title     string
	kind      schema.ToolKind
	content   []schema.ToolCallContent
	locations []schema.ToolCallLocation
}

// input has the members of the tools' inputs that are shown.
type input struct {
	Command     string `json:"command"`
	Description string `json:"description"`
	FilePath    string `json:"file_path"`
	Notebook    string `json:"notebook_path"`
	Path        string `json:"path"`
	Offset      uint32 `json:"offset"`
	Limit       uint32 `json:"limit"`
	Content     string `json:"content"`
	OldString   string `json:"old_string"`
	NewString   string `json:"new_string"`
	ReplaceAll  bool   `json:"replace_all"`
	NewSource   string `json:"new_source"`
	CellID      string `json:"cell_id"`
	EditMode    string `json:"edit_mode"`
	Pattern     string `json:"pattern"`
	Glob        string `json:"glob"`
	Query       string `json:"query"`
	URL         string `json:"url"`
	Prompt      string `json:"prompt"`
	Plan        string `json:"plan"`
	Skill       string `json:"skill"`
	Subject     string `json:"subject"`
	Background  bool   `json:"run_in_background"`
	Questions   []struct {
		Question string `json:"question"`
		Header   string `json:"header"`
	} `json:"questions"`
}

// describe says how a call is shown. raw is nil while the input streams; before
// is the text of the file that it will change, when known.
func describe(name string, raw json.RawMessage, before *string) look {
	var in input
	if raw != nil {
		_ = bridge.Lenient(raw, &in) // what cannot be read is not shown
	}
	l := look{title: name, kind: schema.ToolKindOther}
	titled := func(s string) {
		if s = bridge.OneLine(s); s != "" {
			l.title = s
		}
	}
	switch name {
	case "Bash", "PowerShell":
		l.kind = schema.ToolKindExecute
		titled(in.Command)
		if in.Description != "" {
			l.content = bridge.TextContent(in.Description)
		}
	case "BashOutput", "TaskOutput", "KillShell", "TaskStop", "Monitor":
		l.kind = schema.ToolKindExecute
	case "Read", "NotebookRead":
		l.kind = schema.ToolKindRead
		path := bridge.FirstOf(in.FilePath, in.Notebook)
		if path != "" {
			titled("Read " + path + lineRange(in.Offset, in.Limit))
			l.locations = bridge.At(path, max(in.Offset, 1))
		}
	case "Edit":
		l.kind = schema.ToolKindEdit
		if in.FilePath != "" {
			titled("Edit " + in.FilePath)
			l.content, l.locations = editDiff(&in, before)
		}
	case "Write":
		l.kind = schema.ToolKindEdit
		if in.FilePath != "" {
			titled("Write " + in.FilePath)
			l.content, l.locations = bridge.DiffContent(in.FilePath, before, in.Content), bridge.At(in.FilePath, 0)
		}
	case "NotebookEdit":
		l.kind = schema.ToolKindEdit
		if in.Notebook != "" {
			titled("Edit notebook " + in.Notebook)
			l.content, l.locations = bridge.DiffContent(in.Notebook, cell(before, in.CellID, in.EditMode), in.NewSource), bridge.At(in.Notebook, 0)
		}
	case "Glob", "Grep", "LS":
		l.kind = schema.ToolKindSearch
		titled(strings.TrimSpace(name + " " + bridge.FirstOf(in.Pattern, in.Glob) + " " + in.Path))
		if in.Path != "" {
			l.locations = bridge.At(in.Path, 0)
		}
	case "WebSearch", "ToolSearch":
		l.kind = schema.ToolKindSearch
		titled(in.Query)
	case "WebFetch":
		l.kind = schema.ToolKindFetch
		if in.URL != "" {
			titled("Fetch " + in.URL)
		}
	case "Agent", "Task":
		l.kind = schema.ToolKindThink
		titled(in.Description)
		if in.Prompt != "" {
			l.content = bridge.TextContent(in.Prompt)
		}
	case "TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet":
		l.kind = schema.ToolKindThink
		titled(strings.TrimSpace(name + " " + in.Subject))
	case "EnterPlanMode":
		l.kind = schema.ToolKindSwitchMode
		l.title = "Enter plan mode"
	case "ExitPlanMode":
		l.kind = schema.ToolKindSwitchMode
		l.title = "Ready to code?"
		if in.Plan != "" {
			l.content = bridge.TextContent(in.Plan)
		}
	case "AskUserQuestion":
		for i, q := range in.Questions {
			if i == 0 {
				titled(q.Question)
			}
			l.content = append(l.content, bridge.TextContent(q.Question)...)
		}
	case "Skill":
		if in.Skill != "" {
			titled("Skill " + in.Skill)
		}
	default:
		if server, tool, ok := mcpTool(name); ok {
			titled(server + ": " + tool)
		}
	}
	return l
}

// changes returns the path of the file that a call changes, "" when it changes
// none.
func changes(name string, raw json.RawMessage) string {
	var in input
	if bridge.Lenient(raw, &in) != nil {
		return ""
	}
	switch name {
	case "Edit", "Write":
		return in.FilePath
	case "NotebookEdit":
		return in.Notebook
	}
	return ""
}

// endsOf gives a text the line ends of the file that it is for. The model sees and
// writes all files with line feeds; the program gives edits the file's own ends.
func endsOf(file *string, s string) string {
	if file == nil || !strings.Contains(*file, "\r\n") || strings.Count(*file, "\n") != strings.Count(*file, "\r\n") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// editDiff shows an edit: of the whole file when it is known and small.
func editDiff(in *input, before *string) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	in.OldString, in.NewString = endsOf(before, in.OldString), endsOf(before, in.NewString)
	if before != nil && in.OldString != "" {
		if i := strings.Index(*before, in.OldString); i >= 0 {
			line := uint32(strings.Count((*before)[:i], "\n") + 1)
			if len(*before) <= maxWholeFile {
				return bridge.DiffContent(in.FilePath, before, replace(*before, in.OldString, in.NewString, in.ReplaceAll)), bridge.At(in.FilePath, line)
			}
			return bridge.DiffContent(in.FilePath, &in.OldString, in.NewString), bridge.At(in.FilePath, line)
		}
	}
	var old *string
	if in.OldString != "" {
		old = &in.OldString
	}
	return bridge.DiffContent(in.FilePath, old, in.NewString), bridge.At(in.FilePath, 0)
}

func replace(s, from, to string, all bool) string {
	if all {
		return strings.ReplaceAll(s, from, to)
	}
	return strings.Replace(s, from, to, 1)
}

// cell returns the source of a notebook's cell that a call replaces, nil when
// there is none.
func cell(notebook *string, id, mode string) *string {
	if notebook == nil || mode == "insert" {
		return nil
	}
	var nb struct {
		Cells []struct {
			ID     string          `json:"id"`
			Source json.RawMessage `json:"source"`
		} `json:"cells"`
	}
	if json.Unmarshal([]byte(*notebook), &nb) != nil {
		return nil
	}
	for _, c := range nb.Cells {
		if c.ID != id || id == "" {
			continue
		}
		var lines []string
		s := bridge.Text(c.Source)
		if json.Unmarshal(c.Source, &lines) == nil {
			s = strings.Join(lines, "")
		}
		return &s
	}
	return nil
}

// mcpTool splits the name of a tool of an MCP server.
func mcpTool(name string) (server, tool string, ok bool) {
	rest, ok := strings.CutPrefix(name, "mcp__")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "__")
}

func lineRange(offset, limit uint32) string {
	switch {
	case limit > 0:
		return " (" + decimal(max(offset, 1)) + " - " + decimal(max(offset, 1)+limit-1) + ")"
	case offset > 1:
		return " (from line " + decimal(offset) + ")"
	}
	return ""
}
