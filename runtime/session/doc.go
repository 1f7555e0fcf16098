// Package session is the life of sessions: what is asked of them, which process works
// for them, what is open in them, and who ends it.
//
// A [Session] is one state machine; machine.go has its states, its events and what
// follows from them, with a picture. A session has four more parts, each with one owner,
// the session's mu: the open requests of the agent (asks.go), the open tool calls
// (calls.go), the settings (settings.go) and the record of it all on disk (record.go).
// Everything that happens is an entry of the session's log.
//
// # What may be open, and who ends it
//
//	a prompt               its agent answers it; else a cancel before it has begun, the
//	                       end of the process, or five seconds after the session is stopped
//	a request of the       a client that was given it; else the agent withdraws it, a cancel
//	agent for a person     answers it as cancelled, or the process is given back or ends
//	another request of     the client or the host that carries it out; else the agent
//	the agent              withdraws it, or the process is given back or ends
//	a tool call            its agent; else the process is given back or ends
//	a client's request     the agent within the time limit, or the end of the process
//	the process            idle time without anything open, or the session is stopped
//
// What the agent waits for is answered whenever its process lives on.
//
// # Locks
//
// Order: Session.whole, Session.catching, Session.saving, Session.mu, then those of Process, Client, the table of open
// requests and the log, none of which is held while another function of this package is
// called. Set.mu is held for its own maps only. Files are read and written, agents are
// waited for and clients are answered when no lock is held; the log's append and the
// queue of the process's input, which do neither, are done under Session.mu, so that
// log, agent and state agree about the order of things.
package session
