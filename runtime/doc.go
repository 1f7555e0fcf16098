// Package runtime is the gateway between clients and agents: it takes what clients send
// and finds who answers it.
//
// Its parts are packages of their own: agents owns the processes, session the life of
// sessions, viewer reads logs for clients, journal is the log, observe tells of it all.
// This package has what connects them: connections, requests and how sessions are made
// and opened, queries, and the end of everything.
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
// The order is that of the packages: Runtime.mu, then those of session, agents, viewer,
// journal, as their comments say. None is held while waiting for an agent or a client.
package runtime
