package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ownerFile holds the mark of the gateway that uses a data directory, and which directory that is: who copies
// one while its gateway runs has the mark in both.
const ownerFile = "owner"

// TakeOver ends what an earlier gateway on this data directory has left running,
// and notes this gateway's mark there for the next one. Only one gateway may use
// the directory: the caller holds its lock.
func TakeOver(dataDir string) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("note this gateway: %w", err)
	}
	path, here := filepath.Join(dataDir, ownerFile), folderID(dataDir)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the gateway before this one: %w", err)
	}
	old, of, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	// A shorter text than a mark could be the beginning of somebody else's. Versions before did not write of what
	// directory it is.
	if len(old) == len(owner) && old != owner && (of == "" || of == here) {
		killMarked(OwnerVar + "=" + old)
	}
	if err := noteOwner(path, []byte(owner+"\n"+here+"\n"), len(b)); err != nil {
		if full(err) {
			return fmt.Errorf("note this gateway: %w: make room on that disk, or give another --data-dir", err)
		}
		return fmt.Errorf("note this gateway: %w: give --data-dir a folder that this user can write to", err)
	}
	return nil
}

// full reports whether an error says that a disk has no room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// noteOwner writes a mark anew, not in place: a torn one would match nothing. On a full
// disk it is written over the one that is there: people need the gateway to make room.
func noteOwner(path string, mark []byte, there int) error {
	tmp := path + ".tmp"
	err := os.WriteFile(tmp, mark, 0o600)
	if err == nil {
		return os.Rename(tmp, path)
	}
	_ = os.Remove(tmp)
	if !full(err) || there == 0 {
		return err
	}
	f, ferr := os.OpenFile(path, os.O_WRONLY, 0)
	if ferr != nil {
		return errors.Join(err, ferr)
	}
	_, ferr = f.WriteAt(mark, 0)
	return errors.Join(ferr, f.Truncate(int64(len(mark))), f.Close())
}
