package acp

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a frame, as encoding/json does.
const maxDepth = 1000

// ParseError says why bytes are not a message.
type ParseError struct {
	Code   int64 // CodeParseError when not JSON, CodeInvalidRequest when not an envelope
	ID     ID    // the id, when one could be read
	Reason string
	Batch  bool // the frame is a JSON array
	Object bool // the frame is an object, but no JSON-RPC message
}

func (e *ParseError) Error() string { return e.Reason }

// ErrInvalidUTF8 is the reason of a [ParseError] for a frame that is not UTF-8.
const ErrInvalidUTF8 = "the frame is not valid UTF-8"

// Parse validates frame as JSON and as a JSON-RPC 2.0 envelope and finds the
// members that routing needs. It never decodes params or results. The returned
// Message refers to frame; raw line breaks between tokens are replaced by
// blanks in place, so that a frame is always one line. The error is a
// *ParseError.
func Parse(frame []byte) (Message, error) {
	var m Message
	if !utf8.Valid(frame) {
		return m, &ParseError{Code: CodeParseError, Reason: ErrInvalidUTF8}
	}
	s := scanner{b: frame}
	i := s.space(0)
	for j := len(frame); j > i && isSpace(frame[j-1]); j-- {
		frame = frame[:j-1]
	}
	if i >= len(frame) {
		return m, &ParseError{Code: CodeParseError, Reason: "the frame is empty"}
	}
	frame = frame[i:]
	s.b = frame
	if frame[0] != '{' {
		if end := s.value(0, 0); end != len(frame) {
			return m, s.syntax()
		}
		if frame[0] == '[' {
			return m, &ParseError{Code: CodeInvalidRequest, Batch: true, Reason: "batches are not supported: send one JSON-RPC object per frame"}
		}
		return m, &ParseError{Code: CodeInvalidRequest, Reason: "the frame is not a JSON object"}
	}
	m.frame = frame
	var version, method span
	end := s.object(0, 0, func(key []byte, v span) int {
		switch string(key) {
		case "jsonrpc":
			version.from = v.from
		case "id":
			m.id.from = v.from
		case "method":
			method.from = v.from
		case "params":
			if frame[v.from] == '{' {
				m.session, m.update, m.meta = span{}, span{}, span{}
				end := s.params(v.from, &m)
				m.params = span{v.from, end}
				return end
			}
			m.params.from = v.from
		case "result":
			m.result.from = v.from
		case "error":
			m.err.from = v.from
		}
		end := s.value(v.from, 1)
		switch string(key) {
		case "jsonrpc":
			version.to = end
		case "id":
			m.id.to = end
		case "method":
			method.to = end
		case "params":
			m.params.to = end
		case "result":
			m.result.to = end
		case "error":
			m.err.to = end
		}
		return end
	})
	if end != len(frame) {
		return Message{}, s.syntax()
	}
	if s.breaks {
		for k, c := range frame {
			if c == '\n' || c == '\r' {
				frame[k] = ' '
			}
		}
	}
	if err := m.check(version, method); err != nil {
		return Message{}, err
	}
	return m, nil
}

// check applies the rules of JSON-RPC 2.0 to the envelope.
func (m *Message) check(version, method span) error {
	bad := func(format string, args ...any) error {
		e := &ParseError{Code: CodeInvalidRequest, Object: true, Reason: fmt.Sprintf(format, args...)}
		if m.id.set() {
			e.ID = m.ID()
		}
		return e
	}
	if m.id.set() {
		if m.id.to-m.id.from > maxIDLen {
			return tooLong("the id")
		}
		switch c := m.frame[m.id.from]; c {
		case '{', '[', 't', 'f':
			m.id = span{}
			return bad("the id must be a string, a number or null")
		}
	}
	if !version.set() || string(m.at(version)) != `"2.0"` {
		return bad(`the member jsonrpc must be "2.0"`)
	}
	if m.session.set() && m.session.to-m.session.from > maxIDLen {
		return tooLong("params.sessionId")
	}
	switch {
	case method.set():
		if m.frame[method.from] != '"' {
			return bad("the method must be a string")
		}
		if m.result.set() || m.err.set() {
			return bad("a frame has a method or a result or an error, not several")
		}
		m.method = internMethod(m.frame[method.from:method.to])
		if m.method == "" {
			return bad("the method is empty")
		}
		if m.params.set() {
			if c := m.frame[m.params.from]; c != '{' && c != '[' && c != 'n' {
				return bad("params must be an object or an array")
			}
		}
	case !m.id.set():
		return bad("the frame has neither a method nor an id")
	case m.result.set() == m.err.set():
		return bad("a response has a result or an error, and not both")
	}
	return nil
}

// tooLong refuses what cannot even be answered by its id.
func tooLong(what string) error {
	return &ParseError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("%s is longer than %d bytes", what, maxIDLen)}
}

// scanner walks validated JSON. Every method takes the index of a token's first
// byte and returns the index behind it, or -1 for bad syntax.
type scanner struct {
	b      []byte
	bad    int  // where syntax failed
	breaks bool // a raw line break stood between tokens
}

func (s *scanner) syntax() error {
	return &ParseError{Code: CodeParseError, Reason: fmt.Sprintf("invalid JSON at byte %d of %d", s.bad, len(s.b))}
}

func (s *scanner) fail(i int) int {
	s.bad = max(s.bad, min(i, len(s.b)))
	return -1
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (s *scanner) space(i int) int {
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

// params scans the params object and notes what routing needs of it.
func (s *scanner) params(i int, m *Message) int {
	return s.object(i, 1, func(key []byte, v span) int {
		end := s.value(v.from, 2)
		if end < 0 {
			return end
		}
		v.to = end
		switch string(key) {
		case "sessionId":
			m.session = span{}
			if s.b[v.from] == '"' {
				m.session = v
			}
		case "update":
			m.update = v
		case "_meta":
			m.meta = v
		}
		return end
	})
}

// object calls member for each member; it scans the value and returns its end.
func (s *scanner) object(i, depth int, member func(key []byte, v span) int) int {
	if depth > maxDepth {
		return s.fail(i)
	}
	i = s.space(i + 1)
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
				key = []byte(unquote(s.b[i:end]))
				break
			}
		}
		i = s.space(end)
		if i >= len(s.b) || s.b[i] != ':' {
			return s.fail(i)
		}
		i = s.space(i + 1)
		if i >= len(s.b) {
			return s.fail(i)
		}
		if i = member(key, span{from: i}); i < 0 {
			return i
		}
		i = s.space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

// value skips any value without looking at its content.
func (s *scanner) value(i, depth int) int {
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

func (s *scanner) skipObject(i, depth int) int {
	if depth > maxDepth {
		return s.fail(i)
	}
	i = s.space(i + 1)
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
		i = s.space(i)
		if i >= len(s.b) || s.b[i] != ':' {
			return s.fail(i)
		}
		if i = s.value(s.space(i+1), depth+1); i < 0 {
			return i
		}
		i = s.space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

func (s *scanner) skipArray(i, depth int) int {
	if depth > maxDepth {
		return s.fail(i)
	}
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == ']' {
		return i + 1
	}
	for {
		if i = s.value(i, depth+1); i < 0 {
			return i
		}
		i = s.space(i)
		if i >= len(s.b) {
			return s.fail(i)
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.fail(i)
		}
	}
}

func (s *scanner) literal(i int, word string) int {
	if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
		return s.fail(i)
	}
	return i + len(word)
}

func (s *scanner) number(i int) int {
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
func (s *scanner) str(i int) int {
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
