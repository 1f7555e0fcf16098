// Package socket has TCP connections that pass messages on with less of the processor.
//
// The scheduler of Go is told of each system call, so that another goroutine gets the processor
// if it takes long. A thread watches over that, which polls as long as there are such calls: in a
// program that passes small messages on, and is idle in between, it takes a fifth of all time. A socket of Go
// never blocks, so here the scheduler is not told of its reads and writes.
//
// # Guarantees
//
// A [Conn] behaves as a [net.TCPConn] does, deadlines, errors and concurrent use included. On
// systems other than Linux, and with the race detector, which has to see reads and writes, it is no more than that.
package socket
