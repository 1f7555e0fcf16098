package tunnel_test

import (
	"io"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// Where a stream says that it takes a write, that does not wait.
func TestStream_RoomFor(t *testing.T) {
	hub, node := pair(t)
	down, up := streamOf(t, hub, node)
	room := up.(socket.Roomy)
	const n = 2 << 10
	written := 0
	for room.RoomFor(n) {
		_ = up.SetWriteDeadline(time.Now().Add(time.Minute))
		if some, err := up.Write(make([]byte, n)); some != n || err != nil {
			t.Fatalf("wrote %d bytes: %v", some, err)
		}
		written += n
	}
	if written < 64<<10 || written > tunnel.MaxWindow {
		t.Errorf("%d bytes went to somebody who does not read", written)
	}
	_ = up.SetWriteDeadline(time.Time{})
	read := make(chan error)
	go func() { _, err := io.ReadFull(down, make([]byte, written)); read <- err }()
	for range 2 * n { // of which the last waits for the window that the reader opens
		if _, err := up.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if !room.RoomFor(n) {
		t.Error("there is no room though a window has opened")
	}
	if room.RoomFor(1 << 20) {
		t.Error("there is room for anything")
	}
	writing := make(chan error)
	go func() { // more than the other end takes
		_, err := up.Write(make([]byte, 2*tunnel.MaxWindow))
		writing <- err
	}()
	if _, err := io.ReadFull(down, make([]byte, 2*n+1)); err != nil { // the last is of that write
		t.Fatal(err)
	}
	if room.RoomFor(1) {
		t.Error("there is room beside a write that waits")
	}
	_ = up.Close()
	<-writing
	if room.RoomFor(1) {
		t.Error("a closed stream has room")
	}
}
