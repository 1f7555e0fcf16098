//go:build !linux || race

package socket

import "net"

// Conn is a TCP connection.
type Conn struct{ *net.TCPConn }

// New returns a connection that owns c.
func New(c *net.TCPConn) (*Conn, error) { return &Conn{c}, nil }
