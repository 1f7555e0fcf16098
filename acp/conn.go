package acp

import "context"

// Conn is a pipe of messages to one peer.
//
// Read is called from one goroutine at a time; the message it returns is valid
// until the next Read. Write may be called concurrently with Read and with
// itself, and does not keep the message after it returned. Close may be called
// at any time and more than once; it ends a pending Read and returns after
// everything the Conn owns has ended.
type Conn interface {
	Read(ctx context.Context) (Message, error)
	Write(ctx context.Context, m Message) error
	Close() error
}

// Buffered is implemented by a Conn that can tell whether another complete
// message has arrived already. Who forwards messages flushes when it has not.
type Buffered interface {
	// Buffered reports whether the next Read returns without waiting. Like
	// Read it ends the life of the message that was read last.
	Buffered() bool
}
