package adaptertest

import (
	"context"
	"fmt"
	goruntime "runtime"
	"testing"
)

// recorder is a testing.TB whose failures are an observation. What it does not
// override is the real test's.
type recorder struct {
	testing.TB
	name     string
	ctx      context.Context // ended before the cleanups run
	failures []string
	skipped  string
	cleanups []func()
}

// observe runs check as a test of its own and returns what it reported.
func observe(t testing.TB, name string, check func(t testing.TB)) *recorder {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &recorder{TB: t, name: name, ctx: ctx}
	alone(func() { check(r) })
	cancel()
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		alone(f)
	}
	return r
}

// alone runs f in a goroutine that FailNow may end.
func alone(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool             { return len(r.failures) > 0 }

func (r *recorder) fail(text string) { r.failures = append(r.failures, text) }

func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.fail(fmt.Sprint(args...)); goruntime.Goexit() }

func (r *recorder) Skip(args ...any) { r.skipped = fmt.Sprint(args...); goruntime.Goexit() }

func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	goruntime.Goexit()
}
