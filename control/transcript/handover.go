package transcript

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what another agent is given of a conversation: it takes their place in the
// agent's context.
const (
	handoverTurns   = 24 << 10 // of the last turns, in full
	handoverMessage = 8 << 10  // of one message in them
	handoverOutput  = 600      // of what a tool said
	handoverFiles   = 100      // files, those that were touched last
	handoverChoices = 30       // decisions, the last
	handoverEarlier = 40       // turns in a line each: a quarter of the first, and the last
	handoverLine    = 200      // of such a line's halves
)

// handoverPage writes what an agent needs to go on with another one's conversation. It is
// the same for the same events, and no model has a part in it.
type handoverPage struct {
	w       *bufio.Writer
	files   []string // in the order in which they were touched last
	choices []string
	plan    []Step

	turns []*handedTurn // not yet among the earlier ones
	size  int           // of them
	first []string      // lines of the earliest turns
	early []string      // and of those before turns
	gone  int           // turns that have no line
}

// handedTurn is a prompt and what came of it.
type handedTurn struct {
	begins, said string // what it begins with, and what was said last, in a line each
	text         strings.Builder
}

func (p *handoverPage) head(s *Session) {
	fmt.Fprintf(p.w, "<conversation-so-far agent=%q directory=%q>\n", s.Agent, s.Cwd)
	p.put("Another agent worked on this before you. A program has made this summary of the conversation from its log, so that\n" +
		"you can go on. It is a record: do not carry out again what stands in it. The files are as that agent has left them;\n" +
		"look at them before you rely on what is said here.\n")
}

func (p *handoverPage) put(s string) { _, _ = p.w.WriteString(s) }

// turn is the one in hand.
func (p *handoverPage) turn() *handedTurn {
	if len(p.turns) == 0 {
		p.turns = append(p.turns, &handedTurn{})
	}
	return p.turns[len(p.turns)-1]
}

// add writes to the turn in hand, and lets the oldest ones go that there is no room for.
func (p *handoverPage) add(text string) {
	t := p.turn()
	t.text.WriteString(text)
	p.size += len(text)
	for p.size > handoverTurns && len(p.turns) > 1 {
		old := p.turns[0]
		p.size -= old.text.Len()
		p.turns = p.turns[1:]
		p.earlier(old)
	}
}

func (p *handoverPage) earlier(t *handedTurn) {
	line := "- " + t.begins
	if t.said != "" {
		line += " / Agent: " + t.said
	}
	if len(p.first) < handoverEarlier/4 {
		p.first = append(p.first, line)
		return
	}
	if p.early = append(p.early, line); len(p.early) > handoverEarlier*3/4 {
		p.early = p.early[1:]
		p.gone++
	}
}

func (p *handoverPage) entry(e *Entry) {
	switch e.Kind {
	case User:
		if len(p.turns) == 0 || p.turns[len(p.turns)-1].text.Len() > 0 {
			p.turns = append(p.turns, &handedTurn{})
		}
		t := p.turn()
		t.begins = firstOf(t.begins, "User: "+lineOf(e.Text))
		p.add("\n### User\n" + middle(e.Text, handoverMessage) + filesOf(e) + "\n")
	case Lost: // what stands behind it is of another turn
		p.turns = append(p.turns, &handedTurn{begins: e.Text})
		p.add("\n" + e.Text + "\n")
	case Agent:
		p.turn().said = lineOf(e.Text) // the last counts
		p.add("\n### Agent\n" + middle(e.Text, handoverMessage) + "\n")
	case Call:
		p.call(e.Tool)
	case Question:
		p.choice(lineOf(e.Text))
		p.add("\n### Question\n" + middle(e.Text, handoverMessage) + "\n")
	case Plan:
		p.plan = e.Plan
	case TurnEnd:
		if how := e.Turn.ending(); how != "" {
			p.add(how + "\n")
		}
	}
}

func (p *handoverPage) call(t *Tool) {
	for _, d := range t.Diffs {
		p.files = slices.DeleteFunc(p.files, func(f string) bool { return f == d.Path })
		if p.files = append(p.files, d.Path); len(p.files) > handoverFiles {
			p.files = p.files[1:]
		}
	}
	if t.Answer != "" {
		p.choice(firstOf(t.Title, t.Command, t.ID) + ": " + t.Answer)
	}
	text := "- tool " + t.summary()
	if t.Command != "" && t.Command != t.Title {
		text += " `" + lineOf(t.Command) + "`"
	}
	if out := strings.TrimSpace(t.Output); out != "" {
		text += "\n  " + strings.ReplaceAll(middle(out, handoverOutput), "\n", "\n  ")
	}
	p.add(text + "\n")
}

func (p *handoverPage) choice(text string) {
	if p.choices = append(p.choices, lineOf(text)); len(p.choices) > handoverChoices {
		p.choices = p.choices[1:]
	}
}

func (p *handoverPage) foot(_ string, l *LeftOut) {
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			p.put("\n## " + title + "\n" + strings.Join(lines, "\n") + "\n")
		}
	}
	var files, choices, steps []string
	for _, f := range p.files {
		files = append(files, "- "+f)
	}
	for _, c := range p.choices {
		choices = append(choices, "- "+c)
	}
	open := false
	for _, s := range p.plan {
		open = open || s.Status != "completed"
		steps = append(steps, "- "+mark(s.Status)+" "+lineOf(s.Content))
	}
	list("Files that were changed", files)
	list("What was decided", choices)
	if open {
		list("The plan, which is not done", steps)
	}
	earlier := p.first
	if p.gone > 0 {
		earlier = append(earlier, fmt.Sprintf("- (%d more)", p.gone))
	}
	list("Earlier, in short", append(earlier, p.early...))
	if len(p.turns) > 0 {
		p.put("\n## The last turns\n")
		for _, t := range p.turns {
			p.put(middle(t.text.String(), 2*handoverTurns))
		}
	}
	var gone []string
	for _, what := range l.events() {
		gone = append(gone, "- "+what)
	}
	list("What is missing here", gone)
	p.put("</conversation-so-far>\n")
}

// lineOf is how a text begins, in one line.
func lineOf(text string) string {
	line := strings.Join(strings.Fields(inert(text)), " ")
	if len(line) <= handoverLine {
		return line
	}
	return strings.ToValidUTF8(line[:handoverLine], "") + "…"
}

// inert keeps a text from ending the record by its words.
func inert(text string) string {
	return strings.ReplaceAll(text, "</conversation-so-far", "< /conversation-so-far")
}

// middle leaves out the middle of a text that is too long.
func middle(text string, most int) string {
	text = inert(text)
	if len(text) <= most {
		return text
	}
	head, tail := text[:most*3/4], text[len(text)-most/4:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[%d bytes left out]\n", len(text)-len(head)-len(tail)) + strings.ToValidUTF8(tail, "")
}

// filesOf names what went along with a text.
func filesOf(e *Entry) string {
	var out strings.Builder
	for _, f := range e.Files {
		out.WriteString("\n[attached: " + firstOf(f.Name, f.MIMEType) + "]")
	}
	return out.String()
}
