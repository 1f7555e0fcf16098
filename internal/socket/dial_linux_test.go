package socket_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// A machine that is off answers nothing, not even that it has got something: the far end's system drops all that comes.
func TestDialer_OtherMachineIsGone(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]string{"nothing is under way": "", "something is not confirmed": "hello"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			c, err := socket.Dialer(3*time.Second).DialContext(t.Context(), "tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			far, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			raw, err := far.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
			var failed error
			err = raw.Control(func(fd uintptr) {
				failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
			})
			if err != nil || failed != nil {
				t.Fatal(err, failed)
			}
			if _, err := io.WriteString(c, send); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.ETIMEDOUT) {
				t.Errorf("read %d, %v; want the system's own timeout", n, err)
			}
		})
	}
}
