// Package amp runs Amp by its JSON lines: `amp --execute --stream-json-input`.
//
// Each session has a process of its own, for as long as the session is open and
// nothing ends it. The other way, a process for each prompt, would say by a line
// of its own when a turn is over, and was not taken: every prompt would wait
// seconds for the start and for the thread's upload, the servers that a turn
// leaves running would end with it, and an answer that was cut short makes the
// program wait for ever for its end. So the end of a turn is read from the last
// message: one that calls no tool. After an error, a cancel or a change of mode
// the program is gone, and the next prompt starts another one on the same thread
// by `threads continue`.
//
// # Guarantees
//
// A prompt ends when its answer is complete, with everything shown; calls that it
// left open are failed. What the program may do is decided by the session's
// permission mode and by clients: the program asks through a delegate, which is
// the gateway's own binary under another name, on a socket in a private folder.
// A delegate whose gateway is gone refuses. The user's settings are read and not
// written: the program gets a private copy with the session's rules in it.
// Secrets reach the program in its environment or in files that only this user
// can read, never in its arguments.
//
// # Releases
//
// Until spring 2026 the program ran its loop by itself; this package is verified
// with [Verified]. Since then the loop runs on Amp's server, which cannot be
// played here. Those releases have the same flags and are driven in the same way,
// unverified; a start that fails says so.
//
// translator is pure: a line in, updates out. The session around it owns the
// process, asks the client, and decides when a turn ends.
package amp
