package codex

import (
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// changed shows changes of files. The files themselves are not read: when a
// change is announced they may hold the old text, the new one, or nothing.
func changed(list []change) (content []acp.ToolCallContent, at []acp.ToolCallLocation) {
	for _, c := range list {
		switch c.Kind.Type {
		case "add":
			content = append(content, bridge.DiffContent(c.Path, nil, c.Diff)...)
			at = append(at, bridge.At(c.Path, 0)...)
		case "delete":
			content = append(content, bridge.DiffContent(c.Path, &c.Diff, "")...)
			at = append(at, bridge.At(c.Path, 0)...)
		default:
			path, diff := c.Path, c.Diff
			if c.Kind.Move != "" {
				diff = strings.TrimSuffix(diff, "\n\nMoved to: "+c.Kind.Move)
				path = c.Kind.Move
				at = append(at, bridge.At(c.Path, 0)...)
				content = append(content, bridge.TextContent("Moved "+c.Path+" to "+c.Kind.Move)...)
			}
			hunks := hunksOf(diff)
			line := uint32(0)
			for i, h := range hunks {
				if i == 0 {
					line = h.line
				}
				content = append(content, bridge.DiffContent(path, &h.before, h.after)...)
			}
			at = append(at, bridge.At(path, line)...)
		}
	}
	return content, at
}

// hunk is a changed place of a file.
type hunk struct {
	line          uint32 // where it begins in the new file, 0 when unknown
	before, after string
}

// hunksOf reads unified hunks without a header of files.
func hunksOf(diff string) []hunk {
	var out []hunk
	var before, after strings.Builder
	open := false
	line := uint32(0)
	shut := func() {
		if open && (before.Len() > 0 || after.Len() > 0) {
			out = append(out, hunk{line, before.String(), after.String()})
		}
		before.Reset()
		after.Reset()
		open = true
	}
	last := byte(0) // the kind of the line before
	for s := range strings.Lines(diff) {
		switch {
		case strings.HasPrefix(s, "@@"):
			shut()
			line = newLine(s)
		case s[0] == '-':
			before.WriteString(s[1:])
			open = true
		case s[0] == '+':
			after.WriteString(s[1:])
			open = true
		case s[0] == ' ':
			before.WriteString(s[1:])
			after.WriteString(s[1:])
			open = true
		case s[0] == '\\': // no newline at the end of the file
			if last != '+' {
				trim(&before)
			}
			if last != '-' {
				trim(&after)
			}
		}
		last = s[0]
	}
	shut()
	return out
}

func trim(b *strings.Builder) {
	s := strings.TrimSuffix(b.String(), "\n")
	b.Reset()
	b.WriteString(s)
}

// newLine reads where a hunk begins in the new file.
func newLine(head string) uint32 {
	_, rest, ok := strings.Cut(head, " +")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	n, err := strconv.ParseUint(rest[:end], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
