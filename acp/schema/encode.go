package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Encode returns the JSON of v on one line and without HTML escaping. A
// [json.RawMessage] in v, and so an unknown field or variant, keeps its bytes,
// except that line breaks between tokens become blanks. The protocol types of
// this package are written without reflection.
func Encode(v any) ([]byte, error) { return Append(nil, v) }

// appender is implemented by the generated types.
type appender interface {
	appendJSON(dst []byte) ([]byte, error)
}

// Append appends what [Encode] returns to dst.
func Append(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case json.RawMessage:
		return appendRaw(dst, v)
	case string:
		return rawjson.AppendQuoted(dst, v), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	case map[string]json.RawMessage:
		w := beginObject(dst)
		if v == nil {
			return append(dst, "null"...), nil
		}
		w.members(v, nil)
		return w.end()
	case appender:
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
			return append(dst, "null"...), nil
		}
		return v.appendJSON(dst)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst, err
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}

// appendRaw appends raw after it was checked to be one JSON value.
func appendRaw(dst []byte, raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return append(dst, "null"...), nil
	}
	s := rawjson.NewScanner(raw)
	from := s.Space(0)
	to := s.Value(from, 0)
	if to < 0 || s.Space(to) != len(raw) {
		return dst, fmt.Errorf("raw JSON: %w", s.Err())
	}
	at := len(dst)
	dst = append(dst, raw[from:to]...)
	if s.Breaks() {
		for i, c := range dst[at:] {
			if c == '\n' || c == '\r' {
				dst[at+i] = ' '
			}
		}
	}
	return dst, nil
}
