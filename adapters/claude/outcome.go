package claude

import (
	"encoding/json"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// output has the members of the tools' structured results that are shown.
type output struct {
	Stdout       string          `json:"stdout"`
	Stderr       string          `json:"stderr"`
	Interrupted  bool            `json:"interrupted"`
	Persisted    string          `json:"persistedOutputPath"`
	FilePath     string          `json:"filePath"`
	Content      json.RawMessage `json:"content"`
	OriginalFile *string         `json:"originalFile"`
	OldString    string          `json:"oldString"`
	NewString    string          `json:"newString"`
	ReplaceAll   bool            `json:"replaceAll"`
	Patch        []hunk          `json:"structuredPatch"`
	File         *struct {
		Content string `json:"content"`
		Base64  string `json:"base64"`
		Type    string `json:"type"`
	} `json:"file"`
	NotebookPath string `json:"notebook_path"`
	NotebookOld  string `json:"original_file"`
	NotebookNew  string `json:"updated_file"`
}

type hunk struct {
	OldStart uint32   `json:"oldStart"`
	NewStart uint32   `json:"newStart"`
	Lines    []string `json:"lines"`
}

// outcome returns what a call's result shows.
func outcome(c *tool, b contentBlock, raw json.RawMessage) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	if b.IsError {
		text := bridge.FirstOf(plain(b.Content), rawjson.MemberString(b.Content, "error_code")) // the API's own tools have a code
		return bridge.TextContent(bridge.Fenced(untagged(text), "")), nil
	}
	var o output
	if len(raw) > 0 && raw[0] == '{' {
		_ = bridge.Lenient(raw, &o) // what cannot be read is not shown
	}
	switch c.name {
	case "Bash", "PowerShell":
		return bridge.TextContent(bridge.Fenced(shellOutput(&o, b), "console")), nil
	case "Read":
		if o.File != nil && o.File.Content != "" {
			return bridge.TextContent(bridge.Fenced(o.File.Content, "")), nil
		}
	case "Edit":
		if o.FilePath != "" && o.OriginalFile != nil {
			return editOutcome(&o, c.before)
		}
		return nil, nil // the diff of the announcement stays
	case "Write":
		if o.FilePath != "" {
			old := o.OriginalFile
			if old != nil && c.before != nil {
				old = c.before // with its own line ends
			}
			return bridge.DiffContent(o.FilePath, old, bridge.Text(o.Content)), bridge.At(o.FilePath, 0)
		}
		return nil, nil
	case "NotebookEdit":
		if o.NotebookNew != "" && len(o.NotebookNew) <= maxWholeFile {
			return bridge.DiffContent(o.NotebookPath, &o.NotebookOld, o.NotebookNew), bridge.At(o.NotebookPath, 0)
		}
		return nil, nil
	case "ExitPlanMode", "EnterPlanMode":
		return nil, nil // the plan stays; the text is for the model
	case "Agent", "Task":
		if shown := shownBlocks(o.Content); len(shown) > 0 {
			return said(c, shown), nil
		}
	}
	return shownBlocks(b.Content), nil
}

// exited is how the result of a command that has failed begins.
const exited = "Exit code "

// ofTerminal says what a command's result tells of its terminal, nil for nothing: it was
// not run, or goes on in the background.
func ofTerminal(b contentBlock, output json.RawMessage) *bridge.Terminal {
	if !b.IsError {
		if backgroundTask(output) != "" {
			return nil
		}
		return &bridge.Terminal{Output: true}
	}
	rest, failed := strings.CutPrefix(plain(b.Content), exited)
	line, _, _ := strings.Cut(rest, "\n")
	code, err := strconv.Atoi(line)
	if !failed || err != nil {
		return nil
	}
	return &bridge.Terminal{Output: true, ExitCode: &code}
}

func shellOutput(o *output, b contentBlock) string {
	s := strings.TrimRight(o.Stdout, "\n")
	if o.Stderr != "" {
		s = strings.TrimLeft(s+"\n"+o.Stderr, "\n")
	}
	if s == "" || o.Persisted != "" {
		return plain(b.Content)
	}
	return s
}

// editOutcome shows an edit that was made: the whole file, or each changed place
// of a large one. file is the file as it was before, nil when that is not known.
func editOutcome(o *output, file *string) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	line := uint32(0)
	if len(o.Patch) > 0 {
		line = o.Patch[0].NewStart
		for _, l := range o.Patch[0].Lines {
			if !strings.HasPrefix(l, " ") {
				break
			}
			line++
		}
	}
	if len(*o.OriginalFile) <= maxWholeFile {
		before := endsOf(file, *o.OriginalFile)
		after := endsOf(file, replace(*o.OriginalFile, o.OldString, o.NewString, o.ReplaceAll))
		return bridge.DiffContent(o.FilePath, &before, after), bridge.At(o.FilePath, line)
	}
	var out []schema.ToolCallContent
	for _, h := range o.Patch {
		var before, after []string
		for _, l := range h.Lines {
			switch {
			case strings.HasPrefix(l, "-"):
				before = append(before, l[1:])
			case strings.HasPrefix(l, "+"):
				after = append(after, l[1:])
			case strings.HasPrefix(l, " "):
				before, after = append(before, l[1:]), append(after, l[1:])
			}
		}
		old := endsOf(file, strings.Join(before, "\n"))
		out = append(out, bridge.DiffContent(o.FilePath, &old, endsOf(file, strings.Join(after, "\n")))...)
	}
	return out, bridge.At(o.FilePath, line)
}

// shownBlocks shows the content that a tool gave the model.
func shownBlocks(content json.RawMessage) []schema.ToolCallContent {
	var out []schema.ToolCallContent
	for _, b := range blocks(content) {
		switch {
		case b.Type == "text" && b.Text != "":
			out = append(out, bridge.TextContent(b.Text)...)
		case b.Type == "image" && b.Source != nil && b.Source.Type == "base64":
			out = append(out, schema.ToolCallContent{Content: &schema.Content{Content: schema.ContentBlock{
				Image: &schema.ImageContent{Data: b.Source.Data, MimeType: b.Source.MediaType},
			}}})
		}
	}
	return out
}

// plain returns the text of a result's content.
func plain(content json.RawMessage) string {
	var parts []string
	for _, b := range blocks(content) {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

func untagged(s string) string {
	s = strings.TrimPrefix(s, "<tool_use_error>")
	return strings.TrimSuffix(s, "</tool_use_error>")
}

// rawOutput is the structured result without what the content shows already.
func rawOutput(b contentBlock, raw json.RawMessage) json.RawMessage {
	switch {
	case len(raw) == 0:
		return b.Content
	case raw[0] != '{':
		return raw
	}
	raw = rawjson.DeleteMember(raw, "originalFile")
	raw = rawjson.DeleteMember(raw, "file", "base64")
	raw = rawjson.DeleteMember(raw, "file", "content")
	if c, ok := rawjson.Member(raw, "content"); ok && c[0] == '"' {
		if _, ok := rawjson.Member(raw, "filePath"); ok {
			raw = rawjson.DeleteMember(raw, "content")
		}
	}
	raw = rawjson.DeleteMember(raw, "original_file")
	return rawjson.DeleteMember(raw, "updated_file")
}
