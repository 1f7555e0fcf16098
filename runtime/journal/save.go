package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

const (
	writeOutEvery = 16 << 20 // bytes
	writeOutLag   = 1 << 20  // bytes at the end of the file that are left alone

	retryAfter = time.Second // until a file that did not take entries is tried again

	looseFrom = 64 << 10  // bytes that are worth to be compressed
	looseUpTo = 256 << 20 // bytes of a file that is written anew for it
	lastUpTo  = 16 << 20  // the same at the end of the program, which waits for it
)

// Flush writes what was appended since the last Flush to the file and, unless the log is
// held, shows it to readers. When the file does not take it, nothing is shown, the error is
// returned, and the log tries again by itself.
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
	if l.fresh == 0 && l.saveErr == nil {
		return nil
	}
	l.batch = 0
	if err := l.saveLocked(); err != nil {
		l.failedLocked(err)
		return err
	}
	if l.o.Stats != nil {
		l.o.Stats.Appended.Add(l.fresh)
	}
	if l.mended != nil {
		close(l.mended)
		l.mended = nil
	}
	l.saveErr = nil
	l.evictLocked()
	bytes := l.weight
	l.weight = 0
	l.saved, l.fresh, l.kept = l.appended, 0, l.given
	if !l.o.Held {
		l.visible = l.saved
	}
	l.wakeLocked(bytes)
	return nil
}

// failedLocked notes that the file did not take what was appended, and has it
// tried again.
func (l *Log) failedLocked(err error) {
	l.saveErr = err
	if l.o.Stats != nil {
		l.o.Stats.Errors.Add(1)
	}
	if l.closed {
		return
	}
	if l.mended == nil {
		l.mended = make(chan struct{})
	}
	if !l.retrying {
		l.retrying = true
		l.work.Go(l.retry)
	}
}

// retry tells of the trouble, tries until the file takes entries, and tells of
// that.
func (l *Log) retry() {
	for told := false; ; {
		l.mu.Lock()
		if told {
			l.againLocked()
		}
		err := l.saveErr
		l.retrying = err != nil
		l.mu.Unlock()
		if l.o.Trouble != nil && (err == nil || !told) {
			l.o.Trouble(err)
		}
		if told = true; err == nil {
			return
		}
		select {
		case <-time.After(retryAfter):
		case <-l.stop:
			return
		}
	}
}

// againLocked tries to write what the file did not take.
func (l *Log) againLocked() {
	if l.file != nil {
		if err := l.keepLocked(); err != nil {
			l.saveErr = err
			return
		}
	}
	_ = l.flushLocked() // the error is in saveErr
}

// saveLocked writes the unsaved bytes to the file, each block of memory as one
// of the file.
func (l *Log) saveLocked() error {
	if l.path == "" {
		for i, b := range l.unsaved {
			b.saved.bytes, b.saved.entries, l.unsaved[i] = len(b.buf), len(b.refs), nil
		}
		l.unsaved = l.unsaved[:0]
		return nil
	}
	if err := l.openLocked(true); err != nil {
		return err
	}
	for len(l.unsaved) > 0 {
		b := l.unsaved[0]
		h := header{kind: entries, first: b.first + uint64(b.saved.entries), count: uint32(len(b.refs) - b.saved.entries), bound: l.bound, skipped: l.skipped}
		if !l.reserved || h.last() > l.bound {
			h.bound = max(l.bound, h.last()+reservation(h.last()))
		}
		if err := l.writeLocked(h, b.buf[b.saved.bytes:]); err != nil {
			return err
		}
		if !l.reserved || h.bound > l.bound {
			l.due = l.due || l.o.Sync != SyncNever
			l.reserveLocked(h.bound)
		}
		b.saved.bytes, b.saved.entries = len(b.buf), len(b.refs)
		l.unsaved = slices.Delete(l.unsaved, 0, 1)
	}
	if l.due || l.o.Sync == SyncEach {
		l.due = true
		if err := l.syncLocked(); err != nil {
			return err
		}
	}
	l.writeOutLocked()
	return nil
}

