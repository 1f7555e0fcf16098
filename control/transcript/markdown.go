package transcript

import (
	"bufio"
	"fmt"
	"html"
	"strings"
)

// markdownPage writes Markdown as GitHub and editors show it, with what tools said
// folded away.
type markdownPage struct {
	w    *bufio.Writer
	last Kind // who spoke last
}

// put writes text as it is. What the writer says comes with Flush.
func (p *markdownPage) put(s string) { _, _ = p.w.WriteString(s) }

func (p *markdownPage) head(s *Session) {
	fmt.Fprintf(p.w, "# %s\n\n", escapeMarkdown(s.title()))
	for _, row := range s.about() {
		fmt.Fprintf(p.w, "- %s: %s\n", row[0], escapeMarkdown(row[1]))
	}
}

func (p *markdownPage) entry(e *Entry) {
	speaker := e.Kind
	switch e.Kind {
	case Call, Plan: // what the agent does
		speaker = Agent
	case Note, Lost, TurnEnd:
		if e.Kind == TurnEnd && e.Turn.ending() == "" {
			return
		}
		speaker = ""
	}
	if speaker != "" && (speaker != p.last || speaker == User) {
		fmt.Fprintf(p.w, "\n## %s\n", heading(&Entry{Kind: speaker}))
	}
	p.last = speaker
	p.body(e)
}

func (p *markdownPage) body(e *Entry) {
	switch e.Kind {
	case Call:
		p.tool(e.Tool)
	case Plan:
		p.put("\n")
		for _, s := range e.Plan {
			box := " "
			if s.Status == "completed" {
				box = "x"
			}
			fmt.Fprintf(p.w, "- [%s] %s\n", box, escapeMarkdown(strings.Join(strings.Fields(s.Content), " ")))
		}
	case Note, Lost:
		fmt.Fprintf(p.w, "\n> %s\n", quoted(escapeMarkdown(e.Text)))
	case TurnEnd:
		fmt.Fprintf(p.w, "\n> %s\n", quoted(escapeMarkdown(e.Turn.ending())))
	case Agent:
		fmt.Fprintf(p.w, "\n%s\n", closed(strings.TrimSpace(e.Text)))
	case Thought:
		fmt.Fprintf(p.w, "\n> %s\n", quoted(escapeMarkdown(strings.TrimSpace(e.Text))))
	default: // words of people are no Markdown
		fmt.Fprintf(p.w, "\n%s\n", asTyped(e.Text))
	}
	for _, f := range e.Files {
		if f.Data != "" {
			fmt.Fprintf(p.w, "\n![image](data:%s;base64,%s)\n", f.MIMEType, f.Data)
		} else {
			fmt.Fprintf(p.w, "\n- %s\n", escapeMarkdown(f.Name))
		}
	}
}

func (p *markdownPage) tool(t *Tool) {
	title := html.EscapeString(t.summary())
	if t.Command == "" && t.Output == "" && len(t.Diffs) == 0 && len(t.Images) == 0 && len(t.Parts) == 0 {
		fmt.Fprintf(p.w, "\n%s\n", escapeMarkdown(t.summary()))
		return
	}
	fmt.Fprintf(p.w, "\n<details><summary>%s</summary>\n", title)
	if t.Command != "" {
		p.fenced("sh", t.Command)
	}
	for _, d := range t.Diffs {
		fmt.Fprintf(p.w, "\n%s\n", escapeMarkdown(d.Path))
		if d.Text != "" {
			p.fenced("diff", d.Text)
		}
	}
	if t.Output != "" {
		p.fenced("text", t.Output)
	}
	for _, i := range t.Images {
		fmt.Fprintf(p.w, "\n![image](data:%s;base64,%s)\n", i.MIMEType, i.Data)
	}
	for _, part := range t.Parts {
		p.body(part)
	}
	p.put("\n</details>\n")
}

// fenced writes a block of code whose fence is longer than any in it.
func (p *markdownPage) fenced(language, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	fmt.Fprintf(p.w, "\n%s%s\n%s\n%s\n", fence, language, strings.TrimRight(text, "\n"), fence)
}

// closed ends a block of code that the agent's text leaves open, so that what
// follows is not swallowed by it.
func closed(text string) string {
	fence := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		run := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		if run == "" {
			run = line[:len(line)-len(strings.TrimLeft(line, "~"))]
		}
		switch {
		case len(run) < 3:
		case fence == "":
			fence = run
		case run[0] == fence[0] && len(run) >= len(fence) && run == line:
			fence = ""
		}
	}
	if fence != "" {
		return text + "\n" + fence
	}
	return text
}

// asTyped keeps the lines of what people typed.
func asTyped(text string) string {
	lines := strings.Split(escapeMarkdown(strings.TrimSpace(text)), "\n")
	for i := range lines[:len(lines)-1] {
		if strings.TrimSpace(lines[i]) != "" && strings.TrimSpace(lines[i+1]) != "" {
			lines[i] += "  "
		}
	}
	return strings.Join(lines, "\n")
}

func quoted(text string) string { return strings.ReplaceAll(text, "\n", "\n> ") }

var markdownEscaper = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "#", `\#`, "|", `\|`, "~", `\~`, "&", "&amp;",
)

func escapeMarkdown(s string) string { return markdownEscaper.Replace(s) }

func (p *markdownPage) foot(cost string, l *LeftOut) {
	list := l.List()
	if cost != "" || len(list) > 0 {
		p.put("\n---\n")
	}
	if cost != "" {
		fmt.Fprintf(p.w, "\nCost: %s\n", cost)
	}
	if len(list) > 0 {
		p.put("\nLeft out:\n\n")
	}
	for _, line := range list {
		fmt.Fprintf(p.w, "- %s\n", line)
	}
}
