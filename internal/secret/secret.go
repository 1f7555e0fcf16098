// Package secret finds what looks like a key in texts and addresses, so that it can be taken out of what
// people pass on.
package secret

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Removed stands where something was taken out.
const Removed = "[removed]"

// Form is a form that keys have. What one of them takes out without need is an unlucky
// word in a transcript; what they miss is a key on a public page.
type Form struct {
	Part string // of each text that matches: to look for it is much faster; "" for none
	RE   *regexp.Regexp
}

// In reports whether the text may have the form in it.
func (f Form) In(text string) bool { return strings.Contains(text, f.Part) }

// Forms returns the forms of keys. They are made when they are first used.
func Forms() []Form { return slices.Clone(forms()) }

var forms = sync.OnceValue(func() []Form {
	return []Form{
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

// Cleaner returns what takes the forms, and the values themselves, out of a text.
func Cleaner(forms []Form, values ...string) func(text string) string {
	var known []string
	for _, v := range values {
		quoted := rawjson.AppendQuoted(nil, v)
		known = append(known, v, string(quoted[1:len(quoted)-1])) // as it is, and as it stands in JSON
	}
	known = slices.DeleteFunc(known, func(v string) bool { return len(v) < shortest })
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) }) // one may be in another
	return func(text string) string {
		for _, v := range known {
			text = strings.ReplaceAll(text, v, Removed)
		}
		for _, f := range forms {
			if f.In(text) {
				text = f.RE.ReplaceAllLiteralString(text, Removed)
			}
		}
		return text
	}
}

// shortest is how long a value must be to be looked for: a shorter one is in many texts
// that it has nothing to do with.
const shortest = 8

// PWD alone is the working directory.
var telling = pattern.New(`(?i)key|token|secret|passw|pass$|_pass_|_pwd$|credential|dsn$|(^|_)pat$`)

// Values returns the values of variables, NAME=value, whose names say that they are
// secrets.
func Values(environ []string) []string {
	var out []string
	for _, one := range environ {
		if name, value, ok := strings.Cut(one, "="); ok && telling.MatchString(name) {
			out = append(out, value)
		}
	}
	return out
}
