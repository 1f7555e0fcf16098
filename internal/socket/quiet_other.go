//go:build !unix

package socket

import "net"

// Quiet reports false: elsewhere it is not known.
func Quiet(*net.TCPConn) bool { return false }
