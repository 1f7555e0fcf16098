package acp

import (
	"encoding/json"
	"unicode/utf8"
)

// Member returns the raw value at path below raw, walking objects by key.
func Member(raw json.RawMessage, path ...string) (json.RawMessage, bool) {
	for _, key := range path {
		v, ok := findMember(raw, key)
		if !ok {
			return nil, false
		}
		raw = raw[v.from:v.to]
	}
	return raw, len(raw) > 0
}

// MemberString returns the string at path below raw, "" when there is none.
func MemberString(raw json.RawMessage, path ...string) string {
	v, ok := Member(raw, path...)
	if !ok || v[0] != '"' {
		return ""
	}
	return unquote(v)
}

// MemberBool reports whether the value at path below raw is true.
func MemberBool(raw json.RawMessage, path ...string) bool {
	v, ok := Member(raw, path...)
	return ok && string(v) == "true"
}

// SetMember returns raw with value at path; objects on the way that are missing
// are made, everything else keeps its bytes. raw must be valid JSON; where it,
// or a step of the path, is not an object, it is replaced by one.
func SetMember(raw json.RawMessage, value []byte, path ...string) json.RawMessage {
	out, ok := appendSet(make([]byte, 0, len(raw)+len(value)+64), raw, value, path)
	if !ok {
		return raw
	}
	return out
}

// appendSet appends obj with value at path to dst.
func appendSet(dst, obj, value []byte, path []string) ([]byte, bool) {
	if len(path) == 0 {
		return append(dst, value...), true
	}
	s := scanner{b: obj}
	if i := s.space(0); i >= len(obj) || obj[i] != '{' {
		obj = []byte("{}")
	}
	v, found := findMember(obj, path[0])
	if found {
		dst = append(dst, obj[:v.from]...)
		var ok bool
		if dst, ok = appendSet(dst, obj[v.from:v.to], value, path[1:]); !ok {
			return dst, false
		}
		return append(dst, obj[v.to:]...), true
	}
	end := len(obj)
	for end > 0 && obj[end-1] != '}' {
		end--
	}
	if end == 0 {
		return dst, false
	}
	dst = append(dst, obj[:end-1]...)
	if !emptyObject(obj) {
		dst = append(dst, ',')
	}
	for i, key := range path {
		if i > 0 {
			dst = append(dst, '{')
		}
		dst = AppendQuoted(dst, key)
		dst = append(dst, ':')
	}
	dst = append(dst, value...)
	for range len(path) - 1 {
		dst = append(dst, '}')
	}
	return append(dst, obj[end-1:]...), true
}

// findMember returns where the last member named key has its value in obj.
func findMember(obj []byte, key string) (span, bool) {
	s := scanner{b: obj}
	var found span
	i := s.space(0)
	if i >= len(obj) || obj[i] != '{' {
		return found, false
	}
	end := s.object(i, 0, func(k []byte, v span) int {
		end := s.value(v.from, 1)
		if string(k) == key && end > 0 {
			found = span{v.from, end}
		}
		return end
	})
	return found, end > 0 && found.set()
}

func emptyObject(obj []byte) bool {
	s := scanner{b: obj}
	i := s.space(s.space(0) + 1)
	return i < len(obj) && obj[i] == '}'
}

const hexDigits = "0123456789abcdef"

// AppendQuoted appends s as a JSON string without HTML escaping. Invalid UTF-8
// becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// unquote returns the value of a JSON string token.
func unquote(tok []byte) string {
	for _, c := range tok {
		if c == '\\' {
			var s string
			if json.Unmarshal(tok, &s) != nil {
				return ""
			}
			return s
		}
	}
	return string(tok[1 : len(tok)-1])
}

// DeleteMember returns raw without the member at path; everything else keeps
// its bytes. Without such a member it returns raw.
func DeleteMember(raw json.RawMessage, path ...string) json.RawMessage {
	if len(path) == 0 {
		return raw
	}
	last := len(path) - 1
	parent, ok := Member(raw, path[:last]...)
	if !ok || !hasMember(parent, path[last]) {
		return raw
	}
	out := []byte{'{'}
	s := scanner{b: parent}
	i := s.space(0)
	var at int // where the current member's key begins
	at = s.space(i + 1)
	s.object(i, 0, func(key []byte, v span) int {
		end := s.value(v.from, 1)
		if end > 0 && string(key) != path[last] {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, parent[at:end]...)
		}
		if end > 0 {
			if at = s.space(end); at < len(parent) && parent[at] == ',' {
				at = s.space(at + 1)
			}
		}
		return end
	})
	return SetMember(raw, append(out, '}'), path[:last]...)
}

func hasMember(obj []byte, key string) bool {
	_, ok := findMember(obj, key)
	return ok
}

// Elements returns the raw elements of a JSON array, nil for anything else.
func Elements(raw json.RawMessage) []json.RawMessage {
	s := scanner{b: raw}
	i := s.space(0)
	if i >= len(raw) || raw[i] != '[' {
		return nil
	}
	var out []json.RawMessage
	for i = s.space(i + 1); i < len(raw) && raw[i] != ']'; {
		end := s.value(i, 1)
		if end < 0 {
			return nil
		}
		out = append(out, raw[i:end:end])
		if i = s.space(end); i < len(raw) && raw[i] == ',' {
			i = s.space(i + 1)
		}
	}
	return out
}

// SplitSession returns the frame's bytes before and after the value of
// params.sessionId, which must be present.
func (m *Message) SplitSession() (before, after []byte) {
	return m.frame[:m.session.from], m.frame[m.session.to:]
}

// UpdateKind returns params.update.sessionUpdate without decoding the rest, nil
// when there is none. It costs no allocation where that is the update's first
// member.
func (m *Message) UpdateKind() []byte {
	u := m.Update()
	const first = `{"sessionUpdate":"`
	if len(u) > len(first) && string(u[:len(first)]) == first {
		if i := indexQuote(u[len(first):]); i >= 0 {
			return u[len(first) : len(first)+i]
		}
	}
	return []byte(MemberString(u, "sessionUpdate"))
}

func indexQuote(b []byte) int {
	for i, c := range b {
		switch c {
		case '"':
			return i
		case '\\':
			return -1
		}
	}
	return -1
}
