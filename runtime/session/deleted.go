package session

import (
	"cmp"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// deletedFolder has an empty file for each session that was deleted lately, named as the session's folder was.
// A hub that was away when the session was deleted cannot tell it from one that a broken disk has lost.
const deletedFolder = "deleted"

// maxDeleted bounds the deleted sessions that are remembered: the newest. While a gateway runs there can be as many again.
const maxDeleted = 1000

// awayPrefix begins the names of folders whose sessions are deleted: those of sessions begin otherwise. They are
// beside the sessions, so that a full disk, or a folder of sessions that is a disk of its own, is in nobody's way.
const awayPrefix = ".deleted-"

// putAway gives the folder of a session another name, and returns its path. A session without a folder may be
// deleted, too.
func (st store) putAway(id string) (away string, err error) {
	if err := st.place(); err != nil {
		return "", err // it may come back
	}
	away = filepath.Join(st.dir, awayPrefix+uuid.NewString())
	if err := os.Rename(st.path(id), away); err != nil && st.holds(id) {
		return "", err
	}
	return away, nil
}

// removeAway removes what was put away. The next start removes what is left of it.
func (set *Set) removeAway(away string) {
	if away == "" {
		return
	}
	if err := os.RemoveAll(away); err != nil {
		set.o.Logger.Warn("remove the files of a deleted session", "folder", away, "err", err)
	}
}

// removeAllAway removes what was put away when the gateway was killed, and returns the other folders.
func (set *Set) removeAllAway(folders []os.DirEntry) []os.DirEntry {
	var away []string
	folders = slices.DeleteFunc(folders, func(e os.DirEntry) bool {
		is := strings.HasPrefix(e.Name(), awayPrefix)
		if is {
			away = append(away, filepath.Join(set.store.dir, e.Name()))
		}
		return is
	})
	if len(away) > 0 {
		set.o.Tasks.Go(func() {
			for _, dir := range away {
				set.removeAway(dir)
			}
		})
	}
	return folders
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
	if err == nil && set.o.Fsync != "never" { // before the session's files go
		err = journal.SyncFolder(filepath.Dir(file))
	}
	if err != nil { // the hub keeps a copy then, as of one that was lost
		set.o.Logger.Warn("that a session is deleted could not be noted for the hub", "session", id, "err", err)
	}
	if set.deletions.Add(1)%maxDeleted == 0 {
		set.newestDeleted()
	}
}

// unnoteDeleted takes back what noteDeleted has noted. When that fails, the next start does it.
func (set *Set) unnoteDeleted(id string) {
	if set.o.Stored && set.store.dir != "" {
		_ = os.Remove(filepath.Join(set.deletedFolder(), filepath.Base(set.store.path(id))))
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
