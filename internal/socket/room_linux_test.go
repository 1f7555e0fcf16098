package socket

import (
	"os"
	"testing"
	"time"
)

func TestRoom(t *testing.T) {
	own, other := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, c := range map[string]interface {
		Write([]byte) (int, error)
		SetWriteDeadline(time.Time) error
		Close() error
	}{"socket": own, "pipe": w} {
		t.Run(name, func(t *testing.T) {
			room := RoomOf(c)
			if !room.For(SmallWrite) {
				t.Error("an empty one has no room")
			}
			if room.For(SmallWrite + 1) {
				t.Error("there is room for anything")
			}
			if n := testing.AllocsPerRun(100, func() { room.For(1) }); n > 0 {
				t.Errorf("a look allocates %v times", n)
			}
			for room.For(SmallWrite) { // what it takes is taken at once
				_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
				if n, err := c.Write(make([]byte, SmallWrite)); n != SmallWrite || err != nil {
					t.Fatalf("wrote %d bytes: %v", n, err)
				}
			}
			_ = c.Close()
			if room.For(1) {
				t.Error("a closed one has room")
			}
		})
	}
	_ = other.Close()
	if RoomOf(struct{}{}).For(1) || RoomOf(nil).For(1) {
		t.Error("there is room in nothing")
	}
}
