// Package claude runs Claude Code by its own line protocol.
//
// Each session has one process, `claude -p` with JSON lines both ways, for as
// long as the session is open. [Adapter.Open] starts none: a connection that only
// answers initialize, authenticate and session/list costs no process.
//
// # Guarantees
//
// What the program reports partially and then as a whole is shown once. A prompt
// ends when its own result has come, never with the result of a turn that nobody
// prompted; it is sent only when no other turn runs. The program's settings and
// transcripts are the user's: nothing is written into them, folders are not
// declared trusted, and only transcripts of sessions that were made here are
// deleted. Secrets reach the program in its environment, on stdin or in files
// that only this user can read, never in its arguments.
//
// translator is pure: a line in, updates out. The session around it owns the
// process, asks the client what the program asks, and decides when a turn ends.
package claude
