package acp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// JSON-RPC and ACP error codes.
const (
	CodeParseError       int64 = -32700
	CodeInvalidRequest   int64 = -32600
	CodeMethodNotFound   int64 = -32601
	CodeInvalidParams    int64 = -32602
	CodeInternal         int64 = -32603
	CodeCancelled        int64 = -32800
	CodeAuthRequired     int64 = -32000
	CodeResourceNotFound int64 = -32002
)

// Error is the error member of a JSON-RPC response. Returned by a handler it
// is sent as it is; any other error becomes [CodeInternal].
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error implements error with the message and, when it is short and says more than
// the code, the data.
func (e *Error) Error() string {
	if len(e.Data) > 0 && len(e.Data) <= 512 && !bytes.Equal(e.Data, (&Error{Code: e.Code}).typed()) {
		return fmt.Sprintf("%s (code %d): %s", e.Message, e.Code, e.Data)
	}
	return fmt.Sprintf("%s (code %d)", e.Message, e.Code)
}

// Errorf returns an Error with a formatted message and no data.
func Errorf(code int64, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NeedTexts refuses members of raw that are no texts: else they would be taken for left out. Place is how raw is
// called in the error, such as "params".
func NeedTexts(raw json.RawMessage, place string, members ...string) *Error {
	for _, name := range members {
		if v, ok := rawjson.Member(raw, name); ok && v[0] != '"' && string(v) != "null" {
			return Errorf(CodeInvalidParams, "%s.%s must be a text, not %.40s", place, name, v)
		}
	}
	return nil
}

// NeedFlags is [NeedTexts] for members that are true or false.
func NeedFlags(raw json.RawMessage, place string, members ...string) *Error {
	for _, name := range members {
		if v, ok := rawjson.Member(raw, name); ok && string(v) != "true" && string(v) != "false" && string(v) != "null" {
			return Errorf(CodeInvalidParams, "%s.%s must be true or false, not %.40s", place, name, v)
		}
	}
	return nil
}

// NeedOwnTexts is [NeedTexts] for fields of the gateway's own in _meta.
func NeedOwnTexts(meta json.RawMessage, fields ...string) *Error {
	own, _ := rawjson.Member(meta, MetaKey)
	return NeedTexts(own, `_meta["`+MetaKey+`"]`, fields...)
}

// typePrefix begins the type of an error's data, which is that of a problem document.
const typePrefix = "urn:sandbox-agent:error:"

// kind names the row of the table of problems that an error without a more exact one
// belongs to.
func (e *Error) kind() string {
	switch e.Code {
	case CodeParseError, CodeInvalidRequest, CodeInvalidParams:
		return "invalid_request"
	case CodeMethodNotFound:
		return "not_supported"
	case CodeAuthRequired:
		return "auth_required"
	case CodeResourceNotFound:
		return "not_found"
	case CodeCancelled:
		return "cancelled"
	case CodeInternal:
		return "internal"
	}
	return "" // somebody else's
}

// typed returns the data with a type: what clients branch on.
func (e *Error) typed() json.RawMessage {
	if e.kind() == "" {
		return e.Data
	}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return rawjson.Object{}.String("type", typePrefix+e.kind()).End()
	}
	if _, given := rawjson.Member(e.Data, "type"); given || e.Data[0] != '{' {
		return e.Data
	}
	return rawjson.SetMember(e.Data, rawjson.AppendQuoted(nil, typePrefix+e.kind()), "type")
}

// WithData returns a copy of e whose data is the JSON encoding of v.
func (e *Error) WithData(v any) *Error {
	c := *e
	if b, err := json.Marshal(v); err == nil {
		c.Data = b
	}
	return &c
}