// reserveLocked notes that numbers up to bound are reserved.
func (l *Log) reserveLocked(bound uint64) {
	l.bound, l.reserved, l.whole = bound, true, false
	if l.o.ReservedMore != nil {
		l.o.ReservedMore()
	}
}

// writeLocked writes a block to the end of the file: b has room for the header h,
// and the payload.
func (l *Log) writeLocked(h header, b []byte) error {
	if l.cut {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		l.cut = false
	}
	h.boot = l.o.disk.Boot()
	packed := l.packing.pack(&h, b)
	if packed != nil {
		defer scratch.Put(packed)
		b = *packed
	} else {
		h.seal(b, stored, len(b)-headerSize)
	}
	begins := l.size == 0
	if begins {
		b = append(appendBeginning(nil, l.o.about(), h.first, h.first-1-h.skipped, h.boot), b...)
	}
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		l.cut = true // a part of it may be there
		return fmt.Errorf("write journal: %w", err)
	}
	if begins {
		l.start = int64(len(versionLine))
	}
	if h.loose() {
		l.loose += int64(len(b))
	}
	l.size += int64(len(b))
	if l.o.Stats != nil {
		l.o.Stats.Written.Add(uint64(len(b)))
	}
	return nil
}

// appendBeginning appends what a file begins with that goes on with the entry
// next. When it is not the first one, those before it were lost with their file.
func appendBeginning(buf, about []byte, next, had uint64, boot uint32) []byte {
	buf = append(buf, versionLine...)
	if about != nil {
		buf = appendBlock(buf, header{kind: aboutBlock, first: 1, boot: boot}, about)
	}
	if had > 0 {
		buf = appendBlock(buf, header{kind: lost, first: 1, bound: next - 1, skipped: next - 1 - had, boot: boot}, nil)
	}
	return buf
}

// openLocked opens the file; to write, also one that there is not.
func (l *Log) openLocked(write bool) error {
	l.used = time.Now()
	if l.file != nil {
		return nil
	}
	if l.closed {
		return cmp.Or(l.refused, os.ErrClosed)
	}
	if err := l.o.inPlace(); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	f, err := l.o.disk.Open(l.path)
	if write && errors.Is(err, fs.ErrNotExist) {
		if f, err = l.o.disk.Create(l.path); err == nil {
			l.size, l.synced, l.cut, l.folder, l.reserved, l.whole = 0, 0, false, true, false, false
			l.version++
		}
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	l.file = f
	if l.o.Stats != nil {
		l.o.Stats.Open.Add(1)
	}
	if l.o.Opened != nil {
		l.o.Opened()
	}
	return nil
}

// closeFileLocked closes the file, which is open.
func (l *Log) closeFileLocked() error {
	err := l.file.Close()
	l.file = nil
	if l.o.Stats != nil {
		l.o.Stats.Open.Add(-1)
	}
	return err
}

// syncLocked makes durable what was written.
func (l *Log) syncLocked() error {
	if err := l.redoLocked(); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		l.redo = true
		return fmt.Errorf("sync journal: %w", err)
	}
	l.synced, l.due = l.size, false
	if l.folder {
		if err := l.o.disk.SyncFolder(l.path); err != nil {
			l.due = true
			return fmt.Errorf("sync journal: %w", err)
		}
		l.folder = false
	}
	return nil
}

// redoLocked writes again what a failed sync may have dropped.
func (l *Log) redoLocked() error {
	if !l.redo {
		return nil
	}
	if err := rewriteEnd(l.file, l.synced, l.size); err != nil {
		return err
	}
	l.redo = false
	return nil
}

// rewriteEnd writes a part of the file again, as it is. After a sync that failed
// the system forgets that it was never on disk.
func rewriteEnd(f file, off, end int64) error {
	buf := make([]byte, min(window, end-off))
	for off < end {
		n := min(int64(len(buf)), end-off)
		if _, err := f.ReadAt(buf[:n], off); err != nil {
			return fmt.Errorf("sync journal: %w", err)
		}
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return fmt.Errorf("sync journal: %w", err)
		}
		off += n
	}
	return nil
}

