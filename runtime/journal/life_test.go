package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// open opens a log in a new folder, which the test closes.
func open(t *testing.T, memory int) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.journal")
	l, err := Open(path, Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

func fill(t *testing.T, l *Log, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		if seq, err := l.AppendFlush(Update, Everyone, frame(i)); err != nil || seq != uint64(i) {
			t.Fatalf("entry %d is %d, %v", i, seq, err)
		}
	}
}

// noise is text that cannot be compressed much.
func noise(n int) string {
	dice := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[dice.IntN(64)]
	}
	return string(b)
}

func numbers(l *Log) string {
	return fmt.Sprintf("oldest %d, last %d, appended %d", l.Oldest(), l.Last(), l.Appended())
}

// Every kind of entry is read from the file as it was appended, with whom it is
// for and when its batch began.
func TestLog_EntriesAreReadAsTheyWereAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, path := open(t, 0)
		var want []string
		began := time.Now()
		for i, k := range []Kind{Update, Notice, TurnEnd, Response, Ask, AskDone, Echo, Client, First, Second} {
			to := []Recipient{Everyone, Recipient(i), Except(7), Nobody}[i%4]
			l.Append(k, to, []byte(`{"parts":`), []byte("["), fmt.Appendf(nil, "%d", i), []byte("]}"))
			at := began
			switch {
			case i >= 4:
				at = began.Add(10 * time.Second)
			case i >= 1:
				at = began.Add(time.Second)
			}
			want = append(want, fmt.Sprintf(`%d %c %d {"parts":[%d]} %d`, i+1, k, to, i, at.UnixMilli()))
			time.Sleep(time.Second) // an entry has the time of its batch
			if i == 3 {
				time.Sleep(6 * time.Second)
			}
			if i == 0 || i == 3 {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		read := func(l *Log) (got []string) {
			for _, e := range readAll(t, l, 0) {
				got = append(got, fmt.Sprintf("%d %c %d %s %d", e.Seq, e.Kind, e.To, e.Frame, e.Time().UnixMilli()))
			}
			return got
		}
		if diff := cmp.Diff(want, read(l)); diff != "" {
			t.Errorf("from memory (-want +got):\n%s", diff)
		}
		l.Release(0)
		if diff := cmp.Diff(want, read(l)); diff != "" {
			t.Errorf("from the file (-want +got):\n%s", diff)
		}
		again, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if diff := cmp.Diff(want, read(again)); diff != "" {
			t.Errorf("opened again (-want +got):\n%s", diff)
		}
	})
	if at := (Entry{}).Time(); !at.IsZero() {
		t.Errorf("an entry of no log was appended at %v", at)
	}
}

