// Package relay joins the gateways of many nodes into one: it is what the hub has behind
// its own /v2/rpc.
//
// # Guarantees
//
// A client has one connection to the hub and sees the sessions of all nodes that its
// token is for. What it sends about a session goes to the session's node, and what the
// node says of it comes back, in the node's own bytes but for ids. Ids are rewritten in
// both directions: two nodes may ask with the same id.
//
// To each node that it needs the connection has one connection of its own, which is
// replaced when it breaks and goes on right behind the last event: see package lasting. A
// request for a node that is away is refused at once. One that was under way waits for the
// node to come back, for a minute or until it is forgotten, and is then refused, and so does one for a node that
// is there again before the connection to it is, and what cancels a turn; the node's
// sessions must then be loaded or resumed anew before they take prompts, so that nothing is
// missing in silence. A turn ends as its request does, also in version 2 of the protocol, where
// that was answered when the turn began.
// Meanwhile they can be loaded from the copies of the store, to be read.
//
// A client that reads slowly makes the connections to its nodes wait, and nobody else. A
// node is believed about the sessions that were opened at it, and about nothing else.
//
// Nothing of this outlives its connection: the sessions are in the nodes' journals, and
// the list of them is in the store.
//
// # Locks
//
// session.following or session.showing, then Gateway.mu, then Client.mu, then those of viewer and lasting, then session.noting. None is held
// while a node or a client is waited for, but following while a node is looked for, and showing while the session's own client is behind.
package relay
