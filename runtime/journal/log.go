package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
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

// DefaultMemory bounds what a log keeps in memory.
const DefaultMemory = 512 << 10

// reopenTail is how much of a file is written again when a log is opened that was
// not closed. A sync may have failed before, and the system then takes for durable
// what never was.
const reopenTail = 1 << 20 // bytes

// Syncing says when the file is forced to the disk, beside [Log.Sync].
type Syncing int

const (
	// SyncAhead forces what keeps numbers from being given twice: the file's
	// beginning, and each reservation of numbers.
	SyncAhead Syncing = iota
	// SyncEach forces every flush: what readers see survives a power cut.
	SyncEach
	// SyncNever leaves it to the system.
	SyncNever
)

// Options are what a log is opened with. The zero value is of use.
type Options struct {
	Memory int     // bytes kept in memory, 0 means DefaultMemory
	Budget *Budget // bounds the memory of all logs that share it; nil is no bound
	Sync   Syncing
	Stats  *Stats // is added to; nil counts nothing

	// Old is the file of a log in the first format, "" for none. Its entries
	// are taken over when there is no other file yet.
	Old string

	// About returns what the file says of the session at its beginning, for
	// one whose record is lost; nil says nothing. It is called with the file's
	// first flush, and must not use the log.
	About func() []byte

	// Reached is the newest number that readers are known to have seen, 0 where that
	// is not known. A file that ends before it has lost entries, and readers are told.
	Reached uint64

	// Held has readers wait for another place, too, which Confirm tells of: beyond Reached
	// they see an entry when both the file and that place have it.
	Held bool

	// Bound is the number up to which numbers may have been given beyond that: none of
	// them is given again, whatever the file says. See [Log.Reserved].
	Bound uint64

	// Damage returns the message that readers are given in the place of
	// entries that cannot be read; nil makes a plain object.
	Damage func(first, last uint64) []byte

	// Blocks returns the blocks of a prompt, nil for what is none; they may be parts of it.
	Blocks func(prompt []byte) []json.RawMessage

	// Echo returns the message that shows a block of a prompt.
	Echo func(block []byte) []byte

	// ReservedMore is called when the log has reserved numbers: [Log.Reserved] is another
	// one. It must not wait, nor use the log; nil for nothing.
	ReservedMore func()

	// Trouble is called when the file stops taking entries, with the reason,
	// and with nil when it takes them again. It may use the log.
	Trouble func(err error)

	// Opened is called when the log has opened its file, which Release gives back. It
	// must not wait, nor use the log; nil for nothing.
	Opened func()

	// InPlace says why nothing must be looked for by its path now, as where another folder has the place of the one that the
	// file is in, nil if it may; a file that is open is written nevertheless. It is not called with each write. It must not use the log; nil is
	// for nothing.
	InPlace func() error

	disk disk // nil is the operating system's
}

