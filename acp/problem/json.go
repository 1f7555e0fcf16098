package problem

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// DecodeJSON reads the one JSON value of a body into v, which keeps what the value does not name. Members that v
// does not have, and those that stand there twice, are refused. Must is what the body must be, such as "an object with a name".
func DecodeJSON(b []byte, v any, must string) error {
	if !utf8.Valid(b) { // the decoder would put other characters in place of what it cannot read
		return New(InvalidRequest, "the body must be %s, and is not valid UTF-8", must)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return Wrap(InvalidRequest, InJSON(err), "the body must be %s", must)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return New(InvalidRequest, "the body must be %s, and there is something behind it", must)
	}
	if name, ok := doubled(json.NewDecoder(bytes.NewReader(b))); ok {
		return New(InvalidRequest, "the body must be %s, and has the member %q more than once", must, name)
	}
	if half := halved(b); half != "" {
		return New(InvalidRequest, "the body must be %s, and has %s without the other half of the character", must, half)
	}
	return nil
}

// halved returns the first escape for half of a character that stands alone, "" for none. The decoder would put
// another character in its place. The JSON can be decoded, so that each backslash begins an escape.
func halved(b []byte) string {
	unit := func(b []byte) rune { // of the escape that b begins with
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0
		}
		v, _ := strconv.ParseUint(string(b[2:6]), 16, 16)
		return rune(v)
	}
	for i := bytes.IndexByte(b, '\\'); i >= 0; {
		size := 2
		if first := unit(b[i:]); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, unit(b[i+6:])) == utf8.RuneError {
				return string(b[i : i+6])
			}
			size = 12
		}
		next := bytes.IndexByte(b[i+size:], '\\')
		if next < 0 {
			break
		}
		i += size + next
	}
	return ""
}

// doubled returns a member that an object of the next value has more than once. The value can be decoded.
func doubled(d *json.Decoder) (name string, ok bool) {
	begin, _ := d.Token()
	if begin != json.Delim('{') && begin != json.Delim('[') {
		return "", false
	}
	seen := map[string]bool{}
	for d.More() {
		if begin == json.Delim('{') {
			key, _ := d.Token()
			if name, _ = key.(string); seen[name] {
				return name, true
			}
			seen[name] = true
		}
		if name, ok = doubled(d); ok {
			return name, true
		}
	}
	_, _ = d.Token()
	return "", false
}

// InJSON says an error of encoding/json in the words of JSON: which member is wrong, and what it must be. Go's
// types tell nothing to who wrote the JSON.
func InJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		member := wrong.Field
		for { // types that are embedded stand before their members, and are not in the JSON
			name, rest, ok := strings.Cut(member, ".")
			if !ok || name == "" || name[0] < 'A' || name[0] > 'Z' {
				break
			}
			member = rest
		}
		if member == "" {
			member = "it"
		}
		return fmt.Errorf("%s must be %s, not %s", member, kindOf(wrong.Type), valueOf(wrong.Value))
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok || strings.HasPrefix(err.Error(), "Time.") {
		return errors.New("a time is written as in 2026-01-02T15:04:05Z")
	}
	if _, ok := errors.AsType[base64.CorruptInputError](err); ok {
		return errors.New("bytes are written in base64, and there is a text that is not")
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends in the middle")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("there is no member %s", name)
	}
	return err
}

// kindOf says what JSON a Go type is written as.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 on"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	}
	return "an object"
}

// valueOf says what encoding/json calls a value.
func valueOf(said string) string {
	kind, literal, _ := strings.Cut(said, " ")
	switch {
	case kind == "bool":
		return "true or false"
	case literal != "": // a number that does not fit
		return literal
	case kind == "array" || kind == "object":
		return "an " + kind
	}
	return "a " + kind
}
