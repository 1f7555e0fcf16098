package cmdline

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	unreadRoom = 1 << 20     // bytes of a log that wait for who reads it; what comes beyond is lost, and counted
	lastLines  = time.Second // for what waits, at the end of the program
)

// Open returns the logger that writes to w, and what ends it. Who logs never waits for who reads it: a parent that stands
// still, or a terminal that somebody holds, would hold up the server, and its end. Of what found no room it is
// said how many lines that were.
func (l Log) Open(w io.Writer) (log *slog.Logger, end func()) {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return l.To(w), func() {} // a file keeps nobody waiting
		}
	}
	u := &unread{more: make(chan struct{}, 1), done: make(chan struct{})}
	log = l.To(u)
	go u.pass(w, l.To(w))
	return log, u.end
}

// unread is what waits for who reads it.
type unread struct {
	mu    sync.Mutex
	waits []byte // at most unreadRoom
	lost  int    // lines behind it
	ended bool
	more  chan struct{} // has one when there is something to do
	done  chan struct{} // closed when all was written behind the end
}

// Write implements io.Writer. It never fails.
func (u *unread) Write(line []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost > 0 || len(u.waits)+len(line) > unreadRoom {
		u.lost++
	} else {
		u.waits = append(u.waits, line...)
	}
	u.wakeLocked()
	return len(line), nil
}

func (u *unread) wakeLocked() {
	select {
	case u.more <- struct{}{}:
	default: // it has a wake-up pending
	}
}

// pass writes what there is until the end, and to direct how much there is not. Nobody can be told that something cannot
// be written.
func (u *unread) pass(w io.Writer, direct *slog.Logger) {
	defer close(u.done)
	for range u.more {
		for {
			u.mu.Lock()
			lines, lost, ended := u.waits, u.lost, u.ended
			u.waits, u.lost = nil, 0
			u.mu.Unlock()
			_, _ = w.Write(lines)
			if lost > 0 {
				direct.Error("lines of the log are lost, as nobody has read it", "lines", lost) // whatever the level is
			}
			if len(lines) > 0 || lost > 0 {
				continue
			}
			if ended {
				return
			}
			break
		}
	}
}

func (u *unread) end() {
	u.mu.Lock()
	u.ended = true
	u.wakeLocked()
	u.mu.Unlock()
	select {
	case <-u.done:
	case <-time.After(lastLines):
	}
}
