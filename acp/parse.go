package acp

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// ParseError says why bytes are not a message.
type ParseError struct {
	Code   int64 // CodeParseError when not JSON, CodeInvalidRequest when not an envelope
	ID     ID    // of the request that the frame was to be, when it can be read
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
	frame = bytes.Trim(frame, " \t\r\n")
	if len(frame) == 0 {
		return m, &ParseError{Code: CodeParseError, Reason: "the frame is empty"}
	}
	s := rawjson.NewScanner(frame)
	if frame[0] != '{' {
		if end := s.Value(0, 0); end != len(frame) {
			return m, syntaxError(&s)
		}
		if frame[0] == '[' {
			return m, &ParseError{Code: CodeInvalidRequest, Batch: true, Reason: "batches are not supported: send one JSON-RPC object per frame"}
		}
		return m, &ParseError{Code: CodeInvalidRequest, Reason: "the frame is not a JSON object"}
	}
	m.frame = frame
	var version, method rawjson.Span
	end := s.Object(0, 0, func(key []byte, at int) int {
		var found *rawjson.Span
		switch string(key) {
		case "jsonrpc":
			found = &version
		case "id":
			found = &m.id
		case "method":
			found = &method
		case "params":
			if frame[at] == '{' {
				m.session, m.update, m.meta = rawjson.Span{}, rawjson.Span{}, rawjson.Span{}
				end := scanParams(&s, frame, at, &m)
				m.params = rawjson.Span{From: at, To: end}
				return end
			}
			found = &m.params
		case "result":
			found = &m.result
		case "error":
			found = &m.err
		}
		end := s.Value(at, 1)
		if found != nil {
			*found = rawjson.Span{From: at, To: end}
		}
		return end
	})
	if end != len(frame) {
		return Message{}, syntaxError(&s)
	}
	if s.Breaks() {
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
func (m *Message) check(version, method rawjson.Span) error {
	bad := func(format string, args ...any) error {
		e := &ParseError{Code: CodeInvalidRequest, Object: true, Reason: fmt.Sprintf(format, args...)}
		if response := !method.IsSet() && (m.result.IsSet() || m.err.IsSet()); m.id.IsSet() && !response {
			e.ID = m.ID()
		}
		return e
	}
	if m.id.IsSet() {
		if m.id.To-m.id.From > maxIDLen {
			return tooLong("the id")
		}
		switch c := m.frame[m.id.From]; c {
		case '{', '[', 't', 'f':
			m.id = rawjson.Span{}
			return bad("the id must be a string, a number or null")
		}
	}
	if !version.IsSet() || string(m.at(version)) != `"2.0"` {
		return bad(`the member jsonrpc must be "2.0"`)
	}
	if m.session.IsSet() && m.session.To-m.session.From > maxIDLen {
		return tooLong("params.sessionId")
	}
	switch {
	case method.IsSet():
		if m.frame[method.From] != '"' {
			return bad("the method must be a string")
		}
		if m.result.IsSet() || m.err.IsSet() {
			return bad("a frame has a method or a result or an error, not several")
		}
		m.method = internMethod(m.frame[method.From:method.To])
		if m.method == "" {
			return bad("the method is empty")
		}
		if m.id.IsSet() && m.frame[m.id.From] == 'n' {
			return bad("the id of a request must not be null")
		}
		if m.params.IsSet() {
			if c := m.frame[m.params.From]; c != '{' && c != '[' && c != 'n' {
				return bad("params must be an object or an array")
			}
		}
	case !m.id.IsSet():
		return bad("the frame has neither a method nor an id")
	case m.result.IsSet() == m.err.IsSet():
		return bad("a response has a result or an error, and not both")
	}
	return nil
}

// tooLong refuses what cannot even be answered by its id.
func tooLong(what string) error {
	return &ParseError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("%s is longer than %d bytes", what, maxIDLen)}
}

func syntaxError(s *rawjson.Scanner) error {
	return &ParseError{Code: CodeParseError, Reason: s.Err().Error()}
}

// scanParams scans the params object and notes what routing needs of it.
func scanParams(s *rawjson.Scanner, frame []byte, i int, m *Message) int {
	return s.Object(i, 1, func(key []byte, at int) int {
		end := s.Value(at, 2)
		if end < 0 {
			return end
		}
		v := rawjson.Span{From: at, To: end}
		switch string(key) {
		case "sessionId":
			m.session = rawjson.Span{}
			if frame[at] == '"' {
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