// Log is the log of one session. All methods are safe for concurrent use; the
// order of concurrent appends is the order of their sequence numbers.
type Log struct {
	path string // "" keeps everything in memory
	o    Options

	mu       sync.Mutex
	file     file          // nil until needed, and after Release
	start    int64         // of the file's blocks
	size     int64         // bytes of the file that hold what was written
	synced   int64         // bytes of the file that are known to be on disk
	cut      bool          // the file may be longer: what is behind was never seen
	folder   bool          // that the file exists must be made durable, too
	due      bool          // what was written must be on disk before it is shown
	redo     bool          // a sync failed: what is not synced must be written again
	reserved bool          // numbers up to bound can be given; the file has no closing mark
	whole    bool          // nothing is lost at the file's end, which has no closing mark: who wrote it was killed, and the machine went on
	bound    uint64        // numbers up to it are reserved in the file
	loose    int64         // bytes of blocks that could be fewer and compressed
	packing  packing       // of what is written
	version  int           // counts files: positions in an earlier one mean nothing
	blocks   []*block      // oldest first; the file's newest entries
	held     int           // bytes of blocks
	front    uint64        // the newest entry that a reader was given from memory
	read     chan struct{} // closed when one is given more; nil when nobody waits for that
	readers  int           // who reads all that a log without a file has; see KeepAll
	unsaved  []*block      // blocks with bytes the file does not have yet
	next     uint64        // sequence number of the next append
	appended uint64        // newest entry
	saved    uint64        // newest entry that the file has
	visible  uint64        // newest entry that readers may see; the same, unless the log is held
	skipped  uint64        // numbers that no entry had, before those that are given since Open
	expired  uint64        // newest entry that was let go, of the file or, without one, of memory; 0 for none
	fresh    uint64        // entries that readers do not see yet
	weight   int           // bytes of them
	batch    int64         // time of the current batch, ms; 0 between batches
	saveErr  error         // why the newest entries are not in the file
	used     time.Time     // the last write to or read from the file
	watchers []Watcher
	closed   bool
	given    int64 // time of the newest entry that was appended since Open, in ms
	kept     int64 // and of the newest that the file has
	refused  error // why nothing can be written or read, ever
	retrying bool
	stop     chan struct{} // closed by Close
	mended   chan struct{} // closed when the file takes entries again; nil when it does
	trimming chan struct{} // closed when the Trim has ended that runs; nil without one

	wroteOut int64          // bytes of the file that were handed to WriteOut
	writing  bool           // a range is being written out
	work     sync.WaitGroup // the goroutines that do that, and try again
}

