package transcript

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// Format is how a transcript is written.
type Format string

const (
	Markdown Format = "markdown"
	HTML     Format = "html"
	JSONL    Format = "jsonl"
	// Handover is not for people: it is for an agent that goes on with the conversation,
	// and of bounded length.
	Handover Format = "handover"
)

// Formats are all of them.
var Formats = []Format{Markdown, HTML, JSONL, Handover}

// FormatNames are all of them, for people.
func FormatNames() string {
	var names []string
	for _, f := range Formats {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// ContentType is the media type of a format.
func (f Format) ContentType() string {
	switch f {
	case HTML:
		return "text/html; charset=utf-8"
	case JSONL:
		return "application/x-ndjson"
	case Handover:
		return "text/plain; charset=utf-8"
	}
	return "text/markdown; charset=utf-8"
}

// Options say what a transcript is like.
type Options struct {
	Format Format
	// Redact are patterns of what is taken out, beside what looks like a key.
	Redact []*regexp.Regexp
	// KeepSecrets leaves in what looks like a key.
	KeepSecrets bool
	// Thoughts keeps what the agent thought.
	Thoughts bool
	// Missing counts the events that the session has besides and that are not there at its end.
	Missing uint64
	// MayMiss says that there may be more at the end that nobody knows of.
	MayMiss bool
}

// page writes one format. Its methods are called in the order head, entry for each
// one, foot.
type page interface {
	head(s *Session)
	entry(e *Entry)
	foot(cost string, l *LeftOut)
}

// Write writes the transcript of a session with these events, in their order. An
// error of events ends it.
func Write(w io.Writer, o Options, s Session, events iter.Seq2[runtime.Event, error]) error {
	out := bufio.NewWriterSize(w, 32<<10)
	var p page
	switch o.Format {
	case Markdown:
		p = &markdownPage{w: out}
	case HTML:
		p = &htmlPage{w: out}
	case JSONL:
		p = &linesPage{w: out}
	case Handover:
		p = &handoverPage{w: out}
	default:
		return fmt.Errorf("format %q is unknown: it is one of %s", o.Format, FormatNames())
	}
	r := &redactor{patterns: all(o.Redact, o.KeepSecrets)}
	for _, text := range []*string{&s.Title, &s.Cwd, &s.Model} {
		*text = r.text(plain(*text))
	}
	p.head(&s)
	f := newFold(o.Thoughts)
	put := func(list []*Entry) error {
		for _, e := range list {
			r.entry(e)
			p.entry(e)
		}
		if len(list) > 0 {
			return out.Flush() // the reader sees each turn as it is ready
		}
		return nil
	}
	for ev, err := range events {
		if err != nil {
			return err
		}
		if err := put(f.add(ev)); err != nil {
			return err
		}
	}
	if err := put(f.release()); err != nil {
		return err
	}
	f.left.Secrets, f.left.Missing, f.left.MayMiss = r.found, o.Missing, o.MayMiss
	p.foot(f.cost, &f.left)
	return out.Flush()
}

// maxPlaces is how many places without events are named one by one.
const maxPlaces = 20

// List says in words what is missing, nothing when nothing is.
func (l *LeftOut) List() []string {
	out := l.events()
	add := func(n int, one, many string) {
		if n > 0 {
			out = append(out, count(uint64(n), one, many))
		}
	}
	add(l.Thoughts, "piece of a thought", "pieces of thoughts")
	add(l.Output, "byte of tools' output", "bytes of tools' output")
	add(l.Diffs, "edit that is too large to be compared", "edits that are too large to be compared")
	add(l.Images, "image", "images")
	add(l.Secrets, "text that looks like a secret or was named", "texts that look like secrets or were named")
	return out
}

// events says which events are missing.
func (l *LeftOut) events() []string {
	var out []string
	if l.Events {
		out = append(out, "the beginning of the session, which its log has no more")
	}
	for _, r := range l.Lost[:min(len(l.Lost), maxPlaces)] {
		out = append(out, r.String()+", which its log has no more")
	}
	if n := len(l.Lost) - maxPlaces; n > 0 {
		out = append(out, count(uint64(n), "further place of which its log has no more", "further places of which its log has no more"))
	}
	if l.Missing > 0 {
		out = append(out, count(l.Missing, "event at the end, which was not copied from its node", "events at the end, which were not copied from its node"))
	}
	if l.MayMiss {
		out = append(out, "what the node did in the last moments, if that was more: it was lost at work")
	}
	return out
}

func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// String names the events.
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprintf("event %d", r.First)
	}
	return fmt.Sprintf("events %d to %d", r.First, r.Last)
}

// linesPage writes one JSON object on each line: the session, the entries, and what
// was left out.
type linesPage struct{ w *bufio.Writer }

func (p *linesPage) line(v any) {
	enc := json.NewEncoder(p.w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // of types of this package; what the writer says comes with Flush
}

func (p *linesPage) head(s *Session) { p.line(s) }
func (p *linesPage) entry(e *Entry)  { p.line(e) }
func (p *linesPage) foot(cost string, l *LeftOut) {
	p.line(struct {
		Cost    string   `json:"cost,omitempty"`
		LeftOut *LeftOut `json:"leftOut"`
	}{cost, l})
}

// heading is what stands above what somebody said.
func heading(e *Entry) string {
	switch e.Kind {
	case User:
		return "User"
	case Thought:
		return "Thought"
	case Question:
		return "Question"
	}
	return "Agent"
}

// about are the lines below the title.
func (s *Session) about() [][2]string {
	var out [][2]string
	for _, row := range [][2]string{
		{"Agent", s.Agent},
		{"Model", s.Model},
		{"Directory", s.Cwd},
		{"Session", s.ID},
		{"Begun", when(s.Created)},
		{"Last used", when(s.Updated)},
	} {
		if row[1] != "" {
			out = append(out, row)
		}
	}
	return out
}

func (s *Session) title() string {
	return firstOf(strings.Join(strings.Fields(s.Title), " "), "Session "+s.ID)
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// mark is how a status is shown.
func mark(status string) string {
	switch status {
	case "completed":
		return "✓"
	case "failed":
		return "✗"
	case "in_progress":
		return "▸"
	}
	return "○"
}

// summary is a call in one line.
func (t *Tool) summary() string {
	out := mark(t.Status) + " " + firstOf(t.Title, t.Command, t.ID)
	if t.Answer != "" {
		out += " (" + t.Answer + ")"
	}
	return out
}

// ending is how a turn ended, "" for the usual end.
func (t *Turn) ending() string {
	switch {
	case t.Error != "":
		return "The turn failed: " + t.Error
	case t.StopReason == "" || t.StopReason == "end_turn":
		return ""
	case t.StopReason == "cancelled":
		return "The turn was cancelled."
	}
	return "The turn ended: " + strings.ReplaceAll(t.StopReason, "_", " ")
}
