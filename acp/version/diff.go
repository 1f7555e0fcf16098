package version

import (
	"encoding/json"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// raiseContent returns the content of a tool call as version 2 has it. Nothing but diffs
// differs.
func (v *View) raiseContent(content json.RawMessage) json.RawMessage {
	return list(content, func(c json.RawMessage) json.RawMessage {
		if rawjson.MemberString(c, "type") != "diff" {
			return c
		}
		return raiseDiff(c, v.cwd)
	})
}

// raiseDiff returns a diff as version 2 has it: the change of a file, and a patch that has
// all lines of both texts, so that nothing of them is lost.
func raiseDiff(diff json.RawMessage, cwd string) json.RawMessage {
	path, after := rawjson.MemberString(diff, "path"), rawjson.MemberString(diff, "newText")
	old, given := rawjson.Member(diff, "oldText")
	given = given && old[0] == '"'
	before := ""
	if given {
		before = rawjson.Unquote(old)
	}
	path = absolute(path, cwd)
	operation := "modify"
	if !given {
		operation = "add"
	}
	change := rawjson.Object{}.String("operation", operation).String("path", path)
	out := rawjson.Object{}.String("type", "diff").Raw("changes", array([]json.RawMessage{change.End()}))
	if before != "" || after != "" || !given { // one without a change says what is there
		patch := rawjson.Object{}.String("format", "git_patch").String("text", gitPatch(path, given, before, after))
		out = out.Raw("patch", patch.End())
	}
	return withMeta(out, diff).End()
}

// absolute returns the path below dir unless it is absolute, on whatever system the
// session is.
func absolute(path, dir string) string {
	windows := len(path) > 2 && path[1] == ':' || strings.HasPrefix(path, `\\`)
	if dir == "" || windows || strings.HasPrefix(path, "/") {
		return path
	}
	return strings.TrimRight(dir, `/\`) + "/" + path
}

// gitPatch returns a patch of one file with all its lines as context.
func gitPatch(path string, existed bool, before, after string) string {
	name := patchName(path)
	var b strings.Builder
	b.WriteString("diff --git " + name + " " + name + "\n")
	from := name
	if !existed {
		b.WriteString("new file mode 100644\n")
		from = "/dev/null"
	}
	if before == "" && after == "" {
		return b.String() // an empty file
	}
	b.WriteString("--- " + from + "\n+++ " + name + "\n")
	was, is := lines(before), lines(after)
	b.WriteString("@@ -" + extent(len(was)) + " +" + extent(len(is)) + " @@\n")
	head := 0
	for head < len(was) && head < len(is) && was[head] == is[head] {
		head++
	}
	tail := 0
	for tail < len(was)-head && tail < len(is)-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	for _, l := range was[:head] {
		patchLine(&b, ' ', l)
	}
	for _, l := range was[head : len(was)-tail] {
		patchLine(&b, '-', l)
	}
	for _, l := range is[head : len(is)-tail] {
		patchLine(&b, '+', l)
	}
	for _, l := range was[len(was)-tail:] {
		patchLine(&b, ' ', l)
	}
	return b.String()
}

// lines returns the lines of a text, each with its newline if it has one.
func lines(text string) []string {
	all := strings.SplitAfter(text, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

func extent(n int) string {
	if n == 0 {
		return "0,0"
	}
	return "1," + strconv.Itoa(n)
}

func patchLine(b *strings.Builder, kind byte, line string) {
	b.WriteByte(kind)
	b.WriteString(line)
	if !strings.HasSuffix(line, "\n") {
		b.WriteString("\n\\ No newline at end of file\n")
	}
}

// patchName returns the path as Git writes it: in quotes when it has letters that would
// end it.
func patchName(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f }) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			b.WriteString(`\` + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
