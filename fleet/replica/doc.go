// Package replica copies the events of nodes' sessions into the store, where they can be read
// without the node.
//
// # Guarantees
//
// A [Follower] is a follower of one node's journals: a position in each, no queue of events.
// Where the replica ends is where it goes on, whoever wrote it, so a hub that ends loses
// nothing and writes nothing twice. Of a session that changes often only how it is now is
// looked at. A store that is slow or takes nothing holds up the copies of a node, and neither
// the node nor its clients.
//
// A session whose node shows its clients only what is stored is attended while something
// happens in it: its node gives a page when there is something new and the page before is stored, and is
// told up to where the store has the session. Nothing is said to be stored before the store has acknowledged it.
//
// A replica is a beginning of what the node has, in its order. What the node let go of before
// it could be copied is marked as a gap. Events are put behind the replica's last one only together with a look at what the
// node has by that number: one that does not have it, or says something else of it, as after an earlier state of its disk was
// put back, a power cut took the end of its log, or a move has put another state of the session in its place, gets a replica
// of a further epoch. The one before stays as it is.
//
// What a node sends is trusted in nothing: it is checked, bounded, and a failure of one
// session is noted with it and tried again.
package replica
