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
	live map[string]bool // by name, with those that are being removed
}

var removeAll = os.RemoveAll // tests look when it is called

// Name returns a name for a folder, short for the sake of sockets. Until Remove it is known.
func (f *Folders) Name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := rand.Text()[:8]
	for f.live[name] {
		name = rand.Text()[:8]
	}
	f.knowLocked(name)
	return name
}

// Remove removes the folder dir, if it was made, with all that is in it.
func (f *Folders) Remove(dir string, log *slog.Logger) {
	if err := removeAll(dir); err != nil {
		log.Warn("remove a session's files", "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, filepath.Base(dir))
}

// Sweep removes what a killed gateway left below dir. Names are given meanwhile, and none of
// what is being removed.
func (f *Folders) Sweep(dir string, log *slog.Logger) {
	entries, _ := os.ReadDir(dir) // there is nothing if it cannot be read
	for _, e := range f.takeOld(entries) {
		f.Remove(filepath.Join(dir, e), log)
	}
}

// takeOld returns the names of folders that nobody has, and has them be known until Remove.
func (f *Folders) takeOld(entries []os.DirEntry) (old []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		if name := e.Name(); !f.live[name] {
			old = append(old, name)
			f.knowLocked(name)
		}
	}
	return old
}

func (f *Folders) knowLocked(name string) {
	if f.live == nil {
		f.live = map[string]bool{}
	}
	f.live[name] = true
}