// Open opens the log in the file at path, which the first flush makes; "" makes
// a log that lives in memory only. A file that cannot be opened, or is not
// understood, is an error, and stays as it is.
func Open(path string, o Options) (*Log, error) {
	if o.Memory <= 0 {
		o.Memory = DefaultMemory
	}
	if o.disk == nil {
		o.disk = osDisk{}
	}
	l := &Log{path: path, o: o, next: 1, stop: make(chan struct{})}
	if path == "" {
		return l, nil
	}
	if err := o.inPlace(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	f, err := o.disk.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.Old != "" {
			f, err = takeOver(o.disk, o.Old, path, o.about())
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && o.Reached == 0 && o.Bound == 0:
			return l, nil
		case errors.Is(err, fs.ErrNotExist):
			f, err = o.disk.Create(path)
		}
	case err == nil && o.Old != "":
		if err = putAside(o.disk, o.Old); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	t, err := readTail(f)
	if err == nil && !t.closed { // who wrote it may have been killed while it wrote the file anew
		_ = o.disk.Remove(trimPath(path))
		_ = o.disk.Remove(tempPath(path))
	}
	if err == nil && (t.last < o.Reached || t.size == 0 && o.Bound > 0) {
		t, err = noteLost(f, t, &o)
	}
	if o.Bound > t.bound { // the file is older, or has lost its end
		t.next = max(t.next, o.Bound+1)
	}
	if err == nil && !t.closed && o.Sync != SyncNever {
		// Whoever wrote it may have been killed before it was durable, and now
		// readers will see it.
		if err = rewriteEnd(f, max(0, t.size-reopenTail), t.size); err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = f.Sync() // with a full disk, or quota, too, what is there can be read
		}
		if err == nil {
			err = o.disk.SyncFolder(path)
		}
	}
	if err == nil {
		l.expired, err = readExpired(f, t.start, t.size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	l.start, l.size, l.synced, l.cut, l.wroteOut = t.start, t.size, t.size, t.cut, t.size&^4095
	l.folder = t.closed // renamed in its place, perhaps, by a program that was killed
	l.next, l.bound, l.skipped = t.next, t.bound, t.skipped+t.next-1-t.last
	l.whole = !t.closed && t.boot != 0 && t.boot == o.disk.Boot()
	l.appended, l.saved, l.visible = t.last, t.last, t.last
	if o.Held {
		l.visible = min(t.last, o.Reached)
	}
	return l, nil
}

// noteLost writes behind the end of a file that readers have seen more than it has,
// and returns how it ends then.
func noteLost(f file, t tail, o *Options) (tail, error) {
	reached := max(o.Reached, t.next-1) // as many may have been given
	if o.Bound > t.bound {
		reached = max(reached, o.Bound)
	}
	b := appendBeginning(nil, o.about(), reached+1, reached, o.disk.Boot())
	if t.size > 0 {
		b = appendBlock(nil, header{kind: lost, first: t.last + 1, bound: reached, skipped: t.skipped, boot: o.disk.Boot()}, nil)
	}
	err := f.Truncate(t.size)
	if err == nil {
		_, err = f.WriteAt(b, t.size)
	}
	if err != nil {
		return t, fmt.Errorf("note what is lost: %w", err)
	}
	return readTail(f)
}

// Unavailable returns what stands for a log that could not be opened: it has no
// entries, shows none that are appended, and every flush returns err.
func Unavailable(err error) *Log {
	l := &Log{path: "unavailable", next: 1, closed: true, refused: err, stop: make(chan struct{})}
	l.o.Memory = DefaultMemory
	return l
}

func (o *Options) about() []byte {
	if o.About == nil {
		return nil
	}
	return o.About()
}

func (o *Options) inPlace() error {
	if o.InPlace == nil {
		return nil
	}
	return o.InPlace()
}

// damage returns what stands for the entries first to last.
func (l *Log) damage(first, last uint64) []byte {
	if l.o.Damage != nil {
		return l.o.Damage(first, last)
	}
	b := strconv.AppendUint([]byte(`{"damaged":{"first":`), first, 10)
	b = strconv.AppendUint(append(b, `,"last":`...), last, 10)
	return append(b, "}}"...)
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
	need := headerSize + 96 + len(lineEnd)
	for _, p := range parts {
		need += len(p)
	}
	b := l.roomLocked(need)
	if l.batch == 0 {
		l.batch = time.Now().UnixMilli()
		l.given = l.batch
	}
	seq := l.next
	l.next++
	l.appended = seq
	l.fresh++
	line := len(b.buf)
	b.buf = appendHead(b.buf, seq, l.batch, k, to)
	frame := len(b.buf)
	for _, p := range parts {
		b.buf = append(b.buf, p...)
	}
	b.refs = append(b.refs, ref{line: uint32(line), frame: uint32(frame), end: uint32(len(b.buf)), to: to, kind: k})
	b.buf = append(b.buf, lineEnd...)
	l.weight += len(b.buf) - line
	return seq
}

// oldestLocked returns the oldest entry that can be read.
func (l *Log) oldestLocked() uint64 {
	return l.expired + 1
}

// Last returns the newest visible sequence number, 0 for an empty log.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visible
}

// Saved returns the newest sequence number that the file has. It is more than Last while
// the log is held, and nothing else.
func (l *Log) Saved() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saved
}

// Closed is closed when Close is called.
func (l *Log) Closed() <-chan struct{} { return l.stop }

// Held reports whether readers wait for Confirm; see [Options].
func (l *Log) Held() bool { return l.o.Held }

// Pending reports whether an entry that was appended is shown later. A log that stands for one that could
// not be opened shows nothing, ever.
func (l *Log) Pending(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visible < seq && l.refused == nil
}

// Confirm says that the other place has what the file has, up to an entry: readers see it.
// What the file does not have is not confirmed by that.
func (l *Log) Confirm(upTo uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if upTo = min(upTo, l.saved); upTo <= l.visible {
		return
	}
	l.visible = upTo
	l.wakeLocked(math.MaxInt32) // nobody has counted
}

// Appended returns the newest sequence number, visible or not.
func (l *Log) Appended() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended
}

