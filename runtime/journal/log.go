package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"
)

// ErrTruncated is matched by the error for entries that are no longer kept.
var ErrTruncated = errors.New("journal: entries are no longer kept")

// TruncatedError says which entries are gone.
type TruncatedError struct {
	After  uint64 // the position that was asked for
	Oldest uint64 // the oldest entry still kept
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("journal: entries after %d are no longer kept, the oldest is %d", e.After, e.Oldest)
}

// Is reports whether target is ErrTruncated.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

const (
	// DefaultMemory bounds what a log keeps in memory.
	DefaultMemory = 512 << 10

	writeOutEvery = 16 << 20 // bytes
	writeOutLag   = 1 << 20  // bytes at the end of the file that are left alone

	minBlock = 1 << 10
	maxBlock = 128 << 10
	maxBatch = 80 << 10 // what is appended between two flushes, but for large entries
)

// Log is the log of one session. All methods are safe for concurrent use; the
// order of concurrent appends is the order of their sequence numbers.
type Log struct {
	path   string // "" keeps everything in memory
	memory int    // bytes of blocks kept
	counts *Stats // nil counts nothing

	mu       sync.Mutex
	file     *os.File  // nil until needed, and after Release
	size     int64     // bytes of the file that hold complete entries
	blocks   []*block  // oldest first; the file's newest entries
	held     int       // bytes of blocks
	unsaved  []*block  // blocks with bytes the file does not have yet
	next     uint64    // sequence number of the next append
	visible  uint64    // newest entry that readers may see
	batch    int64     // time of the current batch, ms; 0 between batches
	saveErr  error     // why the newest entries are not in the file
	used     time.Time // the last write to or read from the file
	watchers []chan<- struct{}
	closed   bool

	written int64          // bytes of the file that were handed to writeOut
	writing bool           // a range is being written out
	work    sync.WaitGroup // the goroutine that does it
}

// block is a run of entries. buf is never reallocated, so entries can refer to
// it while later ones are appended.
type block struct {
	first uint64
	buf   []byte
	refs  []ref
	saved int // bytes of buf that are in the file

	// Guarded by the log's mu. A block is used again when no log holds it and
	// no cursor has given out entries of it.
	pins int
	dead bool // the log holds it no more
}

// spare holds blocks of maxBlock bytes for further use: a burst then keeps to
// memory that the caches know.
var spare = sync.Pool{}

func newBlock(first uint64, size int) *block {
	if size == maxBlock {
		if b, ok := spare.Get().(*block); ok {
			*b = block{first: first, buf: b.buf[:0], refs: b.refs[:0]}
			return b
		}
	}
	return &block{first: first, buf: make([]byte, 0, size)}
}

// retire gives up the log's hold on the block.
func (b *block) retire() {
	b.dead = true
	b.reuse()
}

func (b *block) reuse() {
	if b.dead && b.pins == 0 && cap(b.buf) == maxBlock {
		spare.Put(b)
	}
}

type ref struct {
	frame, end uint32 // the frame is buf[frame:end]; the line ends with lineEnd
	to         Recipient
	kind       Kind
}

func (b *block) entry(i int) Entry {
	r := b.refs[i]
	var start uint32
	if i > 0 {
		start = b.refs[i-1].end + uint32(len(lineEnd))
	}
	return Entry{
		Seq: b.first + uint64(i), Kind: r.kind, To: r.to,
		head:  b.buf[start:r.frame:r.frame],
		Frame: b.buf[r.frame:r.end:r.end],
	}
}

// Open opens the log in the file at path, creating it with the first flush; ""
// makes a log that lives in memory only. memory bounds the bytes kept in
// memory, 0 means [DefaultMemory].
func Open(path string, memory int) (*Log, error) {
	if memory <= 0 {
		memory = DefaultMemory
	}
	l := &Log{path: path, memory: memory, next: 1}
	if path == "" {
		return l, nil
	}
	last, size, err := recoverTail(path)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	l.next, l.visible, l.size, l.written = last+1, last, size, size&^4095
	return l, nil
}

