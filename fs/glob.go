package fs

import (
	"regexp"
	"strings"
)

// glob makes a regular expression of a pattern as git and shells have it: *
// and ? stay within a part of the path, ** does not, [a-z] is one of a set, and
// a backslash takes the meaning of what follows. ok is false for patterns that
// match nothing.
func glob(pattern string, flags string) (re *regexp.Regexp, ok bool) {
	var b strings.Builder
	b.WriteString("(?s" + flags + ")^")
	for i := 0; i < len(pattern); {
		rest := pattern[i:]
		start := i == 0 || pattern[i-1] == '/'
		switch {
		case start && strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += 3
		case start && rest == "**":
			b.WriteString(".*")
			i += 2
		case rest[0] == '*':
			b.WriteString("[^/]*")
			for i < len(pattern) && pattern[i] == '*' {
				i++
			}
		case rest[0] == '?':
			b.WriteString("[^/]")
			i++
		case rest[0] == '[':
			set, n := globSet(rest)
			if n == 0 {
				return nil, false
			}
			b.WriteString(set)
			i += n
		case rest[0] == '\\':
			if len(rest) == 1 {
				return nil, false
			}
			i++
			rest = rest[1:]
			fallthrough
		default:
			n := 1
			for n < len(rest) && rest[n]&0xC0 == 0x80 { // the rest of a character
				n++
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			i += n
		}
	}
	b.WriteString("$")
	re, err := regexp.Compile(b.String())
	return re, err == nil
}

// globSet translates the set that s begins with and returns its length, 0 when
// it has no end.
func globSet(s string) (set string, n int) {
	var b strings.Builder
	b.WriteByte('[')
	i := 1
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		b.WriteString("^/") // no set matches a slash
		i++
	}
	for first := true; i < len(s); first = false {
		switch {
		case s[i] == ']' && !first:
			b.WriteByte(']')
			return b.String(), i + 1
		case strings.HasPrefix(s[i:], "[:"):
			end := strings.Index(s[i:], ":]")
			if end < 0 {
				return "", 0
			}
			b.WriteString(s[i : i+end+2])
			i += end + 2
			continue
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte('\\')
			b.WriteByte(s[i])
		case strings.IndexByte(`[]\^&~`, s[i]) >= 0:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
		i++
	}
	return "", 0
}
