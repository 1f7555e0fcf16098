// Package version translates between versions 1 and 2 of ACP. The gateway and its logs
// speak version 1; clients and agents of version 2 are translated where they are connected.
//
// # Clients
//
// [Choose] decides the version of a connection by its initialize request. [Request] and
// [Answer] turn what a client of version 2 sends into version 1, [Reply] turns the
// results for it. A [View] reads a session's log for such a client: it is a function of
// the log and nothing else, so live delivery, replay and every client's view agree, and
// the ids that version 1 lacks are the same in all of them.
//
// # Agents
//
// [Offer] asks an agent for version 2. An [Agent] turns what one that speaks it says into
// version 1, and what the gateway tells it into version 2. What version 1 says otherwise
// comes out of it twice, so that the log has both: a View passes the agent's own bytes on.
//
// # Guarantees
//
// The translation is total: what it does not know is passed on as it is, or, where
// the other version has no form for it, under _meta, and never an error. Frames that are
// the same in both versions keep the sender's bytes. What either version cannot say is in
// [Table] and [AgentTable].
package version
