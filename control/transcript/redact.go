package transcript

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Removed stands where something was taken out.
const Removed = "[removed]"

// MaxPatterns bounds how many patterns one transcript is made with.
const MaxPatterns = 32

// secret is a form that keys have. What one of them takes out without need is an unlucky
// word in a transcript; what they miss is a key on a public page.
type secret struct {
	part string // of each text that matches: to look for it is much faster; "" for none
	re   *regexp.Regexp
}

// secrets are made when they are first used.
var secrets = sync.OnceValue(func() []secret {
	return []secret{
		{"sk-", regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`)},                                         // Anthropic, OpenAI, OpenRouter
		{"sgamp_", regexp.MustCompile(`\bsgamp_[A-Za-z0-9_-]{16,}`)},                                   // Amp
		{"_", regexp.MustCompile(`\b(ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}`)},                          // GitHub
		{"github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{20,}`)},                          // GitHub
		{"glpat-", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`)},                                   // GitLab
		{"npm_", regexp.MustCompile(`\bnpm_[A-Za-z0-9]{30,}`)},                                         // npm
		{"IA", regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)},                                      // AWS
		{"AIza", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`)},                                       // Google
		{"xox", regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`)},                                  // Slack
		{"eyJ", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)}, // JSON web tokens
		{"PRIVATE KEY-----", regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)},
		{":", regexp.MustCompile(`(?i)\b(authorization: *(bearer|basic) +)[^\s"']{8,}`)},
	}
})

// all returns what is taken out: what looks like a key, unless keepSecrets, and what the
// patterns match.
func all(patterns []*regexp.Regexp, keepSecrets bool) (out []secret) {
	if !keepSecrets {
		out = slices.Clone(secrets())
	}
	for _, re := range patterns {
		out = append(out, secret{re: re})
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
	return func(text string) string {
		for _, one := range taken {
			if strings.Contains(text, one.part) {
				text = one.re.ReplaceAllLiteralString(text, Removed)
			}
		}
		return text
	}
}

// redactor takes secrets out of whole texts: pieces of a message may each have half
// of one.
type redactor struct {
	patterns []secret
	found    int
}

func (r *redactor) text(s string) string {
	for _, one := range r.patterns {
		if !strings.Contains(s, one.part) {
			continue
		}
		s = one.re.ReplaceAllStringFunc(s, func(string) string {
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
