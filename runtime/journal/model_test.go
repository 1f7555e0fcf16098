package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// model is what must be true of a log, whatever happens to it.
type model struct {
	t    *testing.T
	dice *rand.Rand
	disk *faultDisk
	o    Options

	l       *Log
	frames  map[uint64]string // the newest entry of each number
	seen    map[uint64]string // entries that a reader has had
	last    uint64            // newest of seen
	gone    map[uint64]bool   // those of seen that a power cut took, rightly
	durable uint64            // up to here no power cut may take anything
	cuts    int               // power cuts so far
	asked   uint64            // entries up to here may have been let go
	knows   bool              // the log is opened with the newest of seen
}

// open opens the log, as often as it takes.
func (m *model) open() {
	for i := range 100 {
		if i == 50 {
			_, full, left := m.disk.state()
			m.disk.fail(0, full, left) // enough of it
		}
		if m.knows { // a record beside the log does, whatever becomes of the log
			m.o.Reached = m.last
		}
		l, err := Open("log", m.o)
		if err == nil {
			m.l = l
			odds, full, left := m.disk.fail(0, false, -1)
			m.read(0, true)
			m.disk.fail(odds, full, left)
			return
		}
		if errors.Is(err, ErrFormat) {
			m.t.Fatalf("a file of its own is refused: %v", err)
		}
		if _, _, left := m.disk.state(); left == 0 {
			m.off(m.dice.IntN(2) == 0)
		}
	}
	m.t.Fatal("it cannot be opened")
}

func (m *model) append() {
	for range 1 + m.dice.IntN(4) {
		n := []int{3, 40, 700, 9000, 90_000}[min(m.dice.IntN(20), 4)]
		if n == 90_000 && m.dice.IntN(4) > 0 {
			n = 5
		}
		text := noise(m.dice.IntN(n))
		if m.dice.IntN(2) == 0 { // it is compressed when it is written
			text = strings.Repeat("a", len(text))
		}
		frame := fmt.Sprintf(`{"n":%d,"x":"%s"}`, m.dice.Int64(), text)
		seq := m.l.Append(Update, Everyone, []byte(frame))
		if old, ok := m.seen[seq]; ok {
			m.t.Fatalf("entry %d is given again: a reader had %.60s", seq, old)
		}
		m.frames[seq] = frame
	}
}

// read reads from a number on and checks what it gets.
func (m *model) read(after uint64, whole bool) {
	after = max(after, m.l.Oldest()-1)
	c := m.l.Cursor(after)
	have := map[uint64]bool{}
	type span struct{ first, last uint64 }
	var damaged []span
	for {
		batch, err := c.Next(nil, 1+m.dice.IntN(100_000))
		if err != nil {
			if whole {
				m.t.Fatalf("read after %d: %v", c.After(), err)
			}
			return // a call failed, as it was told to
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			if e.Seq <= after {
				m.t.Fatalf("entry %d follows %d", e.Seq, after)
			}
			if e.Kind == Damage {
				damaged = append(damaged, span{after + 1, e.Seq})
				after = e.Seq
				continue
			}
			after = e.Seq
			if m.frames[e.Seq] != string(e.Frame) {
				m.t.Fatalf("entry %d is %.60s, and was %.60s", e.Seq, e.Frame, m.frames[e.Seq])
			}
			have[e.Seq] = true
			m.seen[e.Seq] = string(e.Frame)
			m.last = max(m.last, e.Seq)
		}
	}
	if len(damaged) > 0 && m.cuts == 0 {
		m.t.Fatalf("damage is told where there is none: %v", damaged)
	}
	if !whole {
		return
	}
	for seq := range m.seen {
		if have[seq] || seq < m.l.Oldest() && (seq <= m.asked || m.cuts > 0) { // what a cut took was let go with the rest
			continue
		}
		if !m.gone[seq] && (seq <= m.durable || m.cuts == 0) {
			m.t.Fatalf("entry %d is lost; up to %d they were durable, %d power cuts", seq, m.durable, m.cuts)
		}
		if (seq < after || m.knows) && !slices.ContainsFunc(damaged, func(s span) bool { return s.first <= seq && seq <= s.last }) {
			m.t.Fatalf("entry %d is lost, and nobody is told: %v", seq, damaged)
		}
		m.gone[seq] = true
	}
}

