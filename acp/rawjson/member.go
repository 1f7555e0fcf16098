package rawjson

import "encoding/json"

// Member returns the raw value at path below raw, walking objects by key.
func Member(raw json.RawMessage, path ...string) (json.RawMessage, bool) {
	for _, key := range path {
		v, ok := find(raw, key)
		if !ok {
			return nil, false
		}
		raw = raw[v.From:v.To]
	}
	return raw, len(raw) > 0
}

// MemberString returns the string at path below raw, "" when there is none.
func MemberString(raw json.RawMessage, path ...string) string {
	v, ok := Member(raw, path...)
	if !ok || v[0] != '"' {
		return ""
	}
	return Unquote(v)
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
	s := NewScanner(obj)
	if i := s.Space(0); i >= len(obj) || obj[i] != '{' {
		obj = []byte("{}")
	}
	v, found := find(obj, path[0])
	if found {
		dst = append(dst, obj[:v.From]...)
		var ok bool
		if dst, ok = appendSet(dst, obj[v.From:v.To], value, path[1:]); !ok {
			return dst, false
		}
		return append(dst, obj[v.To:]...), true
	}
	end := len(obj)
	for end > 0 && obj[end-1] != '}' {
		end--
	}
	if end == 0 {
		return dst, false
	}
	dst = append(dst, obj[:end-1]...)
	if !IsEmptyObject(obj) {
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

// find returns where the last member named key has its value in obj.
func find(obj []byte, key string) (Span, bool) {
	s := NewScanner(obj)
	var found Span
	i := s.Space(0)
	if i >= len(obj) || obj[i] != '{' {
		return found, false
	}
	end := s.Object(i, 0, func(k []byte, at int) int {
		end := s.Value(at, 1)
		if string(k) == key && end > 0 {
			found = Span{From: at, To: end}
		}
		return end
	})
	return found, end > 0 && found.IsSet()
}

// IsEmptyObject reports whether obj is an object without members.
func IsEmptyObject(obj []byte) bool {
	s := NewScanner(obj)
	i := s.Space(s.Space(0) + 1)
	return i < len(obj) && obj[i] == '}'
}

// DeleteMember returns raw without the member at path; everything else keeps
// its bytes. Without such a member it returns raw.
func DeleteMember(raw json.RawMessage, path ...string) json.RawMessage {
	if len(path) == 0 {
		return raw
	}
	last := len(path) - 1
	parent, ok := Member(raw, path[:last]...)
	if !ok || !has(parent, path[last]) {
		return raw
	}
	out := []byte{'{'}
	s := NewScanner(parent)
	i := s.Space(0)
	from := s.Space(i + 1) // where the current member's key begins
	s.Object(i, 0, func(key []byte, at int) int {
		end := s.Value(at, 1)
		if end > 0 && string(key) != path[last] {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, parent[from:end]...)
		}
		if end > 0 {
			if from = s.Space(end); from < len(parent) && parent[from] == ',' {
				from = s.Space(from + 1)
			}
		}
		return end
	})
	return SetMember(raw, append(out, '}'), path[:last]...)
}

func has(obj []byte, key string) bool {
	_, ok := find(obj, key)
	return ok
}

// Elements returns the raw elements of a JSON array, nil for anything else.
func Elements(raw json.RawMessage) []json.RawMessage {
	s := NewScanner(raw)
	i := s.Space(0)
	if i >= len(raw) || raw[i] != '[' {
		return nil
	}
	var out []json.RawMessage
	for i = s.Space(i + 1); i < len(raw) && raw[i] != ']'; {
		end := s.Value(i, 1)
		if end < 0 {
			return nil
		}
		out = append(out, raw[i:end:end])
		if i = s.Space(end); i < len(raw) && raw[i] == ',' {
			i = s.Space(i + 1)
		}
	}
	return out
}
