package process

import (
	"os"
	goruntime "runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What lies in a pipe that nobody reads is known also when signals come while it is looked for.
func TestUnread_Interrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		n  int64
		ok bool
	}
	thread, answered := make(chan int, 1), make(chan answer, 1)
	go func() {
		goruntime.LockOSThread()
		thread <- unix.Gettid()
		n, ok := unread(w, time.Minute)
		answered <- answer{n, ok}
	}()
	tid := <-thread
	for range 2000 {
		if err := unix.Tgkill(os.Getpid(), tid, unix.SIGURG); err != nil { // which Go sends, too
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got != (answer{3, true}) {
		t.Errorf("got %+v", got)
	}
}
