package pi

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxWhole bounds the files whose diff shows all of them.
const maxWhole = 64 << 10

// look is how a call is shown.
type look struct {
	title     string
	kind      schema.ToolKind
	content   []schema.ToolCallContent
	locations []schema.ToolCallLocation
}

// input has the members of the tools' arguments that are shown.
type toolInput struct {
	Path    string  `json:"path"`
	Command string  `json:"command"`
	Pattern string  `json:"pattern"`
	Content string  `json:"content"`
	Offset  float64 `json:"offset"`
	Edits   []edit  `json:"edits"`
	edit            // of early versions
}

// edit is a replacement.
type edit struct {
	Old string `json:"oldText"`
	New string `json:"newText"`
}

func readInput(args json.RawMessage) toolInput {
	var in toolInput
	if object(args) != nil {
		_ = bridge.Lenient(args, &in) // what cannot be read is not shown
	}
	if len(in.Edits) == 0 && (in.Old != "" || in.New != "") {
		in.Edits = []edit{in.edit}
	}
	return in
}

// absolute is a path as Pi takes it, but for what it reads in a way of its own,
// such as ~: that stays as it is.
func absolute(cwd, path string) string {
	if path == "" || filepath.IsAbs(path) || odd(path) {
		return path
	}
	return filepath.Join(cwd, path)
}

// odd reports whether Pi may take a path for another one than it says.
func odd(path string) bool {
	return strings.ContainsAny(path[:1], "~@") || strings.ContainsAny(path, "\x00\u00a0\u202f\u3000") || strings.HasPrefix(path, "file:")
}

// changes is the path of the file that a call changes, "" for none.
func changes(name string, args json.RawMessage) string {
	if name != "edit" && name != "write" {
		return ""
	}
	return readInput(args).Path
}

// kindOf is the kind of a tool's calls.
func kindOf(tool string) schema.ToolKind { return describe("", tool, nil, nil).kind }

// describe shows a call; old is the file that it changes, as it is before.
func describe(cwd, name string, args json.RawMessage, old *before) look {
	in := readInput(args)
	l := look{title: name, kind: schema.ToolKindOther}
	path := absolute(cwd, in.Path)
	titled := func(verb, what string) {
		if what != "" {
			l.title = verb + " " + bridge.OneLine(what)
		}
	}
	switch name {
	case "read":
		l.kind, l.locations = schema.ToolKindRead, bridge.At(path, lineOf(in.Offset))
		titled("Read", in.Path)
	case "ls":
		l.kind, l.locations = schema.ToolKindRead, bridge.At(path, 0)
		titled("List", in.Path)
	case "grep", "find", "tool_search":
		l.kind = schema.ToolKindSearch
		titled("Search", in.Pattern)
	case "bash", "powershell":
		l.kind = schema.ToolKindExecute
		if in.Command != "" {
			l.title = bridge.OneLine(in.Command)
		}
	case "edit", "write":
		l.kind, l.locations = schema.ToolKindEdit, bridge.At(path, 0)
		titled(map[string]string{"edit": "Edit", "write": "Write"}[name], in.Path)
		if path != "" {
			l.content = diffOf(name, path, in, old)
		}
	default:
		if server, tool, ok := strings.Cut(strings.TrimPrefix(name, "mcp__"), "__"); ok && strings.HasPrefix(name, "mcp__") {
			l.title = server + ": " + tool
		}
	}
	l.title = bridge.FirstOf(l.title, "tool")
	return l
}

func lineOf(n float64) uint32 {
	if n < 1 || n > math.MaxUint32 {
		return 0
	}
	return uint32(n)
}

// diffOf is the change that a call would make.
func diffOf(name, path string, in toolInput, old *before) []schema.ToolCallContent {
	if name == "write" {
		switch {
		case old == nil || !old.there:
			return bridge.DiffContent(path, nil, in.Content)
		case !old.read:
			return bridge.TextContent(fmt.Sprintf("Replaces %s, which is too large to show or no text, by %d bytes.", path, len(in.Content)))
		}
		return bridge.DiffContent(path, &old.text, in.Content)
	}
	if old != nil && old.read && len(old.text) <= maxWhole {
		if after, ok := edited(old.text, in.Edits); ok {
			return bridge.DiffContent(path, &old.text, after)
		}
	}
	var out []schema.ToolCallContent
	for _, e := range in.Edits {
		out = append(out, bridge.DiffContent(path, &e.Old, e.New)...)
	}
	return out
}

