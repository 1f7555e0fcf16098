// Package store keeps what hubs know: nodes, tokens, sessions with replicas of their
// events, and which hubs live. It lies in JetStream of NATS, in a server inside this
// program or in a cluster elsewhere; only the connection differs.
//
// # Guarantees
//
// Each hub holds a copy of every bucket in memory, which follows the bucket. Reads
// are answered from it and never wait, also while the store cannot be reached. A
// write has reached the store and the own copy when it returns, and another hub's
// copy soon after. Of two hubs that write the same record at once, one wins and the
// other is told.
//
// Events are in a log that no hub has a copy of, each session's under a subject of its
// own. A batch is added behind the one that its writer has seen last and nowhere else, so
// a replica never has an event twice, nor one before its turn, whoever writes. Positions
// in it are found by bisection; there is no index.
//
// The secrets of tokens are kept as hashes only.
package store
