package acp

import "errors"

// Refusal is the answer to bytes that cannot be taken as a message; err says
// why, as [Parse] does. It names the request that the bytes were to be where
// their id can be read, and null otherwise.
func Refusal(err error) Message {
	if bad, ok := errors.AsType[*ParseError](err); ok {
		return NewError(bad.ID, Errorf(bad.Code, "%s", bad.Reason))
	}
	return NewError(NullID, Errorf(CodeInvalidRequest, "%s", err.Error()))
}

// NotInitialized is the answer to a request before initialize.
func NotInitialized(id ID) Message {
	return NewError(id, Errorf(CodeInvalidRequest, "the first message must be an initialize request"))
}
