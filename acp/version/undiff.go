package version

import (
	"encoding/json"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// lowerDiff returns changes of files as version 1 has them: a diff for each passage that
// the patch shows, and a text for what it does not show.
func lowerDiff(diff json.RawMessage) []json.RawMessage {
	changes, _ := rawjson.Member(diff, "changes")
	patch := rawjson.MemberString(diff, "patch", "text")
	format := rawjson.MemberString(diff, "patch", "format")
	var files []patched
	if format == "git_patch" {
		files = readPatch(patch)
	}
	out := []json.RawMessage{}
	all := rawjson.Elements(changes)
	for _, change := range all {
		path, operation := rawjson.MemberString(change, "path"), rawjson.MemberString(change, "operation")
		var shown *patched
		for i := range files {
			if f := &files[i]; !f.used && (f.path == path || len(files) == 1 && len(all) == 1) {
				shown = f
				break
			}
		}
		said := rawjson.Object{}
		if operation != "modify" && operation != "add" {
			said = said.String("operation", operation)
		}
		if was := rawjson.MemberString(change, "oldPath"); was != "" {
			said = said.String("oldPath", was)
		}
		switch {
		case shown != nil:
			shown.used = true
			if len(shown.passages) == 0 {
				shown.passages = []passage{{}}
			}
			for _, p := range shown.passages {
				out = append(out, p.diff(path, operation == "add", said, diff))
			}
		default:
			text := operation + " " + path
			if was := rawjson.MemberString(change, "oldPath"); was != "" {
				text = operation + " " + was + " to " + path
			}
			out = append(out, marked(contentOf(text), said, diff))
		}
	}
	for _, f := range files {
		if !f.used {
			for _, p := range f.passages {
				out = append(out, p.diff(f.path, f.added, rawjson.Object{}, diff))
			}
		}
	}
	if patch != "" && len(files) == 0 {
		out = append(out, contentOf(patch))
	}
	return out
}

// marked adds to the _meta of content, which begins as that of the diff.
func marked(content json.RawMessage, said rawjson.Object, diff json.RawMessage) json.RawMessage {
	if meta, ok := rawjson.Member(diff, "_meta"); ok && meta[0] == '{' {
		content = rawjson.SetMember(content, meta, "_meta")
	}
	members(said.End(), func(name, value json.RawMessage) {
		content = rawjson.SetMember(content, value, "_meta", acp.MetaKey, rawjson.Unquote(name))
	})
	return content
}

// patched is a file in a patch.
type patched struct {
	path     string
	added    bool // it was made
	used     bool
	passages []passage
}

// passage is a part of a file before and after.
type passage struct{ was, is string }

func (p passage) diff(path string, added bool, said rawjson.Object, diff json.RawMessage) json.RawMessage {
	o := rawjson.Object{}.String("type", "diff").String("path", path)
	if !added {
		o = o.String("oldText", p.was)
	}
	return marked(o.String("newText", p.is).End(), said, diff)
}

// readPatch reads a patch as Git writes it. What it does not understand it passes over.
func readPatch(text string) []patched {
	var files []patched
	var file *patched
	was, is := 0, 0 // lines of the hunk that are still to come
	last := byte(0)
	for line := range strings.Lines(text) {
		switch {
		case file != nil && strings.HasPrefix(line, `\`) && len(file.passages) > 0:
			p := &file.passages[len(file.passages)-1]
			if last != '+' {
				p.was = strings.TrimSuffix(p.was, "\n")
			}
			if last != '-' {
				p.is = strings.TrimSuffix(p.is, "\n")
			}
		case file != nil && (was > 0 || is > 0):
			p := &file.passages[len(file.passages)-1]
			last = line[0]
			switch last {
			case '-':
				p.was, was = p.was+line[1:], was-1
			case '+':
				p.is, is = p.is+line[1:], is-1
			default: // an empty line may have lost its blank
				rest := strings.TrimPrefix(line, " ")
				p.was, p.is, was, is = p.was+rest, p.is+rest, was-1, is-1
			}
		case strings.HasPrefix(line, "diff --git "):
			files = append(files, patched{})
			file = &files[len(files)-1]
			names := strings.TrimRight(line[len("diff --git "):], "\r\n")
			if half := len(names) / 2; len(names)%2 == 1 && names[:half] == names[half+1:] {
				file.path = patchPath(names[:half]) // what follows may not name it
			}
		case strings.HasPrefix(line, "new file mode") && file != nil:
			file.added = true
		case strings.HasPrefix(line, "--- "):
			if file == nil || len(file.passages) > 0 {
				files = append(files, patched{})
				file = &files[len(files)-1]
			}
			if name := patchPath(line[4:]); name == "/dev/null" {
				file.added = true
			} else {
				file.path = name
			}
		case strings.HasPrefix(line, "+++ ") && file != nil:
			if name := patchPath(line[4:]); name != "/dev/null" {
				file.path = name
			}
		case strings.HasPrefix(line, "rename to ") && file != nil:
			file.path = patchPath(line[len("rename to "):])
		case strings.HasPrefix(line, "@@ ") && file != nil:
			was, is = hunk(line)
			last = 0
			file.passages = append(file.passages, passage{})
		}
	}
	return files
}

// hunk returns how many lines the passage has before and after.
func hunk(head string) (was, is int) {
	for i, word := range strings.Fields(head) {
		_, count, given := strings.Cut(word, ",")
		n := 1
		if given {
			n, _ = strconv.Atoi(count)
		}
		switch i {
		case 1:
			was = n
		case 2:
			is = n
		}
	}
	return max(was, 0), max(is, 0)
}

// patchPath returns the path that Git has written, without the quotes it may have.
func patchPath(name string) string {
	name = strings.TrimRight(name, "\r\n\t")
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		return name
	}
	var b strings.Builder
	name = name[1 : len(name)-1]
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '\\' || i+1 == len(name) {
			b.WriteByte(c)
			continue
		}
		i++
		switch c = name[i]; {
		case c == 'n':
			b.WriteByte('\n')
		case c == 't':
			b.WriteByte('\t')
		case c >= '0' && c <= '3' && i+2 < len(name):
			if n, err := strconv.ParseUint(name[i:i+3], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