// Begin makes the file and has it on the disk, if there is none yet: what is
// appended first need not wait for that.
func (l *Log) Begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.size > 0 {
		return nil
	}
	if err := l.openLocked(true); err != nil {
		return err
	}
	h := header{kind: entries, first: l.next, skipped: l.skipped, bound: l.next - 1 + reservation(l.next)}
	if err := l.writeLocked(h, make([]byte, headerSize)); err != nil {
		return err
	}
	l.reserveLocked(h.bound)
	if l.o.Sync == SyncNever {
		return nil
	}
	l.due = true
	return l.syncLocked()
}

// Sync makes durable what the file has, and what was appended.
func (l *Log) Sync() error {
	l.mu.Lock()
	f, err := l.toSyncLocked()
	if f == nil || err != nil || l.folder {
		if err == nil && f != nil {
			err = l.syncLocked()
		}
		l.mu.Unlock()
		return err
	}
	size, version := l.size, l.version
	l.mu.Unlock()
	err = f.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.version != version: // it was replaced by one that is durable
		return nil
	case errors.Is(err, os.ErrClosed) && l.synced >= size: // Release was faster
		return nil
	case err != nil:
		l.redo = true
		return fmt.Errorf("sync journal: %w", err)
	}
	l.synced = max(l.synced, size)
	return nil
}

// toSyncLocked flushes and returns the file if there is something to make durable.
func (l *Log) toSyncLocked() (file, error) {
	if err := l.flushLocked(); err != nil {
		return nil, err
	}
	if l.path == "" || l.synced == l.size {
		return nil, nil
	}
	if err := l.openLocked(false); err != nil {
		return nil, err
	}
	if err := l.keepLocked(); err != nil {
		l.failedLocked(err)
		return nil, err
	}
	return l.file, l.redoLocked()
}

// keepLocked sees to it that the file is the one that its path names. One that
// was removed is made anew. Another one is used if it can be the same: it was
// moved away and back, perhaps.
func (l *Log) keepLocked() error {
	if err := l.o.inPlace(); err != nil {
		return err
	}
	switch l.file.Place() {
	case nothing:
		if err := l.replaceLocked(false); err != nil {
			return fmt.Errorf("the journal's file was removed, and cannot be made anew: %w", err)
		}
	case another:
		_ = l.closeFileLocked()
		l.version++
		if err := l.openLocked(true); err != nil {
			return err
		}
		if size, err := l.file.Size(); err != nil || size != l.size {
			_ = l.closeFileLocked()
			return errors.Join(errors.New("the journal's file was replaced by another"), err)
		}
	}
	return nil
}

// replaceLocked puts a copy of the file in its place; what can be put together
// is, if pack is set.
func (l *Log) replaceLocked(pack bool) error {
	return l.rewriteLocked(pack, func(out *writer) error {
		return out.parts(&walk{f: l.file, off: l.start, end: l.size}, 0, nil)
	})
}

// rewriteLocked puts another file in the place of the one that there is.
func (l *Log) rewriteLocked(pack bool, write func(out *writer) error) error {
	if err := l.o.inPlace(); err != nil {
		return err
	}
	temp := tempPath(l.path)
	f, err := l.o.disk.Create(temp)
	if err != nil {
		return err
	}
	out := &writer{f: f, pack: pack}
	err = out.beginning()
	if err == nil {
		err = write(out)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.o.inPlace() // that took a while
	}
	if err == nil {
		err = l.o.disk.Rename(temp, l.path)
	}
	if err != nil {
		return errors.Join(err, f.Close(), l.o.disk.Remove(temp))
	}
	return l.useLocked(f, out.off)
}

// useLocked uses another file of a size, which has got the name of the one that there is.
func (l *Log) useLocked(f file, size int64) error {
	_ = l.file.Close()
	if reopened, err := l.o.disk.Open(l.path); err == nil { // by its own name
		_ = f.Close()
		f = reopened
	}
	l.file, l.start, l.size, l.synced, l.wroteOut = f, int64(len(versionLine)), size, size, size&^4095
	l.cut, l.redo, l.loose, l.folder = false, false, 0, true
	l.version++
	if err := l.o.disk.SyncFolder(l.path); err != nil {
		return err
	}
	l.folder = false
	return nil
}