// The numbers tell what is there, what readers may see, and what is appended.
func TestLog_Numbers(t *testing.T) {
	l, path := open(t, 0)
	check := func(want string) {
		t.Helper()
		if got := numbers(l); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("oldest 1, last 0, appended 0")
	l.Append(Update, Everyone, frame(1))
	check("oldest 1, last 0, appended 1")
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	check("oldest 1, last 1, appended 1")
	fill(t, l, 2, 500)
	check("oldest 1, last 500, appended 500")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check("oldest 1, last 500, appended 500")
	fill(t, l, 501, 501)

	l, _ = Open("", Options{Memory: 4 << 10})
	check("oldest 1, last 0, appended 0")
	fill(t, l, 1, 2)
	check("oldest 1, last 2, appended 2")
}

// What a log without a file has no more is told with where it begins; what it
// holds is near its bound.
func TestLog_MemoryIsBounded(t *testing.T) {
	for _, memory := range []int{1 << 20, 0} {
		l, _ := Open("", Options{Memory: memory})
		want := memory
		if memory == 0 {
			want = DefaultMemory
		}
		line := []byte(`"` + strings.Repeat("x", 100) + `"`)
		n := 8 * want / len(line)
		for i := range n {
			l.Append(Update, Everyone, line)
			if i%100 == 0 || i == n-1 {
				_ = l.Flush()
			}
		}
		kept := (n - int(l.Oldest()) + 1) * (len(line) + len(`{"seq":10000,"time":1795288465992,"kind":"u","to":0,"message":}`+"\n"))
		if kept > want || kept < want/4 { // blocks of small batches are not full
			t.Errorf("%d bytes are kept of %d", kept, want)
		}
		_, err := l.Cursor(l.Oldest()-2).Next(nil, 1)
		var gone *TruncatedError
		if !errors.As(err, &gone) || gone.After != l.Oldest()-2 || gone.Oldest != l.Oldest() {
			t.Errorf("err %v, the oldest is %d", err, l.Oldest())
		}
		if got, err := l.Cursor(l.Oldest()-1).Next(nil, 1); err != nil || len(got) != 1 || got[0].Seq != l.Oldest() {
			t.Errorf("%v, %v", got, err)
		}
		_ = l.Close()
	}
}

// A file that cannot be written for a while gets all of it later, in one piece;
// meanwhile nobody sees it, and the log says why.
func TestLog_TheDiskFailsForAWhile(t *testing.T) {
	var stats Stats
	dir := filepath.Join(t.TempDir(), "a", "b")
	l, err := Open(filepath.Join(dir, "log.journal"), Options{Memory: 2 << 10, Stats: &stats})
	if err != nil {
		t.Fatal(err)
	}
	const n = 300 // far more than is kept otherwise
	for i := 1; i <= n; i++ {
		if _, err := l.AppendFlush(Update, Everyone, frame(i)); !errors.Is(err, fs.ErrNotExist) || !errors.Is(l.Err(), fs.ErrNotExist) {
			t.Fatalf("%v, %v", err, l.Err())
		}
	}
	if l.Last() != 0 || l.Appended() != n || len(readAll(t, l, 0)) != 0 {
		t.Errorf("what is not in the file is shown, up to %d", l.Last())
	}
	if err := l.Flush(); err == nil { // nothing is new, and nothing is saved either
		t.Error("a Flush hides that entries are not in the file")
	}
	if err := l.Sync(); err == nil {
		t.Error("a Sync hides that entries are not in the file")
	}
	l.Release(0) // keeps what is nowhere else
	if stats.Appended.Load() != 0 || stats.Written.Load() != 0 || stats.Errors.Load() != n+3 {
		t.Errorf("%d appended, %d written, %d errors", stats.Appended.Load(), stats.Written.Load(), stats.Errors.Load())
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil { // its own folder the log makes itself
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil || l.Err() != nil {
		t.Fatal(err, l.Err())
	}
	checkRun(t, readAll(t, l, 0), 1, n)
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	file, err := os.Stat(l.path)
	if err != nil || file.Mode().Perm() != 0o600 || uint64(file.Size()) != stats.Written.Load() {
		t.Errorf("%v, %v, %d bytes written", file, err, stats.Written.Load())
	}
	l.Release(0)
	checkRun(t, readAll(t, l, 0), 1, n)
	fill(t, l, n+1, n+1)
	if stats.Appended.Load() != n+1 || stats.Errors.Load() != n+3 {
		t.Errorf("%d appended, %d errors", stats.Appended.Load(), stats.Errors.Load())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A log whose folder gets another name is read and written there, also by who was reading it.
func TestLog_Move(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(from, "log"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill(t, l, 1, 100)
	l.Release(0)
	cur := l.Whole(0)
	if _, err := cur.Next(nil, 1); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	if err := l.Move(func() (string, error) { return "", failed }); err != failed {
		t.Errorf("a move that fails: %v", err)
	}
	checkRun(t, readAll(t, l, 0), 1, 100)
	err = l.Move(func() (string, error) {
		if l.file != nil {
			t.Error("the file is open while it is moved")
		}
		return filepath.Join(to, "log"), os.Rename(from, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 101, 150)
	l.Release(0)
	rest, err := cur.Next(nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, rest, 151-len(rest), 150)
	if _, err := os.Stat(from); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written where it was: %v", err)
	}
}

// Release waits until a log was idle, and gives back what the file has.
func TestLog_ReleaseGivesBackMemoryAndFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, 0)
		l.Release(0) // there is nothing
		fill(t, l, 1, 100)
		time.Sleep(time.Minute)
		l.Append(Update, Everyone, frame(101))
		l.Release(time.Minute + 1)
		if l.file == nil || len(l.blocks) == 0 || l.Last() != 100 {
			t.Errorf("a log that was used is released, last %d", l.Last())
		}
		l.Release(time.Minute)
		if l.file != nil || l.blocks != nil || l.held != 0 || l.Last() != 101 {
			t.Errorf("%d bytes are held, last %d", l.held, l.Last())
		}
		checkRun(t, readAll(t, l, 0), 1, 101) // this uses it
		l.Release(time.Nanosecond)
		if l.file == nil {
			t.Error("a log that was read is released")
		}
		l.Release(0)
		if l.file != nil {
			t.Error("the file is open")
		}
		fill(t, l, 102, 150)
		l.Release(0)
		checkRun(t, readAll(t, l, 0), 1, 150)

		l, _ = Open("", Options{})
		fill(t, l, 1, 10)
		l.Release(0)
		checkRun(t, readAll(t, l, 0), 1, 10)
	})
}

// A log that was closed can be read as far as it is in memory; what is appended
// is not shown.
func TestLog_Closed(t *testing.T) {
	l, path := open(t, 0)
	l.Append(Update, Everyone, frame(1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l.file != nil {
		t.Error("the file is open")
	}
	if seq, err := l.AppendFlush(Update, Everyone, frame(2)); seq != 2 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%d, %v", seq, err)
	}
	checkRun(t, readAll(t, l, 0), 1, 1)
	if err := l.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("entries that are in no file are closed: %v", err)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	checkRun(t, readAll(t, again, 0), 1, 1)
}

// The newest entry can be read, however little memory there is.
func TestLog_TheNewestIsKept(t *testing.T) {
	l, _ := Open("", Options{Memory: 1})
	for i := 1; i <= 5; i++ {
		text := []byte(`"` + strings.Repeat("x", i*1000) + `"`)
		if _, err := l.AppendFlush(Update, Everyone, text); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Cursor(uint64(i-1)).Next(nil, 1); err != nil || len(got) != 1 || !bytes.Equal(got[0].Frame, text) {
			t.Fatalf("entry %d: %d, %v", i, len(got), err)
		}
	}
}

// Files are open while they are used, and not longer.
func TestLog_GivesBackItsFiles(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("there is no list of open files here")
		}
		return len(list)
	}
	before := open()
	dir := t.TempDir()
	var logs []*Log
	for i := range 50 {
		path := filepath.Join(dir, fmt.Sprint(i))
		l, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, 1, 1)
		if i%2 == 0 {
			l.Release(0)
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l, again)
	}
	if n := open() - before; n > 20 {
		t.Errorf("%d files are open, none is used", n)
	}
	for _, l := range logs {
		_ = l.Close()
	}
}

// A burst is written out to disk while it goes on, but for the end of the file,
// and Close waits for that.
func TestLog_ABurstIsWrittenOut(t *testing.T) {
	l, path := open(t, 0)
	line := []byte(`{"x":"` + noise(1<<20) + `"}`)
	written := func() int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.wroteOut
	}
	for i := range 20 {
		if _, err := l.AppendFlush(Update, Everyone, line); err != nil {
			t.Fatal(err)
		}
		if due := i >= 16; (written() > 0) != due { // 16 MiB, and the last one is left out
			t.Errorf("after %d MiB %d bytes are written out", i+1, written())
		}
	}
	if n := written(); n%4096 != 0 || n > l.size-writeOutLag || n < writeOutEvery || n > 18<<20 {
		t.Errorf("%d bytes are written out of %d", n, l.size)
	}
	if err := l.Close(); err != nil || l.writing {
		t.Errorf("%v, still writing out: %v", err, l.writing)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.wroteOut%4096 != 0 || again.wroteOut > again.size || again.wroteOut <= again.size-4096 {
		t.Errorf("what was there is written out again from %d of %d", again.wroteOut, again.size)
	}
	if n := len(readAll(t, again, 0)); n != 20 {
		t.Errorf("%d entries", n)
	}
}

// Sync flushes first, and has nothing to do where there is no file.
func TestLog_Sync(t *testing.T) {
	l, path := open(t, 0)
	l.Append(Update, Everyone, frame(1))
	if err := l.Sync(); err != nil || l.Last() != 1 {
		t.Errorf("%v, last %d", err, l.Last())
	}
	l.Release(0)
	if err := l.Sync(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) == 0 {
		t.Error(err)
	}
	l.Append(Update, Everyone, frame(2))
	l.mu.Lock()
	_ = l.file
	l.mu.Unlock()
	if err := l.Sync(); err != nil || l.Last() != 2 {
		t.Error(err)
	}
	memory, _ := Open("", Options{})
	memory.Append(Update, Everyone, frame(1))
	if err := memory.Sync(); err != nil || memory.Last() != 1 {
		t.Error(err)
	}
}

// Those who watch are woken by what becomes visible, once, until they stop.
func TestLog_Watch(t *testing.T) {
	l, _ := open(t, 0)
	one, two := make(chan struct{}, 1), make(chan struct{}, 1)
	stopOne, stopTwo := l.Watch(one), l.Watch(two)
	woken := func(c chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	check := func(wantOne, wantTwo bool) {
		t.Helper()
		if a, b := woken(one), woken(two); a != wantOne || b != wantTwo {
			t.Errorf("woken: %v, %v", a, b)
		}
	}
	l.Append(Update, Everyone, frame(1))
	check(false, false)
	_ = l.Flush()
	check(true, true)
	_ = l.Flush() // nothing is new
	check(false, false)
	fill(t, l, 2, 4) // nobody listens: one is enough
	check(true, true)
	check(false, false)
	stopOne()
	stopOne()
	fill(t, l, 5, 5)
	check(false, true)
	stopTwo()
	fill(t, l, 6, 6)
	check(false, false)
}

// A batch that fits one block is written with one call, and blocks grow with
// what comes.
func TestLog_BlocksAndCalls(t *testing.T) {
	l, _ := open(t, 1<<20)
	fill(t, l, 1, 1)
	sizes := func() (out []int) {
		for _, b := range l.blocks {
			out = append(out, cap(b.buf)>>10)
		}
		return out
	}
	line := []byte(`{"x":"` + strings.Repeat("x", 900) + `"}`)
	for range 300 {
		l.Append(Update, Everyone, line)
	}
	_ = l.Flush()
	if diff := cmp.Diff([]int{1, 2, 4, 8, 16, 32, 64, 128, 128}, sizes()); diff != "" {
		t.Errorf("blocks differ (-want +got):\n%s", diff)
	}
	// A new batch begins a new block when there is less room than a batch takes.
	used := func() int { b := l.blocks[len(l.blocks)-1]; return cap(b.buf) - len(b.buf) }
	for used() >= maxBatch {
		l.Append(Update, Everyone, line)
	}
	n := len(l.blocks)
	_ = l.Flush()
	l.Append(Update, Everyone, line)
	if len(l.blocks) != n+1 {
		t.Errorf("a batch begins in a block with %d bytes left", used())
	}
	l.Append(Update, Everyone, line)
	if len(l.blocks) != n+1 {
		t.Error("a batch goes on in another block")
	}
	large := []byte(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	l.Append(Update, Everyone, large)
	if b := l.blocks[len(l.blocks)-1]; len(b.refs) != 1 || cap(b.buf) < len(large) || cap(b.buf) > len(large)+200 {
		t.Errorf("a large entry is in a block of %d bytes with %d others", cap(b.buf), len(b.refs)-1)
	}
}

// syncCounter is a disk that counts what is made durable.
type syncCounter struct {
	osDisk
	syncs int
}

type countedFile struct {
	file
	d *syncCounter
}

func (d *syncCounter) Open(path string) (file, error) {
	f, err := d.osDisk.Open(path)
	return countedFile{f, d}, err
}

func (f countedFile) Sync() error {
	f.d.syncs++
	return f.file.Sync()
}

// Of a log that was closed in good order, and is only read, there is nothing to be made durable: ten thousand are read
// for a list.
func TestLog_ReadsWithoutSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := must(Open(path, Options{}))
	must(l.AppendFlush(Update, Everyone, []byte(`{}`)))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := &syncCounter{}
	l = must(Open(path, Options{disk: d}))
	for range 3 {
		if got := must(l.Cursor(0).Next(nil, 1<<10)); len(got) != 1 {
			t.Fatalf("%d entries", len(got))
		}
		l.Release(0)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil || d.syncs != 0 {
		t.Errorf("%d syncs of what was only read, %v", d.syncs, err)
	}
	l = must(Open(path, Options{disk: d}))
	must(l.AppendFlush(Update, Everyone, []byte(`{}`)))
	if err := l.Close(); err != nil || d.syncs == 0 {
		t.Errorf("%d syncs of what was written, %v", d.syncs, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A program is killed, and the one behind it uses the log without a word and ends in good order: it has seen that nothing is
// lost. Behind a restart of the machine nothing counts as lost then, and numbers that may have been given are not given again.
func TestClose_BehindAKill(t *testing.T) {
	for name, tt := range map[string]struct {
		bound uint64 // that the record beside the log has
		full  bool   // the disk, when the log is closed first
	}{"at once": {}, "on a full disk": {full: true}, "with a record that knows more": {bound: 9000}} {
		t.Run(name, func(t *testing.T) {
			disk := newFaultDisk(rand.New(rand.NewPCG(7, 8)))
			o := Options{disk: disk}
			killed := openTrimmed(t, "log", o)
			for range 400 {
				if _, err := killed.AppendFlush(Update, Everyone, frame(1)); err != nil {
					t.Fatal(err)
				}
			}
			given := max(killed.Reserved(), tt.bound)
			l := openTrimmed(t, "log", Options{disk: disk, Bound: tt.bound})
			if len(readAll(t, l, 0)) != 400 || l.Given() != given {
				t.Errorf("%d numbers may have been given, want %d", l.Given(), given)
			}
			if tt.full {
				disk.fail(0, true, -1)
				l.Release(0)
				if l.file != nil {
					t.Error("the file stays open because the disk takes no mark")
				}
				if err := openTrimmed(t, "log", o).Close(); err != nil {
					t.Errorf("who has only read it: %v", err)
				}
				disk.fail(0, false, -1)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			end := disk.files["log"].cache
			for i := len(end) - headerSize - 8; i < len(end); i++ { // one mark that is damaged
				end[i] ^= 4
				harmed := openTrimmed(t, "log", o)
				if all := readAll(t, harmed, 0); harmed.Given() < killed.Reserved() || len(all) < 400 || all[399].Kind != Update {
					t.Errorf("with byte %d damaged there are %d entries, and %d numbers may have been given", i, len(all), harmed.Given())
				}
				end[i] ^= 4
			}
			disk.boot++
			l = openTrimmed(t, "log", o)
			l.Pack()
			for range 400 { // as much as is put together with what there was
				if seq, err := l.AppendFlush(Update, Everyone, frame(1)); err != nil || seq <= given {
					t.Fatalf("the next entry is %d, and up to %d may have been given, %v", seq, given, err)
				}
			}
			for _, what := range []string{"as it was written", "put together"} {
				if got := readAll(t, l, 0); len(got) != 800 {
					t.Errorf("%s it has %d entries, and one of kind %c", what, len(got), got[min(400, len(got)-1)].Kind)
				}
				l.Pack()
				l.Release(0)
			}
			for _, each := range []*Log{l, killed} {
				_ = each.Close()
			}
		})
	}
	// One that was begun, and has nothing.
	empty := newFaultDisk(rand.New(rand.NewPCG(7, 8)))
	begun := openTrimmed(t, "log", Options{disk: empty})
	if err := begun.Begin(); err != nil {
		t.Fatal(err)
	}
	after := openTrimmed(t, "log", Options{disk: empty})
	after.Release(0)
	if _, ok := after.AtRest(); !ok {
		t.Error("a log without an entry is not at rest")
	}
	empty.boot++
	after = openTrimmed(t, "log", Options{disk: empty})
	if _, err := after.AppendFlush(Update, Everyone, frame(1)); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, after, 0); len(got) != 1 || got[0].Kind != Update {
		t.Errorf("it had nothing, and now it has %d entries, the first of kind %c", len(got), got[0].Kind)
	}
	for _, each := range []*Log{begun, after} {
		_ = each.Close()
	}
	// Who opens it with what a record has, and closes it, leaves the record as good as it was.
	disk := newFaultDisk(rand.New(rand.NewPCG(7, 8)))
	l := openTrimmed(t, "log", Options{disk: disk})
	if _, err := l.AppendFlush(Update, Everyone, frame(1)); err != nil {
		t.Fatal(err)
	}
	disk.boot++
	again := openTrimmed(t, "log", Options{disk: disk, Bound: 9000})
	_, _ = again.Close(), l.Close()
	if again.Reserved() != 9000 {
		t.Errorf("numbers up to %d may have been given, and the record had 9000", again.Reserved())
	}
}
