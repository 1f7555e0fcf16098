package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

//go:generate go run ../internal/gen

// The generated types share this codec. It exists because encoding/json drops
// what a struct does not name: here a member that the schema does not know goes
// to the struct's Extra, a null stays a null, and a variant that the schema does
// not know stays raw, so decoding and encoding again loses nothing. Members are
// matched exactly, not by case folding. A missing required member is an error
// when decoding; enumeration values are not checked.

// objectWriter appends the members of one JSON object.
type objectWriter struct {
	buf   []byte
	start int // of the object in buf
	err   error
}

func beginObject(dst []byte) *objectWriter {
	return &objectWriter{buf: append(dst, '{'), start: len(dst)}
}

func (w *objectWriter) end() ([]byte, error) {
	if w.err != nil {
		return w.buf[:w.start], w.err
	}
	return append(w.buf, '}'), nil
}

func (w *objectWriter) key(name string) {
	if len(w.buf) > w.start+1 {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(rawjson.AppendQuoted(w.buf, name), ':')
}

func (w *objectWriter) string(name, s string) {
	w.key(name)
	w.buf = rawjson.AppendQuoted(w.buf, s)
}

func (w *objectWriter) value(name string, v any) {
	w.key(name)
	w.done(name, func(dst []byte) ([]byte, error) { return Append(dst, v) })
}

func (w *objectWriter) done(name string, f func([]byte) ([]byte, error)) {
	buf, err := f(w.buf)
	w.buf = buf
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", name, err)
	}
}

// members writes m in the order of its keys, without those that skip names.
func (w *objectWriter) members(m map[string]json.RawMessage, skip func(key string) bool) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if skip == nil || !skip(k) {
			w.value(k, m[k])
		}
	}
}

// extra writes the members that the schema does not know, and the nulls of
// those it knows and that were not written.
func (w *objectWriter) extra(m map[string]json.RawMessage, field func(string) any) {
	if len(m) == 0 {
		return
	}
	written := w.buf[w.start:len(w.buf):len(w.buf)]
	written = append(written, '}')
	w.members(m, func(k string) bool {
		if field(k) == nil {
			return false
		}
		_, found := rawjson.Member(written, k)
		return found
	})
}

// writeList writes a list of generated values; nil is an empty list.
func writeList[T appender](w *objectWriter, name string, list []T) {
	w.key(name)
	w.done(name, func(dst []byte) ([]byte, error) { return appendList(dst, list) })
}

func appendList[T appender](dst []byte, list []T) ([]byte, error) {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = list[i].appendJSON(dst); err != nil {
			return dst, fmt.Errorf("%d: %w", i, err)
		}
	}
	return append(dst, ']'), nil
}

// decoder is implemented by the generated types.
type decoder interface {
	decodeJSON(b []byte) error
}

// decodeObject decodes the object b: field returns where a member is stored,
// nil for one that is unknown and goes to extra. The member tag is left out.
func decodeObject(b []byte, tag string, extra *map[string]json.RawMessage, field func(string) any, required ...string) error {
	s := rawjson.NewScanner(b)
	from := s.Space(0)
	if from >= len(b) || b[from] != '{' {
		return fmt.Errorf("%s where an object is expected", kindOf(b))
	}
	*extra = nil
	var failure error
	var seen uint64
	end := s.Object(from, 0, func(key []byte, at int) int {
		end := s.Value(at, 1)
		if end < 0 || failure != nil || tag != "" && string(key) == tag {
			return end
		}
		raw := b[at:end]
		if i := slices.Index(required, string(key)); i >= 0 {
			seen |= 1 << i
		}
		p := field(string(key))
		switch p.(type) {
		case nil:
		case *json.RawMessage: // a null is a value
			failure = decodeValue(raw, p)
			return end
		default:
			if raw[0] != 'n' {
				if err := decodeValue(raw, p); err != nil {
					failure = fmt.Errorf("%s: %w", key, err)
				}
				return end
			}
		}
		if *extra == nil {
			*extra = make(map[string]json.RawMessage)
		}
		(*extra)[string(key)] = bytes.Clone(raw)
		return end
	})
	if end < 0 {
		return s.Err()
	}
	if failure != nil {
		return failure
	}
	for i, name := range required {
		if seen&(1<<i) == 0 {
			return fmt.Errorf("%s: missing", name)
		}
	}
	return nil
}