// Given returns the newest sequence number that was given, or may have been. It is more than
// Appended behind an end that was not in good order.
func (l *Log) Given() uint64 {
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

// Reserved returns the number up to which numbers may be given before it is another one, or were perhaps given and the
// file does not say so, 0 when there are none. Who keeps it elsewhere gives it to Open as the Bound.
func (l *Log) Reserved() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.reserved:
		return l.bound
	case l.next-1 > max(l.bound, l.appended):
		return l.next - 1
	}
	return 0
}

// Err returns why the newest entries are not in the file, nil when they are.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saveErr
}

// Room waits while the file does not take entries and the memory that may be
// used instead, by this log or by all, is full. It waits for a moment, too, before the reader that is
// furthest ahead has to read from the file, which takes it longer. Whoever appends without end calls it between flushes. It
// ends with stop as well, and when the log is closed.
func (l *Log) Room(stop <-chan struct{}) {
	var over <-chan time.Time
	var front uint64 // when it began to wait for a reader
	for {
		l.mu.Lock()
		wait := l.mended
		if l.held <= 2*l.o.Memory+maxBlock && !l.o.Budget.Spent() {
			wait = nil
		}
		if wait == nil && l.outrunsLocked() {
			if l.read == nil {
				l.read = make(chan struct{})
			}
			wait = l.read
			if over == nil {
				over, front = time.After(patience), l.front
			}
		}
		l.mu.Unlock()
		if wait == nil {
			return
		}
		select {
		case <-wait:
		case <-over:
			l.mu.Lock()
			if l.front == front { // it does not read, or is gone: nobody waits for it before it does
				l.front = 0
			}
			l.mu.Unlock()
			return
		case <-l.stop:
			return
		case <-stop:
			return
		}
	}
}

// patience is how long [Log.Room] waits for a reader: one that does not read holds nobody up.
const patience = 5 * time.Millisecond

// outrunsLocked reports whether the entry that the foremost reader comes to next is about to leave memory, for no other reason
// than that so much follows it.
func (l *Log) outrunsLocked() bool {
	if l.front == 0 || len(l.blocks) == 0 || l.front+1 < l.blocks[0].first || l.o.Budget.Spent() {
		return false
	}
	behind := 0
	for i := len(l.blocks) - 1; i > 0 && l.blocks[i].first > l.front; i-- {
		behind += cap(l.blocks[i].buf)
	}
	most := l.mayHold()
	return behind > max(most-2*maxBlock, most/2)
}

// readLocked notes how far a reader has come.
func (l *Log) readLocked(seq uint64) {
	l.front = max(l.front, seq)
	if l.read != nil {
		close(l.read)
		l.read = nil
	}
}

// Watch makes every Flush that saves something, and every Confirm that shows something, send
// to wake, without waiting; use a channel with room for one. The returned function ends it.
func (l *Log) Watch(wake chan<- struct{}) (stop func()) { return l.WatchBy(bell(wake)) }

// bell is a watcher that waits at a channel.
type bell chan<- struct{}

// Tell implements [Watcher].
func (b bell) Tell(int) {
	select {
	case b <- struct{}{}:
	default: // it has a wake-up pending
	}
}

// Watcher is told that a log shows something new, of so many bytes at most. Tell is called with
// the log's lock held: it must not wait, nor use the log. Watchers are compared.
type Watcher interface{ Tell(bytes int) }

// WatchBy is [Log.Watch] for who does not wait at a channel.
func (l *Log) WatchBy(w Watcher) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, w)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.watchers, w); i >= 0 {
			l.watchers = slices.Delete(l.watchers, i, i+1)
		}
	}
}

func (l *Log) wakeLocked(bytes int) {
	for _, w := range l.watchers {
		w.Tell(bytes)
	}
}

// trimPath is where Trim makes the file anew: what else does it meanwhile uses another one.
func trimPath(path string) string { return tempPath(path + ".trim") }

// tempPath is where a file is made before it gets its name.
func tempPath(path string) string {
	return filepath.Join(filepath.Dir(path), filepath.Base(path)+".tmp")
}
