// Package freeport finds ports and addresses for the servers of tests that must know theirs before they listen.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports lie below those that systems give to who asks for any and to connections, so that
// nobody takes one before its server does, or while that is away.
const first, ports = 12_000, 8_000

// Of returns a port on loopback that nobody listens on.
func Of(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := first + rand.IntN(ports)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no port is free from %d on", first)
	return 0
}

// Host returns an address of this machine that others could reach. The test is skipped where there is none.
func Host(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but its loopback")
	return ""
}
