// Package codex runs Codex by the protocol of its app-server.
//
// One process, `codex app-server` with JSON-RPC lines both ways, serves all
// sessions of a connection; each session is a thread of it. It starts with the
// first request that needs it: initialize costs no process, unless the program
// must be asked for its version. When it ends by
// itself, the connection fails with how it ended, and its sessions go on in the
// next one by Codex's own resume.
//
// The client side is sourcegraph/jsonrpc2 over a stream of this package's own
// ([stream]), which bounds lines, and reports what is no message instead of
// ending the connection.
//
// A version whose app-server lacks requests that this needs is refused, with
// what to do.
//
// # Guarantees
//
// Events are routed by thread; those of a thread that a subagent has belong to
// the call that made it. A prompt ends with its own turn. A cancelled one ends
// what it left running and closes what it left open. What a repeated stream says
// again is shown once. The user's configuration is not written: folders are not
// declared trusted, a key that came with a session or the environment stays in
// memory. Secrets are in no arguments.
//
// translator is pure: a notification in, updates out. The session around it asks
// the client what Codex asks, and decides when a turn ends.
package codex
