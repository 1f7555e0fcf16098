package journal

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

var errCrashed = errors.New("the machine is off")

// faultDisk is a file system in memory that fails as it is told: calls return
// errors, writes stop half-way, the process or the machine ends between any two
// calls or in the middle of one.
type faultDisk struct {
	mu    sync.Mutex
	dice  *rand.Rand
	boot  uint32
	odds  int // one call in so many fails; 0 is none
	full  bool
	left  int // calls until a crash; negative is none
	files map[string]*faultFile
	names map[string]*faultFile // what the folder durably has
}

// faultFile is one file: what programs see, and what is on the disk.
type faultFile struct {
	cache   []byte
	disk    []byte
	pending []pendingWrite // not on disk yet
}

type pendingWrite struct {
	off  int64
	data []byte // nil cuts the file at off
}

func newFaultDisk(dice *rand.Rand) *faultDisk {
	return &faultDisk{dice: dice, boot: 1, left: -1, files: map[string]*faultFile{}, names: map[string]*faultFile{}}
}

// call is the beginning of every call. part says how much of a write happens.
func (d *faultDisk) call(grows bool) (part float64, err error) {
	if d.left == 0 {
		return 0, errCrashed
	}
	if d.left > 0 {
		if d.left--; d.left == 0 {
			return d.dice.Float64(), errCrashed
		}
	}
	if grows && d.full {
		return d.dice.Float64(), syscall.ENOSPC
	}
	if d.odds > 0 && d.dice.IntN(d.odds) == 0 {
		return d.dice.Float64(), []error{syscall.EIO, syscall.EMFILE}[d.dice.IntN(2)]
	}
	return 1, nil
}

// fail sets how calls fail from now on; see the fields. It returns what was set.
func (d *faultDisk) fail(odds int, full bool, left int) (int, bool, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, wasFull, wasLeft := d.odds, d.full, d.left
	d.odds, d.full, d.left = odds, full, left
	return was, wasFull, wasLeft
}

// state returns how calls fail now.
func (d *faultDisk) state() (odds int, full bool, left int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.odds, d.full, d.left
}

// restart ends the process, or the machine: then what was not synced is on the
// disk in part, sector by sector, or not at all.
func (d *faultDisk) restart(power bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.odds, d.full = -1, 0, false
	if !power {
		return
	}
	d.boot++
	if d.dice.IntN(2) == 0 { // the folder's newest state may have reached the disk, too
		d.names = map[string]*faultFile{}
		for name, f := range d.files {
			d.names[name] = f
		}
	}
	d.files = map[string]*faultFile{}
	for name, f := range d.names {
		for _, w := range f.pending {
			switch fate := d.dice.IntN(3); {
			case fate == 0: // lost
			case w.data == nil:
				f.disk = f.disk[:min(int64(len(f.disk)), w.off)]
			default:
				for at := 0; at < len(w.data); {
					n := min(512-int(w.off+int64(at))%512, len(w.data)-at)
					if fate == 1 || d.dice.IntN(2) == 0 {
						f.disk = writeAt(f.disk, w.data[at:at+n], w.off+int64(at))
					}
					at += n
				}
			}
		}
		f.pending = nil
		f.cache = slices.Clone(f.disk)
		d.files[name] = f
	}
}

func writeAt(b, data []byte, off int64) []byte {
	if need := off + int64(len(data)); need > int64(len(b)) {
		b = append(b, make([]byte, need-int64(len(b)))...)
	}
	copy(b[off:], data)
	return b
}

func (d *faultDisk) Open(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call(false); err != nil {
		return nil, err
	}
	f := d.files[path]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return &faultHandle{d: d, f: f, path: path}, nil
}

func (d *faultDisk) Create(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call(true); err != nil {
		return nil, err
	}
	f := d.files[path]
	if f == nil {
		f = &faultFile{}
		d.files[path] = f
	}
	f.cut(0)
	return &faultHandle{d: d, f: f, path: path}, nil
}

func (d *faultDisk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call(true); err != nil {
		return err
	}
	if d.files[from] == nil {
		return fs.ErrNotExist
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *faultDisk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call(true); err != nil {
		return err
	}
	delete(d.files, path)
	return nil
}

func (d *faultDisk) SyncFolder(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call(false); err != nil {
		return err
	}
	d.names = map[string]*faultFile{}
	for name, f := range d.files {
		d.names[name] = f
	}
	return nil
}

func (d *faultDisk) Boot() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boot
}

func (f *faultFile) cut(size int64) {
	if size < int64(len(f.cache)) {
		f.cache = f.cache[:size:size]
	} else {
		f.cache = writeAt(f.cache, nil, size)
	}
	f.pending = append(f.pending, pendingWrite{off: size})
}

// faultHandle is an open file.
type faultHandle struct {
	d      *faultDisk
	f      *faultFile
	path   string
	closed bool
}

func (h *faultHandle) enter(grows bool) (float64, error) {
	if h.closed {
		return 0, fs.ErrClosed
	}
	return h.d.call(grows)
}

func (h *faultHandle) ReadAt(b []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if _, err := h.enter(false); err != nil {
		return 0, err
	}
	if off >= int64(len(h.f.cache)) {
		return 0, io.EOF
	}
	n := copy(b, h.f.cache[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *faultHandle) WriteAt(b []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	part, err := h.enter(off+int64(len(b)) > int64(len(h.f.cache)))
	n := int(part * float64(len(b)))
	if n > 0 {
		h.f.cache = writeAt(h.f.cache, b[:n], off)
		h.f.pending = append(h.f.pending, pendingWrite{off, slices.Clone(b[:n])})
	}
	return n, err
}

func (h *faultHandle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if _, err := h.enter(false); err != nil {
		return err
	}
	h.f.cut(size)
	return nil
}

// Sync that fails drops what was to be written: the next one does not try again.
func (h *faultHandle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	_, err := h.enter(false)
	if err == nil {
		for _, w := range h.f.pending {
			if w.data == nil {
				h.f.disk = writeAt(h.f.disk, nil, w.off)[:w.off]
			} else {
				h.f.disk = writeAt(h.f.disk, w.data, w.off)
			}
		}
	}
	switch {
	case err == nil:
		h.f.pending = nil
	case !errors.Is(err, fs.ErrClosed) && !errors.Is(err, errCrashed):
		h.f.pending = nil
	}
	return err
}

func (h *faultHandle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	_, err := h.enter(false)
	return int64(len(h.f.cache)), err
}

func (h *faultHandle) Close() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.closed = true
	return nil
}

func (h *faultHandle) Place() place {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	switch h.d.files[h.path] {
	case h.f:
		return here
	case nil:
		return nothing
	}
	return another
}

func (h *faultHandle) WriteOut(int64, int64) {}
