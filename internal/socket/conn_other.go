//go:build !linux || race

package socket

import "net"

// Conn is a TCP connection.
type Conn struct{ *net.TCPConn }

// Plain returns a connection that owns c, and is no more than that.
func Plain(c *net.TCPConn) *Conn { return &Conn{c} }

// New returns a connection that owns c.
func New(c *net.TCPConn) (*Conn, error) { return &Conn{c}, nil }
