package process

import (
	"context"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// RunOptions say how a run is bounded, and what of it is wanted. 0 is the
// limit's own number.
type RunOptions struct {
	Timeout  time.Duration
	Bytes    int64  // the most of each output
	Stdin    []byte // all of its input
	Combined bool   // also both outputs in the order in which they came
}

// Captured is the beginning of an output.
type Captured struct {
	Data      []byte
	Bytes     int64 // how long the whole was
	Truncated bool
}

func (c *Captured) add(p []byte, most int64) {
	c.Bytes += int64(len(p))
	if room := most - int64(len(c.Data)); int64(len(p)) > room {
		p, c.Truncated = p[:room], true
	}
	c.Data = append(c.Data, p...)
}

// capture takes the output of a run in place of the log.
type capture struct {
	most     int64
	combined bool

	mu                   sync.Mutex
	stdout, stderr, both Captured
}

func (c *capture) write(s Stream, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == Stdout {
		c.stdout.add(p, c.most)
	} else {
		c.stderr.add(p, c.most)
	}
	if c.combined {
		c.both.add(p, c.most)
	}
}

// Result is how a run ended.
type Result struct {
	Code                     int    // -1 when a signal ended it
	Signal                   string // "" when it exited
	TimedOut                 bool   // it was ended because its time was over
	Duration                 time.Duration
	Stdout, Stderr, Combined Captured
}

// Run runs a program to its end. When ctx ends it is killed, and so when its
// time is over; its output until then is in the result.
func (s *Service) Run(ctx context.Context, spec Spec, o RunOptions) (Result, error) {
	l := s.Limits()
	switch {
	case spec.TTY:
		return Result{}, errorf(Invalid, "a run has no terminal: start the process with tty")
	case o.Timeout < 0 || o.Timeout > millis(l.MaxRunMs):
		return Result{}, errorf(Invalid, "timeoutMs must be between 1 and %d, the limit maxRunMs", l.MaxRunMs)
	case o.Bytes < 0 || o.Bytes > l.MaxRunBytes:
		return Result{}, errorf(Invalid, "maxOutputBytes must be between 1 and %d, the limit maxRunBytes", l.MaxRunBytes)
	case int64(len(o.Stdin)) > l.InputBytes:
		return Result{}, errorf(TooLarge, "stdin has %d bytes, at most %d: put them into a file", len(o.Stdin), l.InputBytes)
	}
	if o.Timeout == 0 {
		o.Timeout = min(millis(l.RunMs), millis(l.MaxRunMs))
	}
	if o.Bytes == 0 {
		o.Bytes = min(l.RunBytes, l.MaxRunBytes)
	}
	taken := &capture{most: o.Bytes, combined: o.Combined}
	p, err := s.start(ctx, spec, taken)
	if err != nil {
		return Result{}, err
	}
	fed := make(chan struct{})
	feeding, stop := context.WithCancel(ctx)
	go func() {
		defer close(fed)
		_, _ = p.write(feeding, o.Stdin, true, o.Timeout) // one that does not read its input does not want it
	}()
	late, inTime := awake.After(o.Timeout)
	defer inTime()
	var r Result
	select {
	case <-p.done:
	case <-late:
		r.TimedOut = true
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.closing:
		err = errClosing()
	}
	if !p.isEnded() {
		p.Stop(0)
	}
	stop()
	<-fed
	if err != nil {
		return r, err
	}
	exit := p.proc.Exit()
	r.Code, r.Signal, r.Duration = exit.Code, exit.Signal, p.ended.Sub(p.started)
	r.Stdout, r.Stderr, r.Combined = taken.stdout, taken.stderr, taken.both
	return r, nil
}
