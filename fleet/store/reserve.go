package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	// ample is how much room there is, in bytes, on a disk that is not asked for it again within
	// ampleFor, unless for more than ampleEach: to ask for each batch takes a twentieth of what it takes to store one.
	ample     = 256 << 20
	ampleFor  = 100 * time.Millisecond
	ampleEach = 1 << 20
)

// reserveSize is room on the disk for removing what is there: that takes some before it gives any.
// Copies and bundles leave it free.
const reserveSize = 1 << 20

// ErrDiskFull is returned when the hub's disk has no room left. It is returned before the disk ends:
// a stream of which a write has failed takes nothing more, and removes nothing, until the server starts anew: see engine.
var ErrDiskFull = errors.New("the hub's disk is full: make room on it, or remove some sessions")

// reserve is a file that holds room on the disk of the store in this program, as others fill that,
// too. A start of the server on a full disk gives it up. The nil value, of a store elsewhere, has none. It is used
// by one goroutine, but for fits.
type reserve struct {
	dir, file string

	begun time.Time
	until atomic.Int64 // since begun: the room is ample
}

func newReserve(dir string) *reserve {
	return &reserve{dir: dir, file: filepath.Join(dir, "reserve"), begun: time.Now()}
}

// fits returns ErrDiskFull when the disk has no room for so many bytes.
func (r *reserve) fits(n int) error {
	if r == nil {
		return nil
	}
	now := time.Since(r.begun)
	if n <= ampleEach && now < time.Duration(r.until.Load()) {
		return nil
	}
	free, ok := freeAt(r.dir)
	if ok && free < uint64(n)+reserveSize {
		return ErrDiskFull
	}
	if ok && free >= uint64(n)+ample {
		r.until.Store(int64(now + ampleFor))
	}
	return nil
}

// keep makes the file if it is not there, and the disk has room for more than that.
func (r *reserve) keep() error {
	if r == nil {
		return nil
	}
	if _, err := os.Stat(r.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r.fits(2*reserveSize) != nil {
		return nil
	}
	b := make([]byte, reserveSize)
	_, _ = rand.Read(b) // it never fails; zeros take no room on some disks
	part := r.file + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		_ = os.Remove(part)
		return fmt.Errorf("hold room for removals: %w", err)
	}
	return os.Rename(part, r.file)
}

// give gives the room to the store if the disk is full; true when it did.
func (r *reserve) give() bool { return r.fits(0) != nil && os.Remove(r.file) == nil }
