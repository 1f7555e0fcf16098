// Package fleet is the hub: one address before many gateways, its nodes, which join
// it from where nobody can reach them.
//
// # Guarantees
//
// Every request passes the checks of Host and Origin and then needs a token of the
// right kind, for the right nodes and with enough scope; what is not allowed is
// refused. Who may not see a node gets the same answer whether there is one or not.
//
// What a node answers is shown as data: its headers pass a list, and no page of a
// node runs with the hub's origin. The web page before a node is the hub's own. A
// node is never shown the token of a client. One that misbehaves has its own tunnel
// to do so in.
//
// A request ends with the tunnel it goes through and with the token that allowed it.
// Nothing that matters is in the memory of a hub.
package fleet
