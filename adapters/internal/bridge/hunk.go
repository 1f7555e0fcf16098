package bridge

import (
	"strconv"
	"strings"
)

// Hunk is a changed place of a file.
type Hunk struct {
	Line          uint32 // where it begins in the new file, 0 when unknown
	Before, After string
}

// Hunks reads the changed places of a unified diff of one file. Lines before the
// first of them, such as the files' names, are left out.
func Hunks(diff string) []Hunk {
	var out []Hunk
	var before, after strings.Builder
	line := uint32(0)
	inside := false
	last := byte(0) // the kind of the line before
	shut := func() {
		if before.Len() > 0 || after.Len() > 0 {
			out = append(out, Hunk{line, before.String(), after.String()})
		}
		before.Reset()
		after.Reset()
	}
	for s := range strings.Lines(diff) {
		if strings.HasPrefix(s, "@@") {
			shut()
			line, inside, last = newLine(s), true, '@'
			continue
		}
		if !inside {
			continue
		}
		switch s[0] {
		case '-':
			before.WriteString(s[1:])
		case '+':
			after.WriteString(s[1:])
		case ' ':
			before.WriteString(s[1:])
			after.WriteString(s[1:])
		case '\\': // no newline at the end of the file
			if last != '+' {
				cutNewline(&before)
			}
			if last != '-' {
				cutNewline(&after)
			}
		}
		last = s[0]
	}
	shut()
	return out
}

func cutNewline(b *strings.Builder) {
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
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
