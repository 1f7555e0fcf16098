package socket

import "net"

// TCP returns the connection itself: between two of these the system moves bytes, and not a program. It is closed by
// who closes c.
func (c *Conn) TCP() *net.TCPConn { return c.TCPConn }
