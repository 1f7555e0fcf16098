package transcript

import (
	"fmt"
	"regexp"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// Removed stands where something was taken out.
const Removed = secret.Removed

// MaxPatterns bounds how many patterns one transcript is made with.
const MaxPatterns = 32

// all returns what is taken out: what looks like a key, unless keepSecrets, and what the
// patterns match.
func all(patterns []*regexp.Regexp, keepSecrets bool) (out []secret.Form) {
	if !keepSecrets {
		out = secret.Forms()
	}
	for _, re := range patterns {
		out = append(out, secret.Form{RE: re})
	}
	return out
}

// Patterns compiles what people want to be taken out.
func Patterns(list []string) ([]*regexp.Regexp, error) {
	if len(list) > MaxPatterns {
		return nil, fmt.Errorf("%d patterns are too many, %d are the most", len(list), MaxPatterns)
	}
	var out []*regexp.Regexp
	for _, text := range list {
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", text, err)
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("pattern %q matches the empty text, so it would match everywhere", text)
		}
		out = append(out, re)
	}
	return out, nil
}

// Cleaner returns what takes secrets out of a text: what looks like a key, unless
// keepSecrets, and what the patterns match. It is nil when that is nothing.
func Cleaner(patterns []*regexp.Regexp, keepSecrets bool) func(text string) string {
	taken := all(patterns, keepSecrets)
	if len(taken) == 0 {
		return nil
	}
	return secret.Cleaner(taken)
}

// redactor takes secrets out of whole texts: pieces of a message may each have half
// of one.
type redactor struct {
	patterns []secret.Form
	found    int
}

func (r *redactor) text(s string) string {
	for _, one := range r.patterns {
		if !one.In(s) {
			continue
		}
		s = one.RE.ReplaceAllStringFunc(s, func(string) string {
			r.found++
			return Removed
		})
	}
	return s
}

// entry takes secrets out of all texts of an entry.
func (r *redactor) entry(e *Entry) {
	e.Text = r.text(e.Text)
	for i := range e.Files {
		e.Files[i].Name = r.text(e.Files[i].Name)
	}
	for i := range e.Plan {
		e.Plan[i].Content = r.text(e.Plan[i].Content)
	}
	if e.Turn != nil {
		e.Turn.Error = r.text(e.Turn.Error)
	}
	t := e.Tool
	if t == nil {
		return
	}
	t.Title, t.Command, t.Output, t.Answer = r.text(t.Title), r.text(t.Command), r.text(t.Output), r.text(t.Answer)
	for i := range t.Diffs {
		t.Diffs[i].Path, t.Diffs[i].Text = r.text(t.Diffs[i].Path), r.text(t.Diffs[i].Text)
	}
	for _, part := range t.Parts {
		r.entry(part)
	}
}
