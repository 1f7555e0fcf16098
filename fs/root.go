package fs

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// root is the folder that nothing leaves, while it is used. Another folder may take its name, as when somebody removes
// a workspace and clones it anew: what is held is the old one, while programs and agents, who go by the name, have the new.
type root struct {
	mu  sync.Mutex // held while another folder is opened
	now atomic.Pointer[os.Root]
}

// open has the folder be the root, by a path without symbolic links. One that was it before is closed when nobody uses
// it any more.
func (r *root) open(real string) error {
	opened, err := os.OpenRoot(real)
	if err != nil {
		return err
	}
	plain, err := withoutLinks(real)
	inside, insideErr := opened.Stat(".")
	if err != nil || insideErr != nil || !os.SameFile(plain, inside) {
		_ = opened.Close()
		return failf(Failed, "the folder %s is being replaced: try again", real)
	}
	r.now.Store(opened)
	return nil
}

// look sees to it that the folder that is held is the one of its name. dir leads to real: nowhere else, or who can put a
// symbolic link in the root's place would lead everybody out of it.
func (r *root) look(dir, real string) error {
	if r.is(dir) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.is(dir) {
		return nil
	}
	leads, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return failf(NotFound, "%s, the root that this server is confined to, is not there any more: make it again", dir)
	}
	if err != nil {
		return explain(err, "look for %s, the root that this server is confined to", dir)
	}
	if leads != real {
		return failf(Escapes, "%s, the root that this server is confined to, leads to %s now, and did to %s: start the server again if that is meant", dir, leads, real)
	}
	if err := r.open(real); err != nil {
		return explain(err, "open %s, the root that this server is confined to", dir)
	}
	return nil
}

// is reports whether the folder of a name is the one that is held.
func (r *root) is(dir string) bool {
	named, err := os.Stat(dir)
	if err != nil {
		return false
	}
	held, err := r.now.Load().Stat(".")
	return err == nil && os.SameFile(named, held)
}
