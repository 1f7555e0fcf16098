// Package socket has TCP connections that pass messages on with less of the processor, and dials those that notice
// when the other machine is gone.
//
// The scheduler of Go is told of each system call, so that another goroutine gets the processor
// if it takes long. A thread watches over that, which polls as long as there are such calls: in a
// program that passes small messages on, and is idle in between, it takes a fifth of all time. A socket of Go
// never blocks, so here the scheduler is not told of its reads and writes.
//
// That is for a program that does little else. One that writes files and talks to child processes is watched over anyway, and
// a processor that writes to a socket could be doing something else meanwhile: there messages take a tenth longer.
//
// # Guarantees
//
// A [Conn] behaves as a [net.TCPConn] does, deadlines, errors and concurrent use included. On
// systems other than Linux, and with the race detector, which has to see reads and writes, it is no more than that.
package socket
