package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const most = 8 << 20

// holder is one whose share is ended as connections are: it then gives back.
func holder(t *testing.T, b *Bound, n int) (s *Share, ended *bool) {
	t.Helper()
	ended = new(bool)
	s = b.Open(func() {
		*ended = true
		go s.Close()
	})
	if err := s.Take(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return s, ended
}

// Who stands still is ended for another one, the largest first, and nobody else is.
func TestTake_EndsWhoStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		_, small := holder(t, b, 1<<20)
		_, large := holder(t, b, 3<<20)
		moving, moves := holder(t, b, 2<<20)
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				select {
				case <-tick.C:
					moving.Moved(slowest / 8)
				case <-stop:
					return
				}
			}
		}()
		s := b.Open(nil)
		if err := s.Take(t.Context(), 2<<20); err != nil {
			t.Errorf("there is no room: %v", err)
		}
		if *small || !*large || *moves {
			t.Errorf("ended: the small one %t, the large one %t, the one that moves %t", *small, *large, *moves)
		}
		close(stop)
		synctest.Wait()
	})
}

// A client that sends and reads little messages holds something for moments. It is not taken
// for one that stands still, whenever one looks.
func TestTake_SparesWhoHoldsForMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		_, large := holder(t, b, 3<<20)
		moving, _ := holder(t, b, 1<<20)
		brief, ended := holder(t, b, 1<<10)
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				select {
				case <-tick.C: // it always holds something, but not the same
					moving.Moved(slowest)
					brief.GiveAll()
					if err := brief.Take(t.Context(), 1<<10); err != nil {
						t.Errorf("the brief one: %v", err)
					}
				case <-stop:
					return
				}
			}
		}()
		if err := b.Open(nil).Take(t.Context(), most); !errors.Is(err, ErrFull) {
			t.Errorf("more than there is: %v", err)
		}
		if *ended || !*large {
			t.Errorf("ended: the brief one %t, the one that stands still %t", *ended, *large)
		}
		close(stop)
		synctest.Wait()
	})
}

// Where all move, who comes last is refused after a moment. A small message finds room
// beside large ones.
func TestTake_WhereAllMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		busy, ended := holder(t, b, 20*most) // all that large ones may have
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				select {
				case <-tick.C:
					busy.Moved(slowest)
				case <-stop:
					return
				}
			}
		}()
		began := time.Now()
		if err := b.Open(nil).Take(t.Context(), 1<<20); !errors.Is(err, ErrFull) || time.Since(began) != patience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		began = time.Now()
		if err := b.Open(nil).Take(t.Context(), small); err != nil || time.Since(began) != 0 {
			t.Errorf("a small one: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.Open(nil).Take(ctx, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its caller has gone: %v", err)
		}
		close(stop)
		if *ended {
			t.Error("the one that moves was ended")
		}
		synctest.Wait()
	})
}

// What was counted without asking is made room for as well.
func TestTake_WhereMoreIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		for range 10 {
			s, _ := holder(t, b, 0)
			s.Count(2 << 20)
		}
		if err := b.Open(nil).Take(t.Context(), 2*small); err != nil {
			t.Errorf("there is no room: %v", err)
		}
		synctest.Wait()
	})
}

// Whatever was counted without asking, and whoever moves, a small message waits for nobody:
// it has room of its own, which comes back to where it was taken from.
func TestTake_SmallOnesHaveTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		large := b.Open(nil)
		large.Count(10 * most)
		little, another := b.Open(nil), b.Open(nil)
		for range most / 4 / small {
			if !little.Try(small) {
				t.Fatal("a small one has no room")
			}
		}
		if another.Try(1) {
			t.Error("more was given than is kept for small ones")
		}
		got := make(chan error)
		go func() { got <- another.Take(t.Context(), small) }()
		synctest.Wait()
		little.Give(small)
		if err := <-got; err != nil {
			t.Error(err)
		}
		little.GiveAll()
		another.Close()
		if used := b.Used(); used != 10*most {
			t.Errorf("%d bytes are taken, want %d", used, 10*most)
		}
		large.Close()
		if used := b.Used(); used != 0 {
			t.Errorf("%d bytes are taken at the end", used)
		}
	})
}

// Everything comes back, and wakes who waits.
func TestShare_GivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBound(most)
		first, second := b.Open(nil), b.Open(nil)
		if err := first.Take(t.Context(), 6<<20); err != nil || first.Try(3<<20) {
			t.Fatalf("more than all was taken, %v", err)
		}
		first.Count(3 << 20) // it is there already
		got := make(chan error)
		go func() { got <- second.Take(t.Context(), 5<<20) }()
		synctest.Wait()
		first.Give(1 << 20)
		first.GiveAll()
		if err := <-got; err != nil {
			t.Error(err)
		}
		second.Give(20 << 20)
		first.Close()
		second.Close()
		if b.Used() != 0 {
			t.Errorf("%d bytes are still taken", b.Used())
		}
		var none *Share
		none.Moved(1)
		if none.Take(t.Context(), 1<<40) != nil || !none.Try(1) || From(t.Context()) != nil || From(With(t.Context(), first)) != first {
			t.Error("no share is no bound, and a context has the one that it was given")
		}
	})
}
