package journal

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// readCounter is a disk that counts what is read.
type readCounter struct {
	osDisk
	reads atomic.Int64
}

type readFile struct {
	file
	d *readCounter
}

func (d *readCounter) Create(path string) (file, error) {
	f, err := d.osDisk.Create(path)
	return readFile{f, d}, err
}

func (f readFile) ReadAt(b []byte, off int64) (int, error) {
	f.d.reads.Add(1)
	return f.file.ReadAt(b, off)
}

// Whoever writes faster than the foremost reader reads waits for it, so that it need not read from the file. One that has
// stopped reading, and one that has left, hold nobody up.
func TestLog_KeepsPace(t *testing.T) {
	const batches, size = 200, 50 << 10
	tests := map[string]struct {
		readers []int // batches after which each stops reading; 0 for one that never does
		short   bool  // memory is, by what other logs hold
		least   time.Duration
		most    time.Duration
	}{
		"a slow reader":                       {readers: []int{0}, least: batches * time.Millisecond / 2, most: 2 * batches * time.Millisecond},
		"a slow reader, and one beside":       {readers: []int{0, 20}, least: batches * time.Millisecond / 2, most: 2 * batches * time.Millisecond},
		"a slow reader where memory is short": {readers: []int{0}, short: true},
		"one that stops":                      {readers: []int{20}, least: 20 * time.Millisecond / 2, most: 20*time.Millisecond + 2*patience},
		"nobody":                              {most: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &readCounter{}
				budget := NewBudget(1 << 30)
				if test.short {
					budget.held.Store(2 << 30)
				}
				l, err := Open(filepath.Join(t.TempDir(), "log.journal"), Options{disk: d, Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				for _, stops := range test.readers {
					go func() {
						c := l.Cursor(0)
						c.Paced = true
						wake := make(chan struct{}, 1)
						defer l.Watch(wake)()
						for n := 0; c.After() < batches; n++ {
							if stops > 0 && n == stops {
								return
							}
							batch, err := c.Next(nil, size)
							if err != nil {
								t.Error(err)
								return
							}
							if len(batch) == 0 {
								<-wake
							} else {
								time.Sleep(time.Millisecond)
							}
						}
					}()
				}
				began := time.Now()
				for i := range batches {
					if _, err := l.AppendFlush(Update, Everyone, fmt.Appendf(nil, `{"n":"%d%s"}`, i, noise(size))); err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						synctest.Wait() // they have begun to read
					}
					l.Room(nil)
				}
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("it took %v, want %v to %v", took, test.least, test.most)
				}
				synctest.Wait()
				time.Sleep(time.Second)
				if d.reads.Load() > 0 && !test.short {
					t.Errorf("the file was read %d times", d.reads.Load())
				}
			})
		})
	}
}

// A reader that is gone is waited for once, however little is appended at a time.
func TestLog_WaitsOnceForWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(filepath.Join(t.TempDir(), "log.journal"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c := l.Cursor(0)
		c.Paced = true
		began := time.Now()
		for i := range 2000 {
			if _, err := l.AppendFlush(Update, Everyone, fmt.Appendf(nil, `{"n":"%d%s"}`, i, noise(1000))); err != nil {
				t.Fatal(err)
			}
			if i < 10 { // and then it leaves
				if _, err := c.Next(nil, 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			l.Room(nil)
		}
		if took := time.Since(began); took > 2*patience {
			t.Errorf("it waited %v", took)
		}
	})
}