// edited makes edits as Pi does; ok is false when one does not fit exactly once.
func edited(text string, edits []edit) (string, bool) {
	type place struct{ from, to, edit int }
	var places []place
	for i, e := range edits {
		at := strings.Index(text, e.Old)
		if e.Old == "" || at < 0 || strings.Contains(text[at+1:], e.Old) {
			return "", false
		}
		for _, p := range places {
			if at < p.to && p.from < at+len(e.Old) {
				return "", false
			}
		}
		places = append(places, place{at, at + len(e.Old), i})
	}
	// Each place is of the text as it was.
	var b strings.Builder
	for from := 0; ; {
		next := -1
		for i, p := range places {
			if p.from >= from && (next < 0 || p.from < places[next].from) {
				next = i
			}
		}
		if next < 0 {
			b.WriteString(text[from:])
			return b.String(), len(edits) > 0
		}
		p := places[next]
		b.WriteString(text[from:p.from] + edits[p.edit].New)
		from = p.to
	}
}

// outcome returns what a call's result shows.
func outcome(cwd string, c *tool, r result) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	said := plain(r.content)
	if r.failed {
		if said == "" {
			return nil, nil
		}
		return bridge.TextContent(bridge.Fenced(bridge.Capped(said, maxShown), "")), nil
	}
	switch c.name {
	case "bash", "powershell":
		return bridge.TextContent(bridge.Fenced(bridge.Capped(said, maxShown), "console")), nil
	case "read":
		if images := imagesOf(r.content); len(images) > 0 {
			return images, nil
		}
		return bridge.TextContent(bridge.Fenced(bridge.Capped(said, maxShown), "")), nil
	case "write":
		return nil, nil // the diff of the announcement stays
	case "edit":
		return editOutcome(cwd, c, r)
	}
	var out []schema.ToolCallContent
	if said != "" {
		out = bridge.TextContent(bridge.Capped(said, maxShown))
	}
	return append(out, imagesOf(r.content)...), nil
}

// editOutcome shows an edit that was made: the whole file, or each changed place
// of a large one, or of one that was edited by what only resembles its text.
func editOutcome(cwd string, c *tool, r result) ([]schema.ToolCallContent, []schema.ToolCallLocation) {
	var d struct {
		Patch string  `json:"patch"`
		First float64 `json:"firstChangedLine"`
	}
	if object(r.details) != nil {
		_ = bridge.Lenient(r.details, &d) // what cannot be read is not shown
	}
	in := readInput(c.args)
	path := absolute(cwd, in.Path)
	at := bridge.At(path, lineOf(d.First))
	if c.before != nil && c.before.read && len(c.before.text) <= maxWhole {
		if _, ok := edited(c.before.text, in.Edits); ok {
			return nil, at // the diff of the announcement stays
		}
	}
	var out []schema.ToolCallContent
	for _, h := range bridge.Hunks(d.Patch) {
		out = append(out, bridge.DiffContent(path, &h.Before, h.After)...)
	}
	return out, at
}

// plain joins the texts of content.
func plain(content []block) string {
	var parts []string
	for _, b := range content {
		if b.Type == "text" && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

func imagesOf(content []block) []schema.ToolCallContent {
	var out []schema.ToolCallContent
	for _, b := range content {
		if b.Type == "image" && b.Data != "" {
			out = append(out, schema.ToolCallContent{Content: &schema.Content{Content: schema.ContentBlock{Image: &schema.ImageContent{Data: b.Data, MimeType: b.MimeType}}}})
		}
	}
	return out
}

// rawOutput is what a result has beside the content that is shown.
func rawOutput(r result) json.RawMessage {
	more := map[string]json.RawMessage{}
	if d := object(r.details); d != nil && string(d) != "{}" && len(d) <= maxShown {
		more["details"] = d
	}
	if s := object(r.structured); s != nil {
		if s = rawjson.DeleteMember(s, "output"); len(s) <= maxShown {
			more["structuredContent"] = s
		}
	}
	if len(more) == 0 {
		return nil
	}
	b, err := schema.Encode(more)
	if err != nil {
		return nil
	}
	return b
}
