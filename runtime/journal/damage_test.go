package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// written makes a file with n entries in blocks of different sizes and returns
// its bytes, and where each entry's block is.
func written(t *testing.T, n int) (path string, data []byte, blocks []part) {
	t.Helper()
	l, path := open(t, 0)
	dice := rand.New(rand.NewPCG(3, 4))
	for i := 1; i <= n; {
		for range 1 + dice.IntN(20) {
			if i <= n {
				l.Append(Update, Everyone, frame(i))
				i++
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{f: bytes.NewReader(data), off: int64(len(versionLine)), end: int64(len(data))}
	for {
		p, err := w.next()
		if err != nil {
			return path, data, blocks
		}
		p.payload = nil
		blocks = append(blocks, p)
	}
}

// tell reads a log and says what is there: runs of entries, and of damage.
func tell(t *testing.T, l *Log) (out []string) {
	t.Helper()
	c, from, to, kind := l.Cursor(0), uint64(0), uint64(0), byte(0)
	flush := func() {
		if kind != 0 {
			out = append(out, fmt.Sprintf("%c %d-%d", kind, from, to))
		}
	}
	after := uint64(0)
	for {
		batch, err := c.Next(nil, 700)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			flush()
			return out
		}
		for _, e := range batch {
			switch {
			case e.Kind == Damage:
				flush()
				from, to, kind = after+1, e.Seq, 'x'
				if want := fmt.Sprintf(`{"damaged":{"first":%d,"last":%d}}`, from, to); string(e.Frame) != want {
					t.Errorf("damage is told as %s, want %s", e.Frame, want)
				}
			case string(e.Frame) != string(frame(int(e.Seq))):
				t.Fatalf("entry %d is %s", e.Seq, e.Frame)
			case kind == 'u' && e.Seq == to+1:
				to = e.Seq
			default:
				flush()
				from, to, kind = e.Seq, e.Seq, 'u'
			}
			after = e.Seq
		}
	}
}

// Damage takes the block it is in, is told where the entries were, and costs no
// other; the bytes stay, and what comes is written behind them.
func TestDamage_StaysInItsBlock(t *testing.T) {
	path, data, blocks := written(t, 1000)
	b, next := blocks[10], blocks[11]
	lost := fmt.Sprintf("x %d-%d", b.first, b.last())
	before, behind := fmt.Sprintf("u 1-%d", b.first-1), fmt.Sprintf("u %d-1000", next.first)
	last := blocks[len(blocks)-2]
	for name, tt := range map[string]struct {
		harm func(b []byte) []byte
		want []string
		goOn uint64 // number of the next entry
	}{
		"none":              {func(b []byte) []byte { return b }, []string{"u 1-1000"}, 1001},
		"a flipped bit":     {func(d []byte) []byte { d[b.off+headerSize+5] ^= 4; return d }, []string{before, lost, behind}, 1001},
		"in the header":     {func(d []byte) []byte { d[b.off+17] ^= 1; return d }, []string{before, lost, behind}, 1001},
		"a page of zeros":   {func(d []byte) []byte { clear(d[b.off : b.off+b.n]); return d }, []string{before, lost, behind}, 1001},
		"bytes are missing": {func(d []byte) []byte { return append(d[:b.off+20:b.off+20], d[b.off+30:]...) }, []string{before, lost, behind}, 1001},
		"bytes are too many": {func(d []byte) []byte {
			return bytes.Join([][]byte{d[:b.off], []byte("something else\n"), d[b.off:]}, nil)
		}, []string{"u 1-1000"}, 1001},
		"the version": {func(d []byte) []byte { d[3] = 'x'; return d }, []string{"u 1-1000"}, 1001},
		"the closing mark": {
			func(d []byte) []byte { d[len(d)-5] ^= 1; return d },
			[]string{"u 1-1000"},
			2*(last.bound+1) + 0,
		},
		"the closing mark is torn":    {func(d []byte) []byte { return d[:len(d)-5] }, []string{"u 1-1000"}, last.bound + 1},
		"the closing mark is missing": {func(d []byte) []byte { return d[:last.off+last.n] }, []string{"u 1-1000"}, last.bound + 1},
		"the end is missing":          {func(d []byte) []byte { return d[:last.off] }, []string{fmt.Sprintf("u 1-%d", last.first-1)}, last.bound + 1},
	} {
		t.Run(name, func(t *testing.T) {
			harmed := tt.harm(bytes.Clone(data))
			if err := os.WriteFile(path, harmed, 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if diff := cmp.Diff(tt.want, tell(t, l)); diff != "" {
				t.Errorf("what is read (-want +got):\n%s", diff)
			}
			if seq, err := l.AppendFlush(Update, Everyone, frame(int(tt.goOn))); err != nil || seq != tt.goOn {
				t.Errorf("it goes on with %d, %v, want %d", seq, err, tt.goOn)
			}
			if got := readAll(t, l, tt.goOn-1); len(got) != 1 {
				t.Errorf("%d entries behind it", len(got))
			}
			now, err := os.ReadFile(path)
			if kept := min(len(harmed), len(now)); err != nil || !strings.Contains(name, "torn") && !bytes.Equal(now[:kept], harmed[:kept]) {
				t.Errorf("what was there has changed: %v", err)
			}
		})
	}
}

// Whatever is done to a file: what is not damaged is read, each lost entry is
// told, nothing comes that was not written, and Verify and Repair agree.
func TestDamage_Random(t *testing.T) {
	path, data, blocks := written(t, 600)
	runs := 150
	if testing.Short() {
		runs = 30
	}
	runs = figure.Asked(t, "DAMAGES", runs)
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	for range runs {
		d := bytes.Clone(data)
		hit := map[int]bool{}
		for range 1 + dice.IntN(4) {
			at := dice.IntN(len(d))
			n := 1
			switch dice.IntN(3) {
			case 0:
				d[at] ^= 1 << dice.IntN(8)
			case 1:
				n = min(1+dice.IntN(600), len(d)-at)
				clear(d[at : at+n])
			case 2:
				n = min(1+dice.IntN(600), len(d)-at)
				for i := range n {
					d[at+i] = byte(dice.Uint32())
				}
			}
			for i, b := range blocks {
				if int64(at) < b.off+b.n && int64(at+n) > b.off && !bytes.Equal(d[b.off:b.off+b.n], data[b.off:b.off+b.n]) {
					hit[i] = true
				}
			}
		}
		if err := os.WriteFile(path, d, 0o600); err != nil {
			t.Fatal(err)
		}
		check := func(what string, tailTold bool) {
			l, err := Open(path, Options{Sync: SyncNever})
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, what, err)
			}
			defer l.Close()
			if tailTold { // something behind it shows what is lost at the end
				if _, err := l.AppendFlush(Update, Everyone, []byte(`{}`)); err != nil {
					t.Fatal(err)
				}
			}
			have, told := map[uint64]bool{}, map[uint64]bool{}
			after := uint64(0)
			for c := l.Cursor(0); ; {
				batch, err := c.Next(nil, 1+dice.IntN(5000))
				if err != nil {
					t.Fatalf("seed %d: %s: %v", seed, what, err)
				}
				if len(batch) == 0 {
					break
				}
				for _, e := range batch {
					switch {
					case e.Kind == Damage:
						for s := after + 1; s <= min(e.Seq, 600); s++ {
							told[s] = true
						}
					case e.Seq <= 600 && string(e.Frame) == string(frame(int(e.Seq))):
						have[e.Seq] = true
					case e.Seq > 600 && tailTold:
					default:
						t.Fatalf("seed %d: %s: entry %d is %s", seed, what, e.Seq, e.Frame)
					}
					after = e.Seq
				}
			}
			for i, b := range blocks {
				for s := b.first; b.kind == entries && s <= b.last(); s++ {
					if !hit[i] && !have[s] {
						t.Fatalf("seed %d: %s: entry %d is lost and not damaged", seed, what, s)
					}
					if !have[s] && !told[s] {
						t.Fatalf("seed %d: %s: entry %d is lost, and nobody is told", seed, what, s)
					}
				}
			}
		}
		rep, err := Verify(path, 0)
		if err != nil || len(hit) > 0 && len(rep.Damage) == 0 && rep.Torn == 0 {
			t.Fatalf("seed %d: %+v, %v", seed, rep, err)
		}
		if _, err := Repair(path, "", 0); err != nil {
			t.Fatalf("seed %d: repair: %v", seed, err)
		}
		check("repaired", true)
		if rep, err = Verify(path, 0); err != nil || len(rep.Damage) > 0 {
			t.Fatalf("seed %d: after repair: %+v, %v", seed, rep, err)
		}
		if err := os.WriteFile(path, d, 0o600); err != nil {
			t.Fatal(err)
		}
		check("damaged", true)
	}
	figure.Done(t, runs, "damaged files")
}

// Repair keeps aside what it cannot read, and takes entries from a copy.
func TestRepair_FromACopy(t *testing.T) {
	path, data, blocks := written(t, 1000)
	b := blocks[7]
	clear(data[b.off : b.off+b.n])
	spare := filepath.Join(t.TempDir(), "spare")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{spare, whole}, {path, data}} {
		if err := os.WriteFile(f.name, f.data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := Damaged{Offset: b.off, Length: b.n, First: b.first, Last: b.last(), Reason: "this is no block"}
	if rep, err := Verify(path, 0); err != nil || len(rep.Damage) != 1 || rep.Damage[0] != want || rep.Entries != 1000-int(b.count) || !rep.Closed {
		t.Errorf("%+v, %v", rep, err)
	}
	aside, err := Repair(path, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(aside.Aside); err != nil || len(kept) != int(b.n) {
		t.Errorf("%d bytes are kept aside, %v", len(kept), err)
	}
	check := func(want ...string) {
		t.Helper()
		l, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if diff := cmp.Diff(want, tell(t, l)); diff != "" {
			t.Errorf("what is read (-want +got):\n%s", diff)
		}
	}
	check(fmt.Sprintf("u 1-%d", b.first-1), fmt.Sprintf("x %d-%d", b.first, b.last()), fmt.Sprintf("u %d-1000", b.last()+1))
	if _, err := Repair(path, spare, 0); err != nil {
		t.Fatal(err)
	}
	check("u 1-1000")
	var lines bytes.Buffer
	if err := Cat(path, 0, &lines); err != nil || bytes.Count(lines.Bytes(), []byte("\n")) != 1000 || !strings.HasPrefix(lines.String(), `{"seq":1,"time":`) {
		t.Errorf("%d lines, %v", bytes.Count(lines.Bytes(), []byte("\n")), err)
	}
	if aside, err := Repair(path, "", 0); aside.Done || err != nil {
		t.Errorf("a file that is whole is repaired: %+v, %v", aside, err)
	}
}

// A file that this version does not understand is refused, and stays.
func TestOpen_RefusesWhatItDoesNotKnow(t *testing.T) {
	for name, data := range map[string]string{
		"a newer version": versionLead + "3\nsomething",
		"something else":  "hello\nworld\n",
		"rubbish":         "\x01\x02\x03 no journal",
	} {
		path := filepath.Join(t.TempDir(), "log.journal")
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, Options{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Verify(path, 0); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: verify: %v", name, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != data {
			t.Errorf("%s: it was changed to %q, %v", name, b, err)
		}
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil {
		t.Error("a folder is taken for a log")
	}
}

// A file that was removed while its log is in use is made anew, with all of it.
func TestLog_ItsFileWasRemoved(t *testing.T) {
	l, path := open(t, 0)
	fill(t, l, 1, 100)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 101, 110)
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 111, 120)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, readAll(t, l, 0), 1, 120)

	// Nothing is left of one that was removed while nobody had it open.
	l.Release(0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Cursor(0).Next(nil, 1); err == nil {
		t.Error("entries are read that are in no file")
	}
	fill(t, l, 121, 130)
	if diff := cmp.Diff([]string{"x 1-120", "u 121-130"}, tell(t, l)); diff != "" {
		t.Errorf("what is read (-want +got):\n%s", diff)
	}
	_ = l.Close()
}

// A file that ends before what readers have seen has lost entries, wherever it was cut
// off and however it was closed: readers are told, once, and numbers go on behind.
func TestOpen_EndsTooEarly(t *testing.T) {
	l, path := open(t, 0)
	for i := range 10 {
		fill(t, l, 1+10*i, 10+10*i)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole); cut >= -1; cut -= 97 {
		if cut < 0 {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, whole[:cut], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var had []string
		for range 2 { // what was told once is told again, and not more of it
			l, err := Open(path, Options{Reached: 100})
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			got := tell(t, l)
			var kept, first, last uint64
			switch got[len(got)-1][0] {
			case 'x':
				_, err = fmt.Sscanf(got[len(got)-1], "x %d-%d", &first, &last)
				kept = first - 1
			case 'u':
				_, err = fmt.Sscanf(got[len(got)-1], "u 1-%d", &kept)
				last = kept
			}
			if err != nil || last < 100 || kept > 0 && got[0] != fmt.Sprintf("u 1-%d", kept) || l.Last() != last {
				t.Fatalf("cut at %d of %d, readers have %q up to %d, %v", cut, len(whole), got, l.Last(), err)
			}
			if had != nil {
				if diff := cmp.Diff(had, got); diff != "" {
					t.Fatalf("cut at %d (-told first +told later):\n%s", cut, diff)
				}
			}
			had = got
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if seq, err := l.AppendFlush(Update, Everyone, []byte("{}")); err != nil || seq <= 100 {
			t.Fatalf("cut at %d, number %d is given again, %v", cut, seq, err)
		}
		_ = l.Close()
	}
}

// Small blocks are put together when the log is given back, and its readers go on.
func TestLog_SmallBlocksArePutTogether(t *testing.T) {
	l, path := open(t, 2<<10)
	c := l.Cursor(0)
	fill(t, l, 1, 2000)
	if got, err := c.Next(nil, 1); err != nil || got[0].Seq != 1 {
		t.Fatal(got, err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Release(0)
	after, err := os.Stat(path)
	if err != nil || after.Size() > before.Size()/5 {
		t.Errorf("%d bytes, and %d before, %v", after.Size(), before.Size(), err)
	}
	if got, err := c.Next(nil, 1); err != nil || got[0].Seq != 2 {
		t.Error(got, err)
	}
	fill(t, l, 2001, 2010)
	checkRun(t, readAll(t, l, 0), 1, 2010)
	if rep, err := Verify(path, 0); err != nil || rep.Entries != 2010 || len(rep.Damage) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// What a file says of its session can be read without the rest.
func TestAbout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.journal")
	about := `{"id":"s1","cwd":"/x"}`
	l, err := Open(path, Options{About: func() []byte { return []byte(about) }})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1, 500)
	l.Release(0)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := About(path); err != nil || string(got) != about {
		t.Errorf("%s, %v", got, err)
	}
}

// A log whose file takes nothing uses a bounded memory, then whoever appends is
// held back; with room again it goes on, and both are told.
func TestLog_HeldBack(t *testing.T) {
	disk := newFaultDisk(rand.New(rand.NewPCG(1, 1)))
	told := make(chan error, 10)
	l, err := Open("log", Options{Memory: 64 << 10, disk: disk, Trouble: func(err error) { told <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	disk.mu.Lock()
	disk.full = true
	disk.mu.Unlock()
	held := make(chan int)
	n := 0
	go func() {
		full := false
		for range 5000 {
			l.Append(Update, Everyone, []byte(`{"x":"`+noise(1000)+`"}`))
			_ = l.Flush()
			l.mu.Lock()
			due := l.held > 2*l.o.Memory+maxBlock
			size := l.held
			l.mu.Unlock()
			if due && !full {
				full = true
				held <- size
			}
			l.Room(t.Context().Done())
		}
		close(held)
	}()
	if n = <-held; n > 600<<10 {
		t.Errorf("%d bytes are held", n)
	}
	if err := <-told; err == nil {
		t.Error("no trouble is told")
	}
	disk.mu.Lock()
	disk.full = false
	disk.mu.Unlock()
	for range held {
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	if err := l.Flush(); err != nil || l.Last() != 5000 {
		t.Errorf("%v, the last entry is %d", err, l.Last())
	}
}

func FuzzOpen(f *testing.F) {
	block := appendBlock([]byte(versionLine), header{kind: entries, first: 1, count: 1, bound: 9}, append(appendHead(nil, 1, 2, Update, 0), "{}}\n"...))
	f.Add(block)
	f.Add(append(bytes.Clone(block), block[len(versionLine):]...))
	f.Add([]byte(versionLine))
	f.Add(append(appendHead(nil, 1, 2, Update, 0), "{}}\n"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, o := range []Options{{}, {Old: filepath.Join(dir, "old")}} {
			path := filepath.Join(dir, "log")
			if o.Old != "" {
				_ = os.Remove(path)
				path = o.Old
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _ = Verify(path, 0)
			l, err := Open(filepath.Join(dir, "log"), o)
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Fatal(err)
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
					t.Fatalf("a file that is refused was changed: %v", err)
				}
				continue
			}
			last := l.Last()
			seq, err := l.AppendFlush(Update, 0, frame(1))
			if err != nil || seq <= last {
				t.Fatal(seq, err)
			}
			got, err := l.Cursor(seq-1).Next(nil, 1)
			if err != nil || len(got) != 1 || got[0].Seq != seq {
				t.Fatalf("after opening: %v %v", got, err)
			}
			for c := l.Cursor(0); ; {
				batch, err := c.Next(nil, 1000)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) == 0 {
					break
				}
			}
			_ = l.Close()
		}
	})
}

// A log whose end cannot be read is as old as what is before that, and so is what stands for it.
func TestNewestTime_BeforeDamage(t *testing.T) {
	for name, harm := range map[string]func(data []byte, from part) []byte{
		"blocks are damaged": func(data []byte, from part) []byte {
			for i := from.off + headerSize; i < int64(len(data)); i += 40 {
				data[i] ^= 1
			}
			return data
		},
		"the end is cut off": func(data []byte, from part) []byte { return data[:from.off] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, path := open(t, 0)
				began := time.Now()
				for i := range 40 {
					fill(t, l, i+1, i+1)
					time.Sleep(time.Second)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				w := &walk{f: bytes.NewReader(data), off: int64(len(versionLine)), end: int64(len(data))}
				p, err := w.next()
				for err == nil && p.first != 21 {
					p, err = w.next()
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, harm(data, p), 0o600); err != nil {
					t.Fatal(err)
				}
				l = openTrimmed(t, path, Options{Reached: 40})
				if at, err := l.NewestTime(); err != nil || !at.Equal(began.Add(19*time.Second)) {
					t.Errorf("the newest that can be read is %v younger than the first, %v", at.Sub(began), err)
				}
				all := readAllKinds(t, l)
				for _, e := range all[20:] {
					if e.Kind != Damage || !e.Time().Equal(began.Add(19*time.Second)) {
						t.Errorf("behind it is one of kind %c of %v", e.Kind, e.Time())
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
