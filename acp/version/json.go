package version

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// rename returns the object with the member from under the name to.
func rename(object json.RawMessage, from, to string) json.RawMessage {
	v, ok := rawjson.Member(object, from)
	if !ok {
		return object
	}
	return rawjson.SetMember(rawjson.DeleteMember(object, from), v, to)
}

// members calls each with the quoted names and the values of an object.
func members(object json.RawMessage, each func(name, value json.RawMessage)) {
	s := rawjson.NewScanner(object)
	i := s.Space(0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	s.Object(i, 0, func(key []byte, at int) int {
		end := s.Value(at, 1)
		if end > 0 {
			each(rawjson.AppendQuoted(nil, string(key)), object[at:end:end])
		}
		return end
	})
}

// array returns a JSON array of the elements.
func array(elements []json.RawMessage) json.RawMessage {
	out := json.RawMessage{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// list returns the array with each object in it replaced.
func list(raw json.RawMessage, replace func(json.RawMessage) json.RawMessage) json.RawMessage {
	var out []json.RawMessage
	for _, e := range rawjson.Elements(raw) {
		if e[0] == '{' {
			e = replace(e)
		}
		out = append(out, e)
	}
	return array(out)
}

// withoutNulls returns the object without those of its members named that are null.
func withoutNulls(object json.RawMessage, names ...string) json.RawMessage {
	for _, name := range names {
		if v, ok := rawjson.Member(object, name); ok && string(v) == "null" {
			object = rawjson.DeleteMember(object, name)
		}
	}
	return object
}