// decodeValue decodes the valid JSON raw into p.
func decodeValue(raw []byte, p any) error {
	switch p := p.(type) {
	case decoder:
		return p.decodeJSON(raw)
	case *json.RawMessage:
		*p = bytes.Clone(raw)
		return nil
	case *string:
		return text(p).decodeJSON(raw)
	}
	err := json.Unmarshal(raw, p)
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Errorf("%s where %s is expected", te.Value, goKind(te.Type))
	}
	return err
}

// decodeList decodes a list of generated values.
func decodeList[T any, P interface {
	*T
	decoder
}](b []byte, list *[]T) error {
	var raw []json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return fmt.Errorf("%s where a list is expected", kindOf(b))
	}
	*list = make([]T, len(raw))
	for i, r := range raw {
		if err := P(&(*list)[i]).decodeJSON(r); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

// Adapters that make a decoder of where a field is stored.

type listOf[T any, P interface {
	*T
	decoder
}] struct{ at *[]T }

func list[T any, P interface {
	*T
	decoder
}](at *[]T,
) decoder {
	return listOf[T, P]{at}
}

func (l listOf[T, P]) decodeJSON(b []byte) error { return decodeList[T, P](b, l.at) }

type pointerTo[T any, P interface {
	*T
	decoder
}] struct{ at **T }

func optional[T any, P interface {
	*T
	decoder
}](at **T,
) decoder {
	return pointerTo[T, P]{at}
}

func (p pointerTo[T, P]) decodeJSON(b []byte) error {
	*p.at = new(T)
	return P(*p.at).decodeJSON(b)
}

type textOf[T ~string] struct{ at *T }

func text[T ~string](at *T) decoder { return textOf[T]{at} }

func (t textOf[T]) decodeJSON(b []byte) error {
	if b[0] != '"' {
		return fmt.Errorf("%s where a string is expected", kindOf(b))
	}
	*t.at = T(rawjson.Unquote(b))
	return nil
}

// variantTag returns the member of b that names the variant of a union, "" when
// it is absent.
func variantTag(b []byte, name string) (string, error) {
	s := rawjson.NewScanner(b)
	if i := s.Space(0); i >= len(b) || b[i] != '{' {
		return "", fmt.Errorf("%s where an object is expected", kindOf(b))
	}
	raw, ok := rawjson.Member(b, name)
	if !ok {
		return "", nil
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("%s: %s where a string is expected", name, kindOf(raw))
	}
	return rawjson.Unquote(raw), nil
}

// hasMembers reports whether the object b has all the members.
func hasMembers(b []byte, names ...string) bool {
	for _, name := range names {
		if _, ok := rawjson.Member(b, name); !ok {
			return false
		}
	}
	return true
}

// firstElement returns the first element of the list b.
func firstElement(b []byte) (first json.RawMessage, isList bool) {
	var list []json.RawMessage
	if json.Unmarshal(b, &list) != nil {
		return nil, false
	}
	if len(list) == 0 {
		return nil, true
	}
	return list[0], true
}

func appendUnknown(dst []byte, union string, raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return dst, fmt.Errorf("%s has no variant set", union)
	}
	return appendRaw(dst, raw)
}

// kindOf says what kind of JSON b begins with.
func kindOf(b []byte) string {
	b = bytes.TrimLeft(b, " \t\r\n")
	if len(b) == 0 {
		return "nothing"
	}
	switch b[0] {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}

func goKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a bool"
	}
	return "a number of type " + t.Kind().String()
}

// errMissing is the error for a required member that is absent.
func errMissing(name string) error { return fmt.Errorf("%s: missing", name) }

func optionalText(at **string) decoder { return optionalTextAt{at} }

type optionalTextAt struct{ at **string }

func (o optionalTextAt) decodeJSON(b []byte) error {
	*o.at = new(string)
	return text(*o.at).decodeJSON(b)
}
