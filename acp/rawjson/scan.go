package rawjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxDepth bounds the nesting of values, as encoding/json does.
const maxDepth = 1000

// Span is a half-open range of bytes; the zero Span is an absent value.
type Span struct{ From, To int }

// IsSet reports whether the span is not the zero Span.
func (s Span) IsSet() bool { return s.To > 0 }

// Scanner walks JSON and checks its syntax. Every method takes the index of a
// token's first byte and returns the index behind it, or -1 for bad syntax.
type Scanner struct {
	b      []byte
	bad    int  // where syntax failed
	deep   bool // it failed because values are nested too deeply
	breaks bool // a raw line break stood between tokens
}

// NewScanner returns a scanner of b.
func NewScanner(b []byte) Scanner { return Scanner{b: b} }

// Breaks reports whether a raw line break stood between the tokens read so far.
func (s *Scanner) Breaks() bool { return s.breaks }

// Err says where the syntax failed, after a method returned -1.
func (s *Scanner) Err() error { return &SyntaxError{At: s.bad, Len: len(s.b), Deep: s.deep} }

// SyntaxError says where bytes stop being JSON, or where their nesting becomes too
// deep.
type SyntaxError struct {
	At, Len int
	Deep    bool
}

func (e *SyntaxError) Error() string {
	if e.Deep {
		return fmt.Sprintf("the JSON is nested deeper than %d levels at byte %d of %d", maxDepth, e.At, e.Len)
	}
	return fmt.Sprintf("invalid JSON at byte %d of %d", e.At, e.Len)
}

func (s *Scanner) fail(i int) int {
	s.bad = max(s.bad, min(i, len(s.b)))
	return -1
}

// IsSpace reports whether c is white space between tokens.
func IsSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Space skips white space.
func (s *Scanner) Space(i int) int {
	for i < len(s.b) && s.b[i] <= ' ' {
		switch s.b[i] {
		case '\n', '\r':
			s.breaks = true
		case ' ', '\t':
		default:
			return i
		}
		i++
	}
	return i
}

// Object calls member with each key and where its value begins; member scans the
// value and returns its end. depth is how many values enclose the object.
func (s *Scanner) Object(i, depth int, member func(key []byte, at int) int) int {
	if depth > maxDepth {
		s.deep = true
		return s.fail(i)
	}
	i = s.Space(i + 1)
	if i < len(s.b) && s.b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(s.b) || s.b[i] != '"' {
			return s.fail(i)
		}
		end := s.str(i)
		if end < 0 {
			return end
		}
		key := s.b[i+1 : end-1]
		for _, c := range key {
			if c == '\\' {
				key = []byte(Unquote(s.b[i:end]))
				break
			}
		}
		i = s.Space(end)
		if i >= len(s.b) || s.b[i] != ':' {
			return s.fail(i)
		}
		i = s.Space(i + 1)
		if i >= len(s.b) {
			return s.fail(i)
		}
		if i = member(key, i); i < 0 {
			return i
		}
		i = s.Space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.Space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

// Value skips any value without looking at its content. depth is how many values
// enclose it.
func (s *Scanner) Value(i, depth int) int {
	if i >= len(s.b) {
		return s.fail(i)
	}
	switch c := s.b[i]; c {
	case '"':
		return s.str(i)
	case '{':
		return s.skipObject(i, depth)
	case '[':
		return s.skipArray(i, depth)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		return s.number(i)
	}
}

func (s *Scanner) skipObject(i, depth int) int {
	if depth > maxDepth {
		s.deep = true
		return s.fail(i)
	}
	i = s.Space(i + 1)
	if i < len(s.b) && s.b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(s.b) || s.b[i] != '"' {
			return s.fail(i)
		}
		if i = s.str(i); i < 0 {
			return i
		}
		i = s.Space(i)
		if i >= len(s.b) || s.b[i] != ':' {
			return s.fail(i)
		}
		if i = s.Value(s.Space(i+1), depth+1); i < 0 {
			return i
		}
		i = s.Space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.Space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

func (s *Scanner) skipArray(i, depth int) int {
	if depth > maxDepth {
		s.deep = true
		return s.fail(i)
	}
	i = s.Space(i + 1)
	if i < len(s.b) && s.b[i] == ']' {
		return i + 1
	}
	for {
		if i = s.Value(i, depth+1); i < 0 {
			return i
		}
		i = s.Space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.Space(i + 1)
		case ']':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

func (s *Scanner) literal(i int, word string) int {
	if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
		return s.fail(i)
	}
	return i + len(word)
}

func (s *Scanner) number(i int) int {
	b := s.b
	at := func(i int) byte {
		if i < len(b) {
			return b[i]
		}
		return 0
	}
	digits := func(i int) int {
		j := i
		for isDigit(at(j)) {
			j++
		}
		if j == i {
			return -1
		}
		return j
	}
	if at(i) == '-' {
		i++
	}
	start := i
	if at(i) == '0' {
		i++
	} else if i = digits(i); i < 0 {
		return s.fail(start)
	}
	if at(i) == '.' {
		if start, i = i, digits(i+1); i < 0 {
			return s.fail(start)
		}
	}
	if c := at(i); c == 'e' || c == 'E' {
		i++
		if c := at(i); c == '+' || c == '-' {
			i++
		}
		if start, i = i, digits(i); i < 0 {
			return s.fail(start)
		}
	}
	return i
}

func isDigit(c byte) bool { return c-'0' <= 9 }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str skips a string, eight bytes at a time where nothing needs a look.
func (s *Scanner) str(i int) int {
	b := s.b
	start := i
	i++
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote := w ^ (ones * '"')
			slash := w ^ (ones * '\\')
			// The lowest set high bit marks the first byte that is a quote, a
			// backslash or a control character; bits above it may be false.
			hit := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
			if hit &= highs; hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return s.fail(start)
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < 0x20:
			return s.fail(i)
		case c != '\\':
			i++
		case i+1 >= len(b):
			return s.fail(start)
		default:
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) {
					return s.fail(start)
				}
				for _, h := range b[i+2 : i+6] {
					if !isDigit(h) && (h|0x20 < 'a' || h|0x20 > 'f') {
						return s.fail(i)
					}
				}
				i += 6
			default:
				return s.fail(i)
			}
		}
	}
}
