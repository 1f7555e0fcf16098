// Package opencode runs OpenCode by the HTTP API of its server.
//
// One process, `opencode serve` on loopback with a password made for it, serves
// the sessions of a connection, in whatever directories they are. It starts with
// the first request that needs it: initialize costs no process. When it ends by
// itself, the connection fails with how it ended, and its sessions go on in the
// next one, since OpenCode keeps them in a database. Sessions that want commands
// to ask first have a second process: OpenCode's rules for subagents are read
// from a process's configuration.
//
// What happens is read from one stream of events. Prompts are requests that last
// as long as their turn, named by message ids of this package's own.
//
// # Guarantees
//
// Events are routed by native session; those of a subagent's belong to the call
// that made it. When the stream of events breaks it is opened again and what was
// missed is fetched: nothing is lost, and what was shown is not shown again. The
// stream is read by one goroutine, which shows each event before it reads the
// next: there is no queue, and a slow gateway slows the reading. A prompt ends
// when its turn has, with everything shown. A cancelled one closes what it left
// open. Nobody but a client, or the permissionMode that a session was made with,
// allows anything. The user's configuration is not written. Secrets are in no
// arguments.
//
// translator is pure: an event in, updates out. The session around it asks the
// client what OpenCode asks, and decides when a turn ends.
package opencode
