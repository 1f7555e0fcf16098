// Package acp is the Agent Client Protocol as this gateway needs it: frames
// that are routed without being decoded, and endpoints that decode them and act
// on them. The types are in package schema.
//
// # Guarantees
//
// A [Message] keeps the bytes its sender wrote. Parsing validates the whole
// frame as JSON and finds the envelope members and the session id, nothing
// else, so unknown methods, fields, variants and _meta pass through byte for
// byte. Rewriting an id or a session id replaces exactly those bytes.
//
// An [ID] is the JSON text of a JSON-RPC id: 0, -1, "0" and 1 are four
// different ids and stay so.
package acp