// markLocked makes durable what the file has, and writes that the log ends in
// good order, unless it says so already: nothing was written since. When a power cut
// takes the mark, numbers are skipped, that is all. Those that are skipped already stay so.
// Behind a kill that lost nothing, a disk that takes no mark fails nobody: it is tried the next time.
func (l *Log) markLocked() error {
	if l.reserved || !l.whole {
		return l.markReservedLocked()
	}
	if l.file != nil || l.openLocked(false) == nil { // nothing may have been read
		_ = l.markReservedLocked()
	}
	return nil
}

func (l *Log) markReservedLocked() error {
	if l.file == nil || !l.reserved && !l.whole {
		return nil
	}
	if l.o.Sync != SyncNever && l.synced < l.size {
		if err := l.syncLocked(); err != nil {
			return err
		}
	}
	h := header{kind: closed, first: l.saved + 1, bound: max(l.bound, l.next-1)}
	h.skipped = l.skipped - (l.next - h.first) // those behind it are in the payload
	if err := l.writeLocked(h, append(make([]byte, headerSize, longestMark), markFor(h.first, l.next)...)); err != nil {
		return err
	}
	l.reserved, l.whole = false, false
	return nil
}

// packLocked compresses the file when that is worth it, and the file not larger than most. The one that is there is as good.
func (l *Log) packLocked(most int64) {
	if l.file != nil && l.loose > max(looseFrom, l.size/4) && l.size <= most {
		_ = l.replaceLocked(true)
	}
}

// Pack flushes the log, and compresses its file now, unless that is large: for who closes the log and keeps its file.
func (l *Log) Pack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.flushLocked() == nil {
		l.packLocked(lastUpTo)
	}
}

// Release gives back memory and the file handle, unless the log was used within
// the time given; it stays usable. A log without a file keeps its entries.
func (l *Log) Release(idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.closed || l.trimming != nil || l.file == nil && l.blocks == nil && !l.whole || time.Since(l.used) < idle || l.flushLocked() != nil {
		return
	}
	if l.file != nil {
		l.packLocked(looseUpTo)
	}
	if l.markLocked() != nil {
		return
	}
	if l.file != nil {
		_ = l.closeFileLocked() // everything was written, reads open it again
	}
	for _, b := range l.blocks {
		b.retire()
	}
	l.blocks = nil
	l.holdLocked(-l.held)
}

// Move has move put the file elsewhere, and reads it there from then on; move returns its new path. The log has no
// file open meanwhile, for some systems move no folder in which one is: a reader that has just taken it fails once.
func (l *Log) Move(move func() (path string, err error)) error {
	l.lockAlone()
	defer l.mu.Unlock()
	if l.file != nil {
		if l.flushLocked() == nil { // what the file does not take stays in memory, and a part of it may be there
			_ = l.markLocked()
		}
		_ = l.closeFileLocked()
	}
	path, err := move()
	if err == nil {
		l.path = path
	}
	return err
}

// Close flushes, syncs and closes the log. Entries that are still in memory can
// be read; nothing can be appended that would be seen.
func (l *Log) Close() error {
	l.lockAlone()
	err := l.flushLocked()
	if !l.closed {
		if err == nil && l.o.Sync != SyncNever {
			_, err = l.toSyncLocked() // opens the file if there is something to sync
		}
		if err == nil {
			err = l.markLocked()
		}
		l.closed = true
		close(l.stop)
		l.leaveLocked()
	}
	if l.file != nil {
		err = errors.Join(err, l.closeFileLocked())
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

// writeOutLocked has what has piled up in the file since the last time written
// to disk in the background. A burst then neither leaves hundreds of megabytes
// for the next sync, nor takes ever more memory for the file's pages, which the
// kernel would have to clear: the same pages are used again. The end of the file
// is left out: writing to a page that is on its way to disk has to wait.
func (l *Log) writeOutLocked() {
	off, n := l.wroteOut, (l.size-writeOutLag)&^4095-l.wroteOut
	if n < writeOutEvery || l.writing {
		return
	}
	l.wroteOut, l.writing = off+n, true
	f := l.file
	l.work.Go(func() {
		f.WriteOut(off, n)
		l.mu.Lock()
		l.writing = false
		l.mu.Unlock()
	})
}
