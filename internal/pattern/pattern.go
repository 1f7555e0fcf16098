// Package pattern has regular expressions that are compiled when they are used first. A gateway
// links some sixty, and a start of it uses few: to compile all of them took a tenth of it.
package pattern

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression. It is safe for concurrent use.
type Pattern struct {
	compiled func() *regexp.Regexp
}

// New returns the pattern of an expression that is known when the program is built. One that is none
// panics when it is used; a test of the repository compiles all of them.
func New(expr string) *Pattern {
	return &Pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
}

// MatchString is that of [regexp.Regexp], like all that follow.
func (p *Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// Match reports whether b has a match.
func (p *Pattern) Match(b []byte) bool { return p.compiled().Match(b) }

// Find returns the first match.
func (p *Pattern) Find(b []byte) []byte { return p.compiled().Find(b) }

// FindString returns the first match.
func (p *Pattern) FindString(s string) string { return p.compiled().FindString(s) }

// FindStringSubmatch returns the first match and its groups.
func (p *Pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

// FindSubmatch returns the first match and its groups.
func (p *Pattern) FindSubmatch(b []byte) [][]byte { return p.compiled().FindSubmatch(b) }

// FindAllStringSubmatch returns the first n matches and their groups, all for -1.
func (p *Pattern) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}

// FindIndex returns where the first match begins and ends.
func (p *Pattern) FindIndex(b []byte) []int { return p.compiled().FindIndex(b) }

// ReplaceAll replaces all matches.
func (p *Pattern) ReplaceAll(b, with []byte) []byte { return p.compiled().ReplaceAll(b, with) }

// ReplaceAllString replaces all matches.
func (p *Pattern) ReplaceAllString(s, with string) string {
	return p.compiled().ReplaceAllString(s, with)
}
