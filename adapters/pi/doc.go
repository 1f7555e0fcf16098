// Package pi runs the Pi coding agent by its own line protocol.
//
// Each session has one process, `pi --mode rpc` with JSON lines both ways, for as
// long as the session is open. [Adapter.Open] starts none: a connection that only
// answers initialize, authenticate and session/list costs no process.
//
// # Guarantees
//
// Pi asks nobody before it runs a tool. A gate does: an extension of the session's
// own, gate.mjs, that asks through Pi's dialogs for every tool but those that read.
// A session whose gate has not answered does not start, unless its mode allows
// everything. The gate decides nothing; what it is not told to allow it blocks.
//
// What Pi streams again after a failure is shown once. A prompt ends when Pi has
// settled, so with its retries, compactions and whatever it queued. Pi's settings
// and logins are the user's: nothing is written into them, and of its
// conversations only those that were made here are deleted.
//
// translator is pure: a line in, updates out. program owns a process, session
// decides when a turn ends and answers what Pi asks.
package pi