// Append adds an entry whose frame is the concatenation of parts, one JSON
// object without line breaks, and returns its sequence number. Readers see it
// after the next Flush.
func (l *Log) Append(k Kind, to Recipient, parts ...[]byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appendLocked(k, to, parts)
}

func (l *Log) appendLocked(k Kind, to Recipient, parts [][]byte) uint64 {
	need := 96 + len(lineEnd)
	for _, p := range parts {
		need += len(p)
	}
	b := l.roomLocked(need)
	if l.batch == 0 {
		l.batch = time.Now().UnixMilli()
	}
	seq := l.next
	l.next++
	b.buf = appendHead(b.buf, seq, l.batch, k, to)
	frame := len(b.buf)
	for _, p := range parts {
		b.buf = append(b.buf, p...)
	}
	b.refs = append(b.refs, ref{frame: uint32(frame), end: uint32(len(b.buf)), to: to, kind: k})
	b.buf = append(b.buf, lineEnd...)
	return seq
}

// roomLocked returns the newest block, with room for need more bytes.
func (l *Log) roomLocked(need int) *block {
	size := minBlock
	if n := len(l.blocks); n > 0 {
		b := l.blocks[n-1]
		room, begins := cap(b.buf)-len(b.buf), b.saved == len(b.buf)
		// A batch that fits one block is written with one call.
		if room >= need && (!begins || room >= maxBatch || cap(b.buf) < maxBlock) {
			if begins {
				l.unsaved = append(l.unsaved, b)
			}
			return b
		}
		size = min(2*cap(b.buf), maxBlock)
	}
	b := newBlock(l.next, max(size, need))
	l.blocks = append(l.blocks, b)
	l.unsaved = append(l.unsaved, b)
	l.held += cap(b.buf)
	return b
}

// Flush writes what was appended since the last Flush to the file and shows it
// to readers. When the file cannot be written the entries are shown all the
// same and stay in memory, the error is returned, and the next Flush tries
// again.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked()
}

// AppendFlush is Append and Flush in one step.
func (l *Log) AppendFlush(k Kind, to Recipient, parts ...[]byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.appendLocked(k, to, parts)
	return seq, l.flushLocked()
}

func (l *Log) flushLocked() error {
	if l.visible == l.next-1 && l.saveErr == nil {
		return nil
	}
	l.batch = 0
	if n := l.next - 1 - l.visible; n > 0 && l.counts != nil {
		l.counts.Appended.Add(n)
	}
	l.saveErr = l.saveLocked()
	if l.saveErr != nil && l.counts != nil {
		l.counts.Errors.Add(1)
	}
	l.evictLocked()
	l.visible = l.next - 1
	for _, w := range l.watchers {
		select {
		case w <- struct{}{}:
		default: // it has a wake-up pending
		}
	}
	return l.saveErr
}

// saveLocked writes the unsaved bytes to the file.
func (l *Log) saveLocked() error {
	if l.path == "" {
		for i, b := range l.unsaved {
			b.saved, l.unsaved[i] = len(b.buf), nil
		}
		l.unsaved = l.unsaved[:0]
		return nil
	}
	if err := l.openLocked(); err != nil {
		return err
	}
	for len(l.unsaved) > 0 {
		b := l.unsaved[0]
		n, err := l.file.WriteAt(b.buf[b.saved:], l.size)
		if err != nil {
			return fmt.Errorf("write journal: %w", err) // the next try writes the same bytes at the same place
		}
		b.saved += n
		l.size += int64(n)
		if l.counts != nil {
			l.counts.Written.Add(uint64(n))
		}
		l.unsaved = slices.Delete(l.unsaved, 0, 1)
	}
	l.writeOutLocked()
	return nil
}

