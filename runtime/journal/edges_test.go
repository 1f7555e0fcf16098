package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A log that is begun has its file before anything is appended, durably, and its
// numbers are reserved: a machine that stops then gives none of them twice.
func TestBegin_ReservesBeforeTheFirstEntry(t *testing.T) {
	for name, tt := range map[string]struct {
		sync    Syncing
		durable bool
	}{"ahead": {SyncAhead, true}, "each": {SyncEach, true}, "never": {SyncNever, false}} {
		t.Run(name, func(t *testing.T) {
			disk := newFaultDisk(rand.New(rand.NewPCG(5, 6)))
			o := Options{disk: disk, Sync: tt.sync}
			l := openTrimmed(t, "log", o)
			for range 2 { // it is begun once
				if err := l.Begin(); err != nil {
					t.Fatal(err)
				}
			}
			f := disk.files["log"]
			size := len(f.cache)
			if size == 0 || (len(f.disk) == size) != tt.durable || (disk.names["log"] == f) != tt.durable {
				t.Errorf("%d bytes, of them %d on the disk, with a name %v", size, len(f.disk), disk.names["log"] == f)
			}
			disk.boot++ // it was cut off, and everything had reached the disk
			again := openTrimmed(t, "log", o)
			if seq, err := again.AppendFlush(Update, Everyone, frame(1)); err != nil || seq < 2 {
				t.Errorf("the first entry behind a power cut is %d, %v", seq, err)
			}
			if seq, err := l.AppendFlush(Update, Everyone, frame(1)); err != nil || seq != 1 {
				t.Errorf("the first entry is %d, %v", seq, err)
			}
			for _, each := range []*Log{l, again} {
				_ = each.Close()
			}
		})
	}
	memory := openTrimmed(t, "", Options{})
	if err := memory.Begin(); err != nil {
		t.Error(err)
	}
	fill(t, memory, 1, 3)
	l, path := open(t, 0)
	fill(t, l, 1, 5)
	l.Release(0)
	before, _ := os.ReadFile(path)
	if err := l.Begin(); err != nil {
		t.Error(err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Errorf("a log that has entries is begun again: %d bytes, then %d", len(before), len(after))
	}
}

// A log without a file lets go of what nobody needs, in whole blocks, and of nothing
// else.
func TestForget(t *testing.T) {
	filled := func() *Log {
		l := openTrimmed(t, "", Options{Memory: 64 << 20})
		for i := 1; i <= 200; i++ {
			if _, err := l.AppendFlush(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d,"text":%q}`, i, noise(4000)))); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
	l := filled()
	first := l.blocks[0]
	last := first.first + uint64(len(first.refs)) - 1
	l.Forget(last-1, 0)
	if l.Oldest() != 1 {
		t.Errorf("the oldest is %d when entry %d is needed", l.Oldest(), last)
	}
	l.Forget(everything, 1<<30)
	if l.Oldest() != 1 {
		t.Errorf("the oldest is %d when there is room", l.Oldest())
	}
	l.Forget(last, 0)
	if l.Oldest() != last+1 {
		t.Errorf("the oldest is %d, want %d", l.Oldest(), last+1)
	}
	checkTrimmed(t, l, last+1, 200)
	keep := l.held / 2
	l.Forget(everything-1, keep)
	if l.held > keep || l.held < keep/4 {
		t.Errorf("%d bytes are held, want about %d", l.held, keep)
	}
	onDisk, _ := open(t, 0)
	fill(t, onDisk, 1, 100)
	onDisk.Forget(everything, 0)
	checkRun(t, readAll(t, onDisk, 0), 1, 100)
}

// What a sync has not made durable is written again by the next one: the system has
// forgotten it.
func TestSync_WritesAgainWhatASyncHasDropped(t *testing.T) {
	disk := newFaultDisk(rand.New(rand.NewPCG(7, 8)))
	l := openTrimmed(t, "log", Options{disk: disk})
	fill(t, l, 1, 10)
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 11, 20)
	disk.fail(1, false, -1)
	if err := l.Sync(); err == nil {
		t.Error("a sync that failed is not told")
	}
	disk.fail(0, false, -1)
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	f := disk.files["log"]
	if !bytes.Equal(f.disk, f.cache) {
		t.Errorf("%d bytes were written, and %d of them are on the disk as they are", len(f.cache), commonPrefix(f.disk, f.cache))
	}
	_ = l.Close()
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// An open file that took nothing for a while is written by the log itself: those who
// wait for its entries need nobody who appends more.
func TestLog_GoesOnByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk(rand.New(rand.NewPCG(9, 9)))
		var told []error
		l := openTrimmed(t, "log", Options{disk: disk, Trouble: func(err error) { told = append(told, err) }})
		fill(t, l, 1, 10)
		disk.fail(0, true, -1)
		if _, err := l.AppendFlush(Update, Everyone, frame(11)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a full disk: %v", err)
		}
		disk.fail(0, false, -1)
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		if l.Last() != 11 || l.Err() != nil {
			t.Errorf("the newest entry that is shown is %d, %v", l.Last(), l.Err())
		}
		if len(told) != 2 || told[0] == nil || told[1] != nil {
			t.Errorf("told: %v", told)
		}
		// A file that cannot be kept is no better than one that takes nothing.
		disk.fail(0, true, -1)
		_, _ = l.AppendFlush(Update, Everyone, frame(12))
		if err := disk.Remove("log"); err == nil {
			t.Error("a full disk removes files")
		}
		disk.mu.Lock()
		delete(disk.files, "log")
		disk.mu.Unlock()
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		if l.Last() != 11 || l.Err() == nil {
			t.Errorf("the newest entry is %d, %v, and the file is gone", l.Last(), l.Err())
		}
		disk.fail(0, false, -1)
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		checkRun(t, readAll(t, l, 0), 1, 12)
		_ = l.Close()
	})
}

// A file that another one was put in the place of is not written to, nor is the other.
func TestLog_ItsFileWasReplaced(t *testing.T) {
	l, path := open(t, 0)
	fill(t, l, 1, 10)
	moved, other := path+".moved", path+".other"
	if err := errors.Join(os.Rename(path, moved), os.WriteFile(path, []byte("somebody's notes"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l.Append(Update, Everyone, frame(11))
	if err := l.Sync(); err == nil || !strings.Contains(err.Error(), "replaced by another") {
		t.Errorf("another file in its place: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "somebody's notes" {
		t.Errorf("the other file is now %q, %v", b, err)
	}
	// It was moved away and back.
	if err := errors.Join(os.Rename(path, other), os.Rename(moved, path)); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	checkRun(t, readAll(t, l, 0), 1, 11)
}

// A file that was only just made, or whose beginning is lost, says what it can.
func TestOpen_Beginnings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.journal")
	for _, made := range []string{"", versionLine[:3], versionLine} {
		if err := os.WriteFile(path, []byte(made), 0o600); err != nil {
			t.Fatal(err)
		}
		l := openTrimmed(t, path, Options{})
		fill(t, l, 1, 3)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path, data, blocks := written(t, 300)
	first := blocks[0]
	clear(data[first.off : first.off+headerSize])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, "", 0); err != nil {
		t.Fatal(err)
	}
	rep, err := Verify(path, 0)
	if err != nil || len(rep.Lost) != 1 || rep.Lost[0].First != 1 || rep.Lost[0].Last != first.last() || !rep.Closed {
		t.Errorf("%+v, %v", rep, err)
	}
	// Its end says that it ended in good order: no number is skipped.
	l := openTrimmed(t, path, Options{})
	if seq := l.Append(Update, Everyone, frame(301)); seq != 301 {
		t.Errorf("the next entry is %d", seq)
	}
	_ = l.Close()
}

// A copy that has some of what was lost gives that; the rest is lost.
func TestRepair_FromHalfACopy(t *testing.T) {
	path, data, blocks := written(t, 600)
	spare := filepath.Join(t.TempDir(), "spare")
	lost := blocks[7:12]
	damaged := bytes.Clone(data)
	for _, b := range lost {
		clear(damaged[b.off : b.off+b.n])
	}
	half := bytes.Clone(data)
	for _, b := range []part{lost[0], lost[2], lost[4]} { // the copy lost the first, the middle and the last
		clear(half[b.off : b.off+b.n])
	}
	if err := errors.Join(os.WriteFile(path, damaged, 0o600), os.WriteFile(spare, half, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, spare, 0); err != nil {
		t.Fatal(err)
	}
	l := openTrimmed(t, path, Options{})
	defer l.Close()
	run := func(kind byte, b part) string { return fmt.Sprintf("%c %d-%d", kind, b.first, b.last()) }
	want := []string{
		fmt.Sprintf("u 1-%d", lost[0].first-1), run('x', lost[0]), run('u', lost[1]), run('x', lost[2]), run('u', lost[3]),
		run('x', lost[4]), fmt.Sprintf("u %d-600", lost[4].last()+1),
	}
	if diff := cmp.Diff(want, tell(t, l)); diff != "" {
		t.Errorf("what is read (-want +got):\n%s", diff)
	}
}

// Damage is told to everybody who reads.
func TestDamage_IsForEveryone(t *testing.T) {
	path, data, blocks := written(t, 100)
	b := blocks[3]
	data[b.off+headerSize] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openTrimmed(t, path, Options{})
	defer l.Close()
	told := 0
	for _, e := range readAllKinds(t, l) {
		if e.Kind == Damage {
			told++
			if e.To != Everyone {
				t.Errorf("damage is for %v", e.To)
			}
		}
	}
	if told != 1 {
		t.Errorf("damage is told %d times", told)
	}
}

func readAllKinds(t *testing.T, l *Log) (out []Entry) {
	t.Helper()
	for c := l.Cursor(0); ; {
		batch, err := c.Next(nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return out
		}
		out = append(out, batch...)
	}
}

// A file of the first format is verified without being taken over.
func TestVerify_TheFirstFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	good := oldFile(1, 50)
	for name, tt := range map[string]struct {
		file []byte
		bad  int
	}{"good": {good, 0}, "with a hole": {append(bytes.Clone(good), oldFile(60, 70)...), 1}} {
		if err := os.WriteFile(path, tt.file, 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(path, 0)
		if err != nil || rep.Format != 1 || rep.Bytes != int64(len(tt.file)) || len(rep.Damage) != tt.bad || rep.Closed != (tt.bad == 0) {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
	// Taken over, what was lost counts as entries.
	if err := os.WriteFile(path, append(bytes.Clone(good), oldFile(60, 70)...), 0o600); err != nil {
		t.Fatal(err)
	}
	hole := filepath.Join(t.TempDir(), "log.journal")
	l, err := Open(hole, Options{Old: path})
	if err != nil {
		t.Fatal(err)
	}
	if l.skipped != 0 {
		t.Errorf("%d numbers were skipped", l.skipped)
	}
	_ = l.Close()
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A prompt may have many blocks.
func TestEcho_ManyBlocks(t *testing.T) {
	l := openTrimmed(t, "", Options{Blocks: blocksOf, Echo: bytes.Clone})
	var blocks []string
	for i := range 200 {
		blocks = append(blocks, fmt.Sprintf(`{"block":%d}`, i))
	}
	prompt := l.Append(Client, 5, []byte(`{"method":"session/prompt","params":{"prompt":[`+strings.Join(blocks, ",")+`]}}`))
	for i := range blocks {
		l.AppendEcho(Everyone, prompt, i)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, e := range readAllKinds(t, l)[1:] {
		if string(e.Frame) != blocks[i] {
			t.Errorf("block %d is shown as %s", i, e.Frame)
		}
	}
}

// What was let go is not in the file any more, and it is known after a restart, with
// and without what is known of the session at its beginning.
func TestTrim_TheFileHasNoMore(t *testing.T) {
	for _, about := range []string{"", `{"id":"s1"}`} {
		path := filepath.Join(t.TempDir(), "log")
		o := Options{}
		if about != "" {
			o.About = func() []byte { return []byte(about) }
		}
		l := openTrimmed(t, path, o)
		if at, err := l.OldestTime(); err != nil || !at.IsZero() {
			t.Errorf("the oldest entry of none is of %v, %v", at, err)
		}
		for i := 1; i <= 100; i++ {
			l.Append(Update, Everyone, frame(i))
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		if at, err := l.OldestTime(); err != nil || time.Since(at) > time.Hour {
			t.Errorf("the oldest entry is of %v, %v", at, err)
		}
		if _, err := l.Trim(Keep{Bytes: -1, After: 40}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		if err := Cat(path, 0, &lines); err != nil || strings.Count(lines.String(), "\n") != 60 || !strings.HasPrefix(lines.String(), `{"seq":41,`) {
			t.Errorf("the file has %d lines, %v: %.60s", strings.Count(lines.String(), "\n"), err, lines.String())
		}
		l = openTrimmed(t, path, o)
		checkTrimmed(t, l, 41, 100)
		_ = l.Close()
		if got, err := About(path); about != "" && (err != nil || string(got) != about) {
			t.Errorf("it says %s of its session, %v", got, err)
		}
	}
}

// A block of memory whose newest entry is the last that may go does go.
func TestTrim_OfMemoryUpToABlocksEnd(t *testing.T) {
	l := openTrimmed(t, "", Options{Memory: 64 << 20})
	for i := 1; i <= 100; i++ {
		if _, err := l.AppendFlush(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d,"text":%q}`, i, noise(4000)))); err != nil {
			t.Fatal(err)
		}
	}
	first := l.blocks[0]
	last := first.first + uint64(len(first.refs)) - 1
	if _, err := l.Trim(Keep{Bytes: -1, After: last}); err != nil || l.Oldest() != last+1 {
		t.Errorf("the oldest is %d, want %d, %v", l.Oldest(), last+1, err)
	}
}

