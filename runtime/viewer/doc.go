// Package viewer reads logs for clients.
//
// A [Client] reads the log of every session it is attached to, and a log of its own
// for what belongs to no session. A [Feed] is its position in one log, a [Stream] is
// what carries feeds to it: delivery and replay are the same code, so nothing is lost
// between them and a slow reader costs the others nothing. What an entry looks like
// to a client, and whether it is given it at all, is decided when it is read
// (render.go). A [Request] of a client is answered once, in the log where its answer
// belongs.
//
// What a stream carries is written by its transport's own goroutine, which waits for
// [Stream.Wake]. A few small entries are written by whoever shows them, see
// [Feed.Showing]: of a short turn, waking another thread is the largest part.
//
// # Locks
//
// Client.mu is held while a log's own is taken, and that of Asks. A session's lock may
// be held by who calls [Request.Record] and [Client.Post], and by nobody else.
package viewer
