package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Lenient decodes an object and forgives members of another type than expected:
// they belong to an agent that is newer than its bridge.
func Lenient(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && len(raw) > 0 && raw[0] == '{' {
		return nil
	}
	if err != nil {
		return fmt.Errorf("no JSON object: %w", err)
	}
	return nil
}

// Text decodes a JSON string, "" for anything else.
func Text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