// restart ends the process or the machine, and opens the log again.
func (m *model) restart(power bool) {
	odds, full, _ := m.disk.state()
	m.disk.fail(odds, full, 0)
	_ = m.l.Close()
	m.off(power)
	m.open()
}

func (m *model) off(power bool) {
	m.disk.restart(power)
	if power {
		m.cuts++
	}
}

func (m *model) step() {
	if _, _, left := m.disk.state(); left == 0 { // it crashed in the step before
		m.restart(m.dice.IntN(2) == 0)
	}
	odds, full, left := m.disk.state()
	switch m.dice.IntN(26) {
	case 0, 1, 2, 3, 4, 5, 6:
		m.append()
		if m.l.Flush() == nil {
			m.read(m.last, false)
			if m.o.Sync == SyncEach {
				m.durable = m.l.Last()
			}
		}
	case 7, 8:
		m.append()
	case 9, 10:
		if err := m.l.Sync(); err == nil {
			m.durable = m.l.Last()
		}
	case 11:
		m.l.Release(0)
	case 12, 13:
		m.read(uint64(m.dice.Int64N(int64(m.l.Last())+1)), false)
	case 14:
		err := m.l.Close()
		_, _, now := m.disk.state()
		if now != 0 && odds == 0 && !full && err != nil {
			m.t.Fatalf("close: %v", err)
		}
		if err == nil {
			m.durable = m.l.Last()
		}
		if now != 0 {
			m.open()
		}
	case 15:
		m.restart(false)
	case 16:
		m.restart(true)
	case 17:
		m.disk.fail(odds, full, 1+m.dice.IntN(12))
	case 18:
		m.disk.fail(2+m.dice.IntN(6), full, left)
	case 19:
		m.disk.fail(odds, true, left)
	case 20:
		after := m.l.Last() - m.dice.Uint64N(min(m.l.Last(), 8)+1)
		m.asked = max(m.asked, after)
		_, _ = m.l.Trim(Keep{Bytes: -1, After: after}) // it fails as it is told to
	case 21:
		m.l.Pack()
	case 22, 23: // the machine is started anew when all is in good order
		m.disk.fail(0, false, -1)
		if m.l.Close() != nil {
			m.open()
			return
		}
		m.disk.boot++
		m.open()
	case 24, 25:
		m.disk.fail(0, false, -1)
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		if err := m.l.Err(); err != nil {
			m.t.Fatalf("with room again the file does not take entries: %v", err)
		}
	}
}

// Whatever the disk does and whenever the process or the machine stops: what was
// promised is there, what is lost is told, and no number is given twice.
func TestModel(t *testing.T) {
	runs, steps := 100, 60
	if testing.Short() {
		runs = 30
	}
	runs = figure.Asked(t, "LIVES", runs)
	first := rand.Uint64()
	if s := os.Getenv("JOURNAL_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, runs = n, 1
	}
	cuts := 0
	for i := range runs {
		seed := first + uint64(i)
		if !t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("again: JOURNAL_SEED=%d go test ./runtime/journal -run TestModel", seed)
					}
				}()
				dice := rand.New(rand.NewPCG(seed, 0))
				m := &model{t: t, dice: dice, disk: newFaultDisk(rand.New(rand.NewPCG(seed, 1))), frames: map[uint64]string{}, seen: map[uint64]string{}, gone: map[uint64]bool{}}
				m.knows = seed/2%2 == 0
				m.o = Options{Memory: 8 << 10, disk: m.disk, Sync: []Syncing{SyncAhead, SyncEach}[seed%2]}
				m.open()
				defer func() { _ = m.l.Close() }()
				for range steps {
					m.step()
				}
				m.restart(dice.IntN(2) == 0)
				cuts += m.cuts
			})
		}) {
			return
		}
	}
	figure.Done(t, runs, fmt.Sprintf("lives of %d steps", steps))
	figure.Done(t, cuts, "power cuts")
}
