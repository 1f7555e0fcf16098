package journal

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// Many logs on a disk that is full hold no more than their budget, and a little that each
// may hold in any case. Those who append wait; with room again all goes on, and nothing is
// missing.
func TestBudget_FullDisk(t *testing.T) {
	const logs, most, entries = 40, 4 << 20, 400
	budget := NewBudget(most)
	disk := newFaultDisk(rand.New(rand.NewPCG(1, 1)))
	troubled := make(chan error, 10*logs)
	all := make([]*Log, logs)
	for i := range all {
		l, err := Open(fmt.Sprint("log", i), Options{Budget: budget, disk: disk, Trouble: func(err error) {
			if err != nil {
				troubled <- err
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all[i] = l
	}
	full := func(yes bool) {
		disk.mu.Lock()
		disk.full = yes
		disk.mu.Unlock()
	}
	full(true)
	var appending sync.WaitGroup
	for _, l := range all {
		appending.Go(func() {
			for range entries {
				l.Append(Update, Everyone, []byte(`{"x":"`+noise(2000)+`"}`))
				_ = l.Flush()
				l.Room(nil)
			}
		})
	}
	for range logs {
		<-troubled
	}
	// Without the budget they would hold 40 times 800 kB. What each may hold in any case is a
	// block that has begun.
	var held int64
	for range 2000 {
		held = max(held, budget.Held())
	}
	if held > most+logs*maxBlock {
		t.Errorf("the logs hold %d bytes", held)
	}
	full(false)
	appending.Wait()
	for i, l := range all {
		if err := l.Flush(); err != nil || l.Last() != entries {
			t.Errorf("log %d ends with %d: %v", i, l.Last(), err)
		}
		l.Release(0)
	}
	if budget.Held() != 0 || budget.holders.Load() != 0 {
		t.Errorf("released logs hold %d bytes, %d of them", budget.Held(), budget.holders.Load())
	}
}

// Logs without a file share their budget: what is old goes, and is known to have gone.
func TestBudget_MemoryOnly(t *testing.T) {
	const logs, most = 16, 8 << 20
	budget := NewBudget(most)
	all := make([]*Log, logs)
	for i := range all {
		l, err := Open("", Options{Memory: 64 << 20, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = l
		for range 1000 {
			if _, err := l.AppendFlush(Update, Everyone, []byte(`{"x":"`+noise(2000)+`"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range all {
		l.Shrink() // as now and then, for those that nobody writes to
	}
	if held := budget.Held(); held > most+logs*maxBlock {
		t.Errorf("the logs hold %d bytes", held)
	}
	if last := all[logs-1]; last.Oldest() == 1 || last.Last() != 1000 {
		t.Errorf("the newest log has %d to %d", last.Oldest(), last.Last())
	}
	for _, l := range all {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if budget.Held() != 0 {
		t.Errorf("closed logs hold %d bytes", budget.Held())
	}
}

// Who reads all of a log without a file has it keep more, as long as all logs together hold no more than they may.
func TestBudget_ReadAsAWhole(t *testing.T) {
	const memory, entries = 1 << 20, 350 // which are more than that, and less than twice as much
	for most, whole := range map[int64]bool{16 << 20: true, 512 << 10: false} {
		budget := NewBudget(most)
		l, err := Open("", Options{Memory: memory, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		done := l.KeepAll()
		for range entries {
			if _, err := l.AppendFlush(Update, Everyone, []byte(`{"x":"`+noise(1500)+`"}`)); err != nil {
				t.Fatal(err)
			}
		}
		if kept := l.Oldest() == 1; kept != whole {
			t.Errorf("of %d bytes it has those from %d on", most, l.Oldest())
		}
		if held := budget.Held(); held > most+maxBlock {
			t.Errorf("of %d bytes it holds %d", most, held)
		}
		done()
		if held := budget.Held(); held > memory || l.Oldest() == 1 {
			t.Errorf("of %d bytes it holds %d behind that, from %d on", most, held, l.Oldest())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
