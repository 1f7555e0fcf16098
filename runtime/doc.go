// Package runtime owns sessions: who is attached to them, what happened in them
// and which agent process serves them.
//
// # Guarantees
//
// Everything that happens in a session is one entry of its log, in one order,
// before anybody sees it; a response follows the updates that precede it.
// Delivery and replay are the same code: a client's stream is a position in
// logs, so nothing is lost between them and a slow reader costs the others
// nothing. A client that goes away changes nothing in its sessions. A request
// of an agent waits until somebody can answer it; the first answer wins. Every
// request is answered: when its agent dies, with the way it died.
//
// # Locks
//
// Order: Session.saving, Runtime.mu, agent.mu, Session.mu, proc.mu, Client.mu, Session.asksMu, then
// the Log's. Those of a session's calls and of a process's outbox are held for nothing but their own fields.
// None is held while waiting for an agent or a client.
package runtime
