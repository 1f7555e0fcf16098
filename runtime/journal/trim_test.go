package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openTrimmed(t *testing.T, path string, o Options) *Log {
	t.Helper()
	l, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const everything = math.MaxUint64

// checkTrimmed checks that a log has the entries from oldest to last and says of others that
// they are gone.
func checkTrimmed(t *testing.T, l *Log, oldest, last uint64) {
	t.Helper()
	if l.Oldest() != oldest || l.Last() != last {
		t.Errorf("the log has %d to %d, want %d to %d", l.Oldest(), l.Last(), oldest, last)
	}
	c := l.Cursor(oldest - 1)
	for want := oldest; want <= last; {
		batch, err := c.Next(nil, 1<<10)
		if err != nil || len(batch) == 0 {
			t.Fatalf("%d entries behind %d: %v", len(batch), want-1, err)
		}
		for _, e := range batch {
			if e.Seq != want || e.Kind == Damage {
				t.Fatalf("entry %d is %d of kind %c", want, e.Seq, e.Kind)
			}
			want++
		}
	}
	if oldest > 1 {
		var gone *TruncatedError
		if _, err := l.Cursor(oldest-2).Next(nil, 1); !errors.As(err, &gone) || gone.Oldest != oldest || gone.After != oldest-2 {
			t.Errorf("the entry before the oldest: %v", err)
		}
	}
}

// Entries are let go by their age and by the size of the file, exactly, and the log goes
// on as before, also opened anew and damaged behind that.
func TestTrim_LetsTheOldestGo(t *testing.T) {
	for name, how := range map[string]struct {
		released, reopened bool
	}{"in use": {}, "given back": {released: true}, "opened anew": {released: true, reopened: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "log")
				l := openTrimmed(t, path, Options{About: func() []byte { return []byte(`{"id":"s"}`) }})
				for i := range 1000 {
					l.Append(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", i%300))))
					if i%3 == 2 {
						if err := l.Flush(); err != nil {
							t.Fatal(err)
						}
						time.Sleep(3 * time.Second)
					}
				}
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				renew := func() {
					if how.released {
						l.Release(0)
					}
					if how.reopened {
						if err := l.Close(); err != nil {
							t.Fatal(err)
						}
						l = openTrimmed(t, path, Options{})
					}
				}
				renew()
				if freed, err := l.Trim(Keep{Since: time.Now().Add(-time.Hour), Bytes: 1 << 30, After: everything}); freed != 0 || err != nil {
					t.Errorf("nothing is old: %d bytes freed, %v", freed, err)
				}
				checkTrimmed(t, l, 1, 1000)
				// The newest is three seconds old, those three entries before it six.
				if freed, err := l.Trim(Keep{Since: time.Now().Add(-300500 * time.Millisecond), After: everything}); freed <= 0 || err != nil {
					t.Errorf("%d bytes freed, %v", freed, err)
				}
				oldest := l.Oldest()
				if oldest < 690 || oldest > 702 {
					t.Errorf("300 seconds of entries begin with %d", oldest)
				}
				checkTrimmed(t, l, oldest, 1000)
				renew()
				checkTrimmed(t, l, oldest, 1000)
				if _, err := l.Trim(Keep{Bytes: -1, After: 900}); err != nil {
					t.Error(err)
				}
				checkTrimmed(t, l, 901, 1000)
				renew()
				if seq, err := l.AppendFlush(Update, Everyone, []byte(`{"new":true}`)); seq <= 1000 || err != nil {
					t.Errorf("the next is %d, %v", seq, err)
				}
				last := l.Last()
				if got := readAll(t, l, 990); len(got) != 11 {
					t.Errorf("%d entries behind 990", len(got))
				}
				if _, err := l.Trim(Keep{Bytes: -1, After: last - 1}); err != nil {
					t.Error(err)
				}
				renew()
				checkTrimmed(t, l, last, last)
				rep, err := Verify(path, 0)
				if err != nil || rep.Expired != last-1 || len(rep.Damage)+len(rep.Lost) > 0 {
					t.Errorf("%+v, %v", rep, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What cannot be read, or is lost, goes with what is behind it: no later, and no sooner.
func TestTrim_BehindWhatCannotBeRead(t *testing.T) {
	for name, harm := range map[string]func(data []byte, at part) []byte{
		"in a block":  func(d []byte, at part) []byte { d[at.off+headerSize+5] ^= 4; return d },
		"in a header": func(d []byte, at part) []byte { d[at.off+17] ^= 1; return d },
		"lost": func(d []byte, at part) []byte {
			h := at.header
			h.kind, h.bound, h.count = lost, h.last(), 0
			return append(appendBlock(append([]byte(nil), d[:at.off]...), h, nil), d[at.off+at.n:]...)
		},
	} {
		for where, block := range map[string]int{"first": 0, "later": 3} {
			t.Run(name+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "log")
					l := openTrimmed(t, path, Options{})
					for i := range 6 {
						if _, err := l.AppendFlush(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d}`, i))); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Hour)
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
					for err == nil && (p.kind != entries || p.first != uint64(block+1)) {
						p, err = w.next()
					}
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, harm(bytes.Clone(data), p), 0o600); err != nil {
						t.Fatal(err)
					}
					l = openTrimmed(t, path, Options{})
					// The block before the harm is old enough, the one behind it is not.
					old := time.Now().Add(-time.Duration(6-block)*time.Hour + time.Minute)
					if _, err := l.Trim(Keep{Since: old, After: everything}); err != nil || l.Oldest() != uint64(block+1) {
						t.Errorf("with the block behind it young the oldest is %d, %v", l.Oldest(), err)
					}
					if at, err := l.OldestTime(); err != nil || time.Since(at) > time.Duration(5-block)*time.Hour+time.Minute {
						t.Errorf("the oldest that can be read is of %v ago, %v", time.Since(at), err)
					}
					if freed, err := l.Trim(Keep{Since: old.Add(time.Hour), After: everything}); freed <= 0 || err != nil {
						t.Errorf("%d bytes freed, %v", freed, err)
					}
					checkTrimmed(t, l, uint64(block+3), 6)
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// A reader that is in the middle of the file is told, and one that is behind the cut reads on.
func TestTrim_ReadersAreTold(t *testing.T) {
	l := openTrimmed(t, filepath.Join(t.TempDir(), "log"), Options{Memory: 1})
	for i := range 400 {
		if _, err := l.AppendFlush(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	l.Release(0)
	slow, fast := l.Cursor(10), l.Cursor(300)
	for _, c := range []*Cursor{slow, fast} {
		if _, err := c.Next(nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Trim(Keep{Bytes: -1, After: 200}); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Next(nil, 1); !errors.Is(err, ErrTruncated) {
		t.Errorf("the slow one: %v", err)
	}
	if next, err := fast.Next(nil, 1); err != nil || next[0].Seq != 302 {
		t.Errorf("the fast one: %v, %v", next, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// meddled is a disk on which something happens while a log is written anew.
type meddled struct {
	osDisk
	meddle func() // once
}

func (d *meddled) Create(path string) (file, error) {
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	return meddledFile{f, d}, nil
}

type meddledFile struct {
	file
	d *meddled
}

func (f meddledFile) Sync() error {
	if meddle := f.d.meddle; meddle != nil {
		f.d.meddle = nil
		meddle()
	}
	return f.file.Sync()
}

// Who appends does not wait for the file that is written anew, and what comes meanwhile is in it.
func TestTrim_WhileItIsUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		meddle func(t *testing.T, l *Log, add func(n, size int))
		last   uint64
		kept   bool // nothing is let go this time
	}{
		"entries come":     {func(_ *testing.T, _ *Log, add func(n, size int)) { add(10, 10) }, 410, false},
		"many come":        {func(_ *testing.T, _ *Log, add func(n, size int)) { add(100, 40<<10) }, 500, false},
		"it is given back": {func(_ *testing.T, l *Log, _ func(n, size int)) { l.Release(0) }, 400, false},
		"another one": {func(t *testing.T, l *Log, _ func(n, size int)) {
			if freed, err := l.Trim(Keep{Bytes: -1, After: 300}); freed != 0 || err != nil {
				t.Errorf("it has freed %d, %v", freed, err)
			}
		}, 400, false},
		"one is not flushed": {func(_ *testing.T, l *Log, _ func(n, size int)) { l.Append(Update, Everyone, []byte(`{}`)) }, 401, false},
		"the file goes": {func(t *testing.T, l *Log, add func(n, size int)) {
			add(1, 10)
			if err := errors.Join(os.Remove(l.path), l.Sync()); err != nil {
				t.Error(err)
			}
		}, 401, true},
	} {
		t.Run(name, func(t *testing.T) {
			path, d := filepath.Join(t.TempDir(), "log"), &meddled{}
			l := openTrimmed(t, path, Options{disk: d})
			add := func(n, size int) {
				for range n {
					if _, err := l.AppendFlush(Update, Everyone, []byte(`{"x":"`+strings.Repeat("x", size)+`"}`)); err != nil {
						t.Fatal(err)
					}
				}
			}
			add(400, 100)
			d.meddle = func() {
				if !l.mu.TryLock() {
					t.Error("who appends waits for the disk")
					return
				}
				l.mu.Unlock()
				tt.meddle(t, l, add)
			}
			freed, err := l.Trim(Keep{Bytes: -1, After: 200})
			if err != nil || (freed == 0) != tt.kept || d.meddle != nil {
				t.Errorf("it has freed %d, %v", freed, err)
			}
			if err := l.Flush(); err != nil {
				t.Error(err)
			}
			oldest := uint64(201)
			if tt.kept {
				oldest = 1
			}
			for range 2 {
				checkTrimmed(t, l, oldest, tt.last)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				l = openTrimmed(t, path, Options{})
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
				t.Errorf("there are %v, %v", files, err)
			}
		})
	}
}

// Who closes a log, or moves its file, does that behind a Trim.
func TestTrim_ThenClosed(t *testing.T) {
	path, d := filepath.Join(t.TempDir(), "log"), &meddled{}
	l := openTrimmed(t, path, Options{disk: d})
	for range 400 {
		if _, err := l.AppendFlush(Update, Everyone, []byte(`{"x":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	ends := make(chan error, 2)
	d.meddle = func() {
		go func() { ends <- l.Move(func() (string, error) { return path + "2", os.Rename(path, path+"2") }) }()
		go func() { ends <- l.Close() }()
	}
	if freed, err := l.Trim(Keep{Bytes: -1, After: 200}); freed == 0 || err != nil {
		t.Errorf("it has freed %d, %v", freed, err)
	}
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	l = openTrimmed(t, path+"2", Options{})
	checkTrimmed(t, l, 201, 400)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A log that was trimmed and then closed says that it ended in good order: behind a restart of the machine nothing of it
// counts as lost.
func TestTrim_EndsInGoodOrder(t *testing.T) {
	for name, then := range map[string]uint64{"nothing comes then": 0, "something does": 1} {
		for _, after := range []uint64{200, 399} {
			t.Run(fmt.Sprint(name, ", behind ", after), func(t *testing.T) {
				disk := newFaultDisk(rand.New(rand.NewPCG(1, 2)))
				l := openTrimmed(t, "log", Options{disk: disk})
				add := func(l *Log, want uint64) {
					t.Helper()
					if seq, err := l.AppendFlush(Update, Everyone, []byte(`{"x":1}`)); seq != want || err != nil {
						t.Fatalf("entry %d is %d, %v", want, seq, err)
					}
				}
				for i := range uint64(400) {
					add(l, i+1)
				}
				if freed, err := l.Trim(Keep{Bytes: -1, After: after}); freed == 0 || err != nil {
					t.Errorf("it has freed %d, %v", freed, err)
				}
				for i := range then {
					add(l, 401+i)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				disk.boot++
				l = openTrimmed(t, "log", Options{disk: disk})
				add(l, 401+then)
				checkTrimmed(t, l, after+1, 401+then)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// blocksOf returns the blocks of a prompt.
func blocksOf(frame []byte) []json.RawMessage {
	var m struct {
		Params struct {
			Prompt []json.RawMessage `json:"prompt"`
		} `json:"params"`
	}
	_ = json.Unmarshal(frame, &m) // what is no prompt has none
	return m.Params.Prompt
}

// A prompt is in the file once, and readers are given what shows it, from memory and from
// the file, with the prompt and without; where the prompt is gone, so is what shows it.
func TestEcho_IsThePromptsOwnWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	o := Options{Blocks: blocksOf, Echo: func(block []byte) []byte { return []byte(`{"shown":` + string(block) + `}`) }}
	l := openTrimmed(t, path, o)
	l.Append(Update, Everyone, []byte(`{"before":1}`))
	prompt := l.Append(Client, 5, []byte(`{"method":"session/prompt","params":{"prompt":[{"text": "Unmistakable <words>"},{"n":1.0}]}}`))
	l.AppendEcho(Except(5), prompt, 0)
	l.AppendEcho(Except(5), prompt, 1)
	l.Append(Echo, Except(5), []byte(`{"old":"form"}`))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"shown":{"text": "Unmistakable <words>"}}`, `{"shown":{"n":1.0}}`, `{"old":"form"}`}
	check := func(what string) {
		t.Helper()
		for _, after := range []uint64{0, prompt, prompt + 1} {
			for _, limit := range []int{1, 1 << 20} {
				c := l.Cursor(after)
				for {
					batch, err := c.Next(nil, limit)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if len(batch) == 0 {
						break
					}
					for _, e := range batch {
						if e.Kind == Echo && string(e.Frame) != want[e.Seq-prompt-1] {
							t.Errorf("%s, behind %d: entry %d is %s", what, after, e.Seq, e.Frame)
						}
					}
				}
			}
		}
	}
	check("in memory")
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), "Unmistakable") != 1 {
		t.Errorf("the file has the words %d times, %v", strings.Count(string(b), "Unmistakable"), err)
	}
	l.Release(0)
	check("in the file")
	if _, err := l.Trim(Keep{Bytes: -1, After: prompt}); err != nil {
		t.Fatal(err)
	}
	if l.Oldest() != prompt+4 && l.Last() >= l.Oldest() {
		t.Errorf("what shows a prompt that is gone is there: the oldest is %d", l.Oldest())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log without a file lets whole blocks go, never what is to be kept, and says what is gone.
func TestTrim_OfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filled := func() *Log {
			l := openTrimmed(t, "", Options{Memory: 64 << 20})
			for i := range 300 {
				if i%100 == 0 {
					time.Sleep(time.Hour)
				}
				if _, err := l.AppendFlush(Update, Everyone, []byte(fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 4000)))); err != nil {
					t.Fatal(err)
				}
			}
			return l
		}
		for name, tt := range map[string]struct {
			keep     Keep
			age      time.Duration // of what is kept, 0 for any
			from, to uint64        // the oldest entry that is left
		}{
			"all":                 {Keep{After: everything}, 0, 1, 1},
			"nothing is old":      {Keep{After: everything}, 4 * time.Hour, 1, 1},
			"the first hour":      {Keep{After: everything}, 90 * time.Minute, 60, 101},
			"what is large":       {Keep{Bytes: 600 << 10, After: everything}, 0, 200, 280},
			"nothing is kept":     {Keep{Bytes: -1, After: everything}, 0, 285, 300},
			"what must be kept":   {Keep{Bytes: -1, After: 50}, 0, 20, 51},
			"all of it must stay": {Keep{Bytes: -1}, 0, 1, 1},
		} {
			l := filled()
			if tt.age > 0 {
				tt.keep.Since = time.Now().Add(-tt.age)
			}
			size := l.Size()
			if freed, err := l.Trim(tt.keep); freed != size-l.Size() || err != nil {
				t.Errorf("%s: %d bytes are said to be freed, of %d there are %d, %v", name, freed, size, l.Size(), err)
			}
			oldest := l.Oldest()
			if oldest < tt.from || oldest > tt.to {
				t.Errorf("%s: the oldest is %d, want one of %d to %d; %d bytes are held", name, oldest, tt.from, tt.to, l.held)
			}
			checkTrimmed(t, l, oldest, 300)
			if seq, err := l.AppendFlush(Update, Everyone, []byte(`{}`)); seq != 301 || err != nil {
				t.Errorf("%s: the next is %d, %v", name, seq, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := l.Trim(tt.keep); err != nil {
				t.Errorf("%s: closed: %v", name, err)
			}
		}
	})
}

// What a program that was killed has left of a file that it wrote anew goes when the log is opened.
func TestOpen_BehindAKilledTrim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openTrimmed(t, path, Options{})
	if _, err := l.AppendFlush(Update, Everyone, []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	left := []string{path + ".trim.tmp", path + ".tmp"}
	for _, file := range left {
		if err := os.WriteFile(file, []byte("a part"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := openTrimmed(t, path, Options{}) // the first one was killed
	checkTrimmed(t, next, 1, 1)
	for _, file := range left {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", filepath.Base(file), err)
		}
	}
	if err := errors.Join(next.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}
