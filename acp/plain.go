package acp

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// escapes are what programs say to terminals: colours, titles, and how the cursor moves.
var escapes = pattern.New(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\^_])`)

// encoded finds what may be control characters in JSON.
var encoded = pattern.New(`\\u00[01789]|\\[bf]|[\x{80}-\x{9f}]`)

// plain is a text without what is for terminals only. Errors quote programs, and are
// shown in terminals and logs, where control characters could draw anything.
func plain(s string) string {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, control) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if control(r) {
			return -1
		}
		return r
	}, escapes.ReplaceAllString(s, ""))
}

// plainJSON is data whose texts are plain.
func plainJSON(data json.RawMessage) json.RawMessage {
	if !encoded.Match(data) {
		return data
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return data
	}
	if b, err := schema.Encode(plainValue(v)); err == nil {
		return b
	}
	return data
}

func plainValue(v any) any {
	switch v := v.(type) {
	case string:
		return plain(v)
	case []any:
		for i := range v {
			v[i] = plainValue(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plainValue(v[name])
		}
	}
	return v
}
