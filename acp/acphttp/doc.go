// Package acphttp carries ACP over HTTP on one path: two dialects of
// POST, GET as server-sent events and DELETE, and WebSocket.
//
// It knows headers, bodies and streams, and nothing of sessions: those belong
// to the [acp.Gateway] behind it.
//
// # Dialects
//
// In the standard dialect (header Acp-Connection-Id) every POST is answered 202
// at once and everything the gateway says travels on event streams: one for the
// connection and one per session. In the inline dialect (X-ACP-Connection-Id) a
// request's response is the body of its POST and one stream carries the rest.
// initialize answers with both headers; the first later request decides.
//
// # Guarantees
//
// Requests are checked in a fixed order: method, media types, size, JSON,
// envelope, connection, dialect, session, stream. Every refusal is a problem
// document that says what to do. A turn may last for ever: a held response gets
// its headers after a while and a blank now and then. A client that does not
// read delays nobody; after the write deadline its stream is dropped and it can
// continue where it was.
package acphttp