// writeOutLocked has what has piled up in the file since the last time written
// to disk in the background. A burst then neither leaves hundreds of megabytes
// for the next sync, nor takes ever more memory for the file's pages, which the
// kernel would have to clear: the same pages are used again. The end of the file
// is left out: writing to a page that is on its way to disk has to wait.
func (l *Log) writeOutLocked() {
	off, n := l.written, (l.size-writeOutLag)&^4095-l.written
	if n < writeOutEvery || l.writing {
		return
	}
	l.written, l.writing = off+n, true
	f := l.file
	l.work.Go(func() {
		writeOut(f, off, n)
		l.mu.Lock()
		l.writing = false
		l.mu.Unlock()
	})
}

func (l *Log) openLocked() error {
	l.used = time.Now()
	if l.file != nil {
		return nil
	}
	if l.closed {
		return os.ErrClosed
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(l.path), 0o700); err == nil {
			f, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	l.file = f
	return nil
}

// evictLocked lets the oldest blocks go while more than the bound is held, but
// for the newest one.
func (l *Log) evictLocked() {
	n := 0
	for l.held > l.memory && n < len(l.blocks)-1 {
		b := l.blocks[n]
		if slices.Contains(l.unsaved, b) {
			break // what the file could not take stays: without it the file would have a hole
		}
		l.held -= cap(b.buf)
		b.retire()
		n++
	}
	if n > 0 {
		l.blocks = slices.Delete(l.blocks, 0, n)
	}
}

// oldestLocked returns the oldest entry that can be read.
func (l *Log) oldestLocked() uint64 {
	switch {
	case l.path != "": // nothing leaves memory before the file has it
		return 1
	case len(l.blocks) > 0:
		return l.blocks[0].first
	}
	return l.next
}

// Last returns the newest visible sequence number, 0 for an empty log.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visible
}

// Appended returns the newest sequence number, visible or not.
func (l *Log) Appended() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Oldest returns the oldest sequence number that can be read.
func (l *Log) Oldest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldestLocked()
}

// Err returns why the newest entries are not in the file, nil when they are.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saveErr
}

// Watch makes every Flush that shows something send to wake, without waiting;
// use a channel with room for one. The returned function ends it.
func (l *Log) Watch(wake chan<- struct{}) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, wake)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.watchers, wake); i >= 0 {
			l.watchers = slices.Delete(l.watchers, i, i+1)
		}
	}
}

// Sync makes the file's content durable.
func (l *Log) Sync() error {
	l.mu.Lock()
	err := l.flushLocked()
	f := l.file
	l.mu.Unlock()
	if f == nil || err != nil {
		return err
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// Release gives back memory and the file handle, unless the log was used within
// the time given; it stays usable. A log without a file keeps its entries.
func (l *Log) Release(idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.file == nil && l.blocks == nil || time.Since(l.used) < idle || l.flushLocked() != nil {
		return
	}
	for _, b := range l.blocks {
		b.retire()
	}
	l.blocks, l.held = nil, 0
	if l.file != nil {
		_ = l.file.Close() // everything was written, reads open it again
		l.file = nil
	}
}

// Close flushes and closes the log. Entries that are still in memory can be
// read, appends are kept in memory only.
func (l *Log) Close() error {
	l.mu.Lock()
	err := l.flushLocked()
	l.closed = true
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
		l.file = nil
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

// memoryLocked appends to dst the cursor's next entries from memory, until the
// batch holds limit bytes, and pins their blocks. ok is false when the next entry is not in memory.
func (l *Log) memoryLocked(dst []Entry, c *Cursor, limit int) (_ []Entry, ok bool) {
	after := c.after
	if len(l.blocks) == 0 || after+1 < l.blocks[0].first {
		return dst, false
	}
	i := len(l.blocks) - 1
	if l.blocks[i].first > after+1 {
		i = sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i].first > after+1 }) - 1
	}
	seq := after + 1
	for ; i < len(l.blocks); i++ {
		b := l.blocks[i]
		if seq > l.visible || limit <= 0 {
			return dst, true
		}
		b.pins++
		c.pinned = append(c.pinned, b)
		for j := int(seq - b.first); j < len(b.refs); j++ {
			if seq > l.visible || limit <= 0 {
				return dst, true
			}
			e := b.entry(j)
			dst = append(dst, e)
			limit -= e.size()
			seq++
		}
	}
	return dst, true
}
