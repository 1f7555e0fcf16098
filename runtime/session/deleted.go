package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// deletedFolder has an empty file for each session that was deleted lately, named as the session's folder was.
// A hub that was away when the session was deleted cannot tell it from one that a broken disk has lost.
const deletedFolder = "deleted"

// maxDeleted bounds the deleted sessions that are remembered: the newest. While a gateway runs there can be as many again.
const maxDeleted = 1000

// removeFiles removes all files of a session. They go at once, by a new name, so that a gateway that is killed
// meanwhile does not find the rest of them as a session; its next start removes them.
func (set *Set) removeFiles(id string) error {
	if set.store.dir == "" {
		return nil
	}
	place := set.store.path(id)
	var synced error
	if dir, remove, err := set.TravelFolder(); err == nil { // a full disk has no room for it
		defer remove()
		if to := filepath.Join(dir, deletedFolder); os.Rename(place, to) == nil {
			place = to
			if set.o.Fsync != "never" {
				synced = journal.SyncFolder(set.store.dir)
			}
		}
	}
	if err := errors.Join(os.RemoveAll(place), synced); err != nil {
		return fmt.Errorf("delete session files: %w", err)
	}
	return nil
}

// noteDeleted remembers that a session is deleted, for a hub that is not there.
func (set *Set) noteDeleted(id string) {
	if !set.o.Stored || set.store.dir == "" {
		return
	}
	file := filepath.Join(set.deletedFolder(), filepath.Base(set.store.path(id)))
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil { // the hub keeps a copy then, as of one that was lost
		set.o.Logger.Warn("that a session is deleted could not be noted for the hub", "session", id, "err", err)
	}
	if set.deletions.Add(1)%maxDeleted == 0 {
		set.newestDeleted()
	}
}

func (set *Set) deletedFolder() string {
	return filepath.Join(filepath.Dir(set.store.dir), deletedFolder)
}

// readDeleted reads which sessions were deleted before. One that is there again is none.
func (set *Set) readDeleted() {
	for _, name := range set.newestDeleted() {
		id, err := url.PathUnescape(name)
		if err == nil && !set.store.holds(id) && filepath.Base(set.store.path(id)) == name {
			set.deleted = append(set.deleted, id)
		} else {
			_ = os.Remove(filepath.Join(set.deletedFolder(), name)) // it is looked at again at the next start
		}
	}
}

// newestDeleted returns the names of what is remembered, the newest first, and removes what is more.
func (set *Set) newestDeleted() (names []string) {
	dir := set.deletedFolder()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		set.o.Logger.Warn("read which sessions were deleted", "err", err)
	}
	when := make(map[string]time.Time, len(list))
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			names, when[e.Name()] = append(names, e.Name()), info.ModTime()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(when[b].Compare(when[a]), cmp.Compare(a, b)) })
	for _, name := range names[min(len(names), maxDeleted):] {
		_ = os.Remove(filepath.Join(dir, name)) // another one is as good
	}
	return names[:min(len(names), maxDeleted)]
}

// DeletedBefore returns the ids of sessions that were deleted before this gateway began, as far as that is
// remembered.
func (set *Set) DeletedBefore() []string {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.deleted
}
