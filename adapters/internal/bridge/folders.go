package bridge

import (
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// Folders are the private folders of this program's sessions. Those that it finds
// and does not know were left by a gateway that was killed. The zero value has none;
// its methods are safe for concurrent use.
type Folders struct {
	mu   sync.Mutex
	live map[string]bool // by name
}

// Name returns a name for a folder, short for the sake of sockets. Until Remove it is known.
func (f *Folders) Name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		f.live = map[string]bool{}
	}
	name := rand.Text()[:8]
	f.live[name] = true
	return name
}

// Remove removes the folder dir, if it was made, with all that is in it.
func (f *Folders) Remove(dir string, log *slog.Logger) {
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("remove a session's files", "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, filepath.Base(dir))
}

// Sweep removes what a killed gateway left below dir.
func (f *Folders) Sweep(dir string, log *slog.Logger) {
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
