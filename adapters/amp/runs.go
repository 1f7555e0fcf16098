package amp

import (
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// folders are the private folders of this program's sessions. Those that it finds
// and does not know were left by a gateway that was killed.
type folders struct {
	mu   sync.Mutex
	live map[string]bool // by name
}

var runs = folders{live: map[string]bool{}}

// name returns a name for a folder, short for the sake of sockets.
func (f *folders) name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := rand.Text()[:8]
	f.live[name] = true
	return name
}

func (f *folders) remove(dir string, log *slog.Logger) {
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("remove a session's files", "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, filepath.Base(dir))
}

// sweep removes what a killed gateway left below dir.
func (f *folders) sweep(dir string, log *slog.Logger) {
	entries, _ := os.ReadDir(dir) // there is nothing if it cannot be read
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		if f.live[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			log.Warn("remove an old session's files", "err", err)
		}
	}
}
