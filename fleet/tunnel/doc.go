// Package tunnel carries connections over one WebSocket that a node opens to a
// hub. The hub opens streams and the node accepts them; each stream is a net.Conn.
//
// # Guarantees
//
// A tunnel holds at most [MaxStreams] streams. What one end has received and not
// read is bounded by [MaxWindow] for each stream, and what windows grow beyond
// their first size by [maxGrowth] for all streams together. A stream that nobody
// reads holds up no other. Who writes to one that the other end has closed gets an
// error. A node that opens streams itself has them reset.
//
// Each end asks every [Heartbeat] whether the other is there, unless it is being
// sent something, and ends the tunnel when there is no answer: at most [Silence]
// after the other was heard of last.
package tunnel
