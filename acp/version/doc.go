// Package version translates between version 1 of ACP, which the gateway and its logs
// speak, and version 2, for clients that negotiated it.
//
// [Choose] decides the version of a connection by its initialize request. [Request] and
// [Answer] turn what a client of version 2 sends into version 1, [Reply] turns the
// results for it. A [View] reads a session's log for such a client: it is a function of
// the log and nothing else, so live delivery, replay and every client's view agree, and
// the ids that version 1 lacks are the same in all of them.
//
// # Guarantees
//
// The translation is total: what it does not know is passed on as it is, or, where
// version 2 has no form for it, under _meta, and never an error. Frames that are the same
// in both versions keep the sender's bytes. What either version cannot say is in [Table].
package version
