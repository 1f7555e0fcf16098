package awake

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestClock_SleepDoesNotCount(t *testing.T) {
	var real time.Duration
	c := &clock{real: func() time.Duration { return real }}
	pass := func(d time.Duration, ticks bool) time.Duration {
		from := c.now()
		for end := real + d; real < end; {
			real = min(end, real+tickEvery)
			if ticks {
				c.tick()
			}
		}
		return c.now() - from
	}
	if got := pass(time.Hour, false); got != time.Hour {
		t.Errorf("without a watch an hour is %v", got)
	}
	c.watch(true)
	if got := pass(time.Hour, true); got != time.Hour {
		t.Errorf("an hour awake is %v", got)
	}
	if got := pass(4*time.Second, false); got != 4*time.Second {
		t.Errorf("four busy seconds are %v", got)
	}
	c.tick()
	if got := pass(8*time.Hour, false); got != mostGap {
		t.Errorf("a night asleep is %v", got)
	}
	if got := pass(time.Minute, true); got > time.Minute || got < time.Minute-mostGap {
		t.Errorf("the first minute behind it is %v", got)
	}
}

// Whatever the machine does, the clock never goes back, and never runs faster than
// time itself.
func TestClock_NeverGoesBack(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var real time.Duration
		c := &clock{real: func() time.Duration { return real }}
		last, lastReal := c.now(), real
		for range 200 {
			switch r.IntN(5) {
			case 0:
				real += time.Duration(r.Int64N(int64(time.Hour)))
			case 1:
				c.watch(r.IntN(2) == 0)
			case 2:
				c.tick()
			default:
				real += time.Duration(r.Int64N(int64(3 * time.Second)))
			}
			now := c.now()
			if now < last || now-last > real-lastReal {
				t.Fatalf("seed %d: from %v to %v in %v", seed, last, now, real-lastReal)
			}
			last, lastReal = now, real
		}
	}
}

func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		begin := Now()
		timer := AfterFunc(time.Minute, func() { calls.Add(1) })
		time.Sleep(30 * time.Second)
		timer.Reset(time.Minute)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if calls.Load() != 0 {
			t.Error("it was called too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if calls.Load() != 1 || begin.Ago() != 90*time.Second {
			t.Errorf("%d calls after %v", calls.Load(), begin.Ago())
		}
		timer.Reset(time.Second)
		timer.Stop()
		time.Sleep(time.Hour)
		if calls.Load() != 1 {
			t.Error("it was called after it was stopped")
		}
	})
}

// A timer that is due while the machine wakes up waits for the rest of its time.
func TestTimer_Sleep(t *testing.T) {
	var asleep, calls atomic.Int64
	defer func(real func() time.Duration) { own.real = real }(own.real)
	real := own.real
	own.real = func() time.Duration { return real() + time.Duration(asleep.Load()) }
	own.watch(true)
	defer own.watch(false)
	from := Now()
	timer := AfterFunc(10*time.Second, func() { calls.Add(1) })
	defer timer.Stop()
	asleep.Store(int64(8 * time.Hour))
	timer.due() // as the machine's timer says when it wakes up
	if calls.Load() != 0 {
		t.Error("it was called for time asleep")
	}
	if got := from.Ago(); got > 6*time.Second {
		t.Errorf("%v have passed", got)
	}
}

// A connection's deadline passes when its peer had the time awake. What a pause has used up does not end it, and who
// goes on behind the end has all of the time again.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		defer func(real func() time.Duration) { own.real = real }(own.real)
		real := own.real
		own.real = func() time.Duration { return real() + time.Duration(asleep.Load()) }
		own.watch(true)
		defer own.watch(false)
		awake := func(d time.Duration) {
			for range d / time.Second {
				time.Sleep(time.Second)
				own.tick()
			}
			synctest.Wait()
		}
		var passed atomic.Bool
		l := NewDeadline(time.Minute, func(at time.Time) error {
			passed.Store(!at.IsZero())
			return nil
		})
		awake(time.Hour)
		if passed.Load() {
			t.Error("it passes before it was started")
		}
		l.Start()
		asleep.Add(int64(8 * time.Hour))
		l.timer.due() // as the machine's timer says when it wakes up
		awake(30 * time.Second)
		l.Start()
		awake(59 * time.Second)
		if passed.Load() {
			t.Error("it has passed too early")
		}
		awake(time.Second)
		if !passed.Load() {
			t.Error("it has not passed")
		}
		l.Start()
		if passed.Load() {
			t.Error("it has passed for who has all of the time again")
		}
		awake(time.Minute)
		l.Stop()
		if passed.Load() {
			t.Error("the connection is left with it")
		}
		awake(time.Hour)
		if passed.Load() {
			t.Error("it passes when it was stopped")
		}
		l.Start()
		awake(time.Minute)
		if !passed.Load() {
			t.Error("it has not passed for who was waited for again")
		}
	})
}

// What somebody is given time for by a context ends when the time awake is over, as any that is too late does.
func TestWithTimeoutCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		defer func(real func() time.Duration) { own.real = real }(own.real)
		real := own.real
		own.real = func() time.Duration { return real() + time.Duration(asleep.Load()) }
		own.watch(true)
		defer own.watch(false)
		awake := func(d time.Duration) {
			for range d / time.Second {
				time.Sleep(time.Second)
				own.tick()
			}
			synctest.Wait()
		}
		late := errors.New("it is too late")
		ctx, cancel := WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		left, leave := WithTimeoutCause(t.Context(), time.Minute, late)
		leave()
		if err := left.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("who has left it has %v", err)
		}
		asleep.Add(int64(8 * time.Hour))
		awake(55 * time.Second) // a pause can take five seconds of it
		select {
		case <-ctx.Done():
			t.Errorf("it ended early, with %v", context.Cause(ctx))
		default:
		}
		awake(2 * time.Minute)
		select {
		case <-ctx.Done():
		default:
			t.Fatal("it has not ended")
		}
		if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || cause != late {
			t.Errorf("it ended with %v, %v", err, cause)
		}
	})
}