// brokenReader fails at its first reads.
type brokenReader struct {
	io.ReaderAt
	fails int
}

func (r *brokenReader) ReadAt(b []byte, off int64) (int, error) {
	if r.fails > 0 {
		r.fails--
		clear(b)
		return 0, syscall.EIO
	}
	return r.ReaderAt.ReadAt(b, off)
}

// A read that failed has left nothing that could be taken for the file.
func TestWalk_ReadsAgain(t *testing.T) {
	_, data, blocks := written(t, 100)
	r := &brokenReader{ReaderAt: bytes.NewReader(data), fails: 1}
	w := &walk{f: r, off: int64(len(versionLine)), end: int64(len(data))}
	if _, err := w.next(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	for i := range blocks {
		p, err := w.next()
		if err != nil || p.bad != "" || p.off != blocks[i].off || p.first != blocks[i].first {
			t.Fatalf("block %d: %+v, %v", i, p.header, err)
		}
	}
}

// A file that ends within a block, and goes on with something else, says so.
func TestVerify_HalfABlock(t *testing.T) {
	_, data, blocks := written(t, 300)
	b := blocks[5]
	half := bytes.Clone(data[:b.off+b.n-1])
	w := &walk{f: bytes.NewReader(half), off: b.off, end: int64(len(half))}
	p, err := w.next()
	if err != nil || p.bad != "the file ends within the block" || p.n != b.n-1 {
		t.Errorf("%d bytes, %q, %v", p.n, p.bad, err)
	}
	if _, err := w.next(); err != io.EOF {
		t.Errorf("behind it: %v", err)
	}
}

// A file that ends anywhere, or has zeros from anywhere on, as a power cut leaves it:
// the blocks that are whole are there, and numbers go on behind all that anybody saw.
func TestOpen_EveryPrefix(t *testing.T) {
	path, data, blocks := written(t, 40)
	ends := map[int64]uint64{} // where a block of entries ends, and its last entry
	for _, b := range blocks {
		if b.kind == entries {
			ends[b.off+b.n] = b.last()
		}
	}
	for _, zeros := range []bool{false, true} {
		for n := range int64(len(data)) + 1 {
			b := data[:n:n]
			if zeros {
				b = append(b, make([]byte, int64(len(data))-n)...)
			}
			disk := newFaultDisk(nil) // that does not fail
			disk.files[path] = &faultFile{cache: slices.Clone(b)}
			want := uint64(0)
			for end, last := range ends {
				if end <= n {
					want = max(want, last)
				}
			}
			l, err := Open(path, Options{Sync: SyncNever, disk: disk})
			if err != nil {
				if n < int64(len(versionLine)) && errors.Is(err, ErrFormat) {
					continue // not even its version is there, and it is not empty
				}
				t.Fatalf("%d bytes, zeros %v: %v", n, zeros, err)
			}
			seq, err := l.AppendFlush(Update, Everyone, []byte(`{"behind":true}`))
			if err != nil || seq <= want || n == int64(len(data)) && seq != 41 {
				t.Fatalf("%d bytes, zeros %v: the next entry is %d behind %d, %v", n, zeros, seq, want, err)
			}
			at := uint64(0)
			for _, e := range readAllKinds(t, l) {
				switch {
				case e.Kind == Damage && at >= want && e.Seq == seq-1 || e.Seq == seq:
				case e.Kind == Update && e.Seq == at+1 && string(e.Frame) == string(frame(int(e.Seq))):
				case e.Kind == Damage: // where zeros are in the place of a block
				default:
					t.Fatalf("%d bytes, zeros %v: entry %d of kind %c is %s", n, zeros, e.Seq, e.Kind, e.Frame)
				}
				at = e.Seq
			}
			if at != seq || l.Last() != seq {
				t.Fatalf("%d bytes, zeros %v: the last is %d, want %d", n, zeros, at, seq)
			}
			got := 0
			for _, e := range readAllKinds(t, l) {
				if e.Kind == Update && e.Seq <= want {
					got++
				}
			}
			if uint64(got) != want {
				t.Fatalf("%d bytes, zeros %v: %d entries of %d are read", n, zeros, got, want)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if zeros || n < int64(len(versionLine)) {
				continue
			}
			// It is no different when it is opened again.
			again := openTrimmed(t, path, Options{Sync: SyncNever, disk: disk})
			if again.Last() != seq || again.Append(Update, Everyone, []byte(`{}`)) != seq+1 {
				t.Fatalf("%d bytes: opened again the last is %d", n, again.Last())
			}
			_ = again.Close()
		}
	}
}

// A report says all that is in a file, whole, torn and damaged.
func TestVerify_SaysAll(t *testing.T) {
	path, data, blocks := written(t, 200)
	last := blocks[len(blocks)-1]
	if last.kind != closed {
		t.Fatalf("the last block is of kind %c", last.kind)
	}
	lines, text := 0, int64(0)
	var cat bytes.Buffer
	if err := Cat(path, 0, &cat); err != nil {
		t.Fatal(err)
	}
	text, lines = int64(cat.Len()), bytes.Count(cat.Bytes(), []byte("\n"))
	whole := Report{
		Path: path, Format: 2, Bytes: int64(len(data)), Text: text, Blocks: len(blocks) - 1, Entries: 200, First: 1, Last: 200, Closed: true,
	}
	if lines != 200 {
		t.Errorf("%d lines", lines)
	}
	check := func(name string, b []byte, want Report) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Verify(path, 0)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	check("whole", data, whole)

	end := blocks[len(blocks)-2] // torn: of the last block of entries only a half is there
	torn := whole
	torn.Bytes, torn.Torn = end.off+end.n-5, end.n-5
	torn.Blocks, torn.Entries, torn.Last, torn.Closed = whole.Blocks-1, int(end.first)-1, end.first-1, false
	torn.Text = int64(bytes.Index(cat.Bytes(), []byte(fmt.Sprintf(`{"seq":%d,`, end.first))))
	check("torn", data[:torn.Bytes], torn)

	b := blocks[5] // its header can be read
	flipped := bytes.Clone(data)
	flipped[b.off+headerSize+3] ^= 0xff
	damaged := whole
	damaged.Blocks, damaged.Entries = whole.Blocks-1, 200-int(b.count)
	damaged.Text = text - int64(b.raw)
	damaged.Damage = []Damaged{{Offset: b.off, Length: b.n, First: b.first, Last: b.last(), Reason: "its checksum is wrong"}}
	check("a damaged block", flipped, damaged)

	ending := bytes.Clone(data) // the mark at the end is damaged
	ending[last.off+10] ^= 0xff
	open := whole
	open.Closed = false
	open.Damage = []Damaged{{Offset: last.off, Length: last.n, Reason: "this is no block"}}
	check("a damaged end", ending, open)

	if _, err := Verify(t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a folder: %v", err)
	}
	if err := Cat(filepath.Join(t.TempDir(), "none"), 0, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	old := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(old, oldFile(1, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	var was bytes.Buffer
	if err := Cat(old, 0, &was); err != nil || was.String() != string(oldFile(1, 3)) {
		t.Errorf("the first format is %q, %v", was.String(), err)
	}
}

// The size of a log is that of its file, or of its memory.
func TestSize(t *testing.T) {
	l, path := open(t, 0)
	fill(t, l, 1, 10)
	info, err := os.Stat(path)
	if err != nil || l.Size() != info.Size() {
		t.Errorf("%d bytes, the file has %d, %v", l.Size(), info.Size(), err)
	}
	memory := openTrimmed(t, "", Options{})
	fill(t, memory, 1, 10)
	if memory.Size() < 100 {
		t.Errorf("%d bytes of memory", memory.Size())
	}
	none := Unavailable(syscall.EMFILE)
	if none.Append(Update, Everyone, frame(1)) != 1 || !errors.Is(none.Flush(), syscall.EMFILE) || none.Last() != 0 {
		t.Errorf("a log that could not be opened shows %d entries", none.Last())
	}
}

// The bytes of the format are promised to every later version.
func TestFormat_Bytes(t *testing.T) {
	h := header{
		kind: entries, first: 0x0102030405060708, count: 9, bound: 0x1112131415161718, skipped: 0x2122232425262728, boot: 0x31323334,
	}
	got := appendBlock(nil, h, []byte(`{"a":1}`+"\n"))
	want := "006a320a" + "65000000" + "0807060504030201" + "09000000" + "08000000" + "08000000" + "e6377433" +
		"1817161514131211" + "2827262524232221" + "34333231" + "47754c98" + "7b2261223a317d0a"
	if hex.EncodeToString(got) != want {
		t.Errorf("a block is\n%x, want\n%s", got, want)
	}
	back, ok := readHeader(got)
	h.codec, h.raw, h.stored, h.sum = stored, 8, 8, 0x337437e6
	if !ok || back != h {
		t.Errorf("read as %+v, %v", back, ok)
	}
}

// A damaged digit of the version does not make a file one of the future.
func TestOpen_ADamagedVersion(t *testing.T) {
	path, data, _ := written(t, 50)
	data[len(versionLine)-2] ^= 4 // 2 is 6
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openTrimmed(t, path, Options{})
	checkRun(t, readAll(t, l, 0), 1, 50)
	fill(t, l, 51, 51)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(path, 0); err != nil || len(rep.Damage) != 1 || rep.Entries != 51 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// The newest time is the one that the entry has, whenever it is shown.
func TestNewestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, 0)
		if at, err := l.NewestTime(); err != nil || !at.IsZero() {
			t.Errorf("nothing is of %v, %v", at, err)
		}
		for range 2 {
			l.Append(Update, Everyone, frame(1))
			time.Sleep(7 * time.Millisecond)
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			all := readAllKinds(t, l)
			want := all[len(all)-1].Time()
			if at, err := l.NewestTime(); err != nil || !at.Equal(want) || time.Since(at) != 7*time.Millisecond {
				t.Errorf("the newest is of %v, want %v, %v", at, want, err)
			}
		}
	})
}

// fullDisk takes nothing, also not what stands there already: some file systems write to another place.
type fullDisk struct {
	osDisk
	why error
}

type fullFile struct {
	file
	why error
}

func (d fullDisk) Open(path string) (file, error) {
	f, err := d.osDisk.Open(path)
	return fullFile{f, d.why}, err
}

func (f fullFile) WriteAt([]byte, int64) (int, error) { return 0, f.why }

// What a program that was killed has written can be read where there is no room any more.
func TestOpen_NoRoom(t *testing.T) {
	for _, why := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		path := filepath.Join(t.TempDir(), "log")
		killed, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer killed.Close()
		fill(t, killed, 1, 10)
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path+".left", b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(path+".left", Options{disk: fullDisk{why: why}})
		if err != nil {
			t.Errorf("%v: %v", why, err)
			continue
		}
		if n := len(readAll(t, l, 0)); n != 10 {
			t.Errorf("%v: %d entries", why, n)
		}
		_ = l.Close() // which cannot be noted
	}
}
