package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// Installer puts agents' programs on this machine. *install.Installer
// implements it. Errors are problems of package problem.
type Installer interface {
	Install(ctx context.Context, req install.Request) (install.Result, error)
	Remove(ctx context.Context, agent string) error
	Status(agent string) (install.Status, error)
	Doctor(ctx context.Context, agents []string) (install.Report, error)
}

var _ Installer = (*install.Installer)(nil)

const (
	// maxInstalls is how many installations run at once; further ones are
	// refused.
	maxInstalls = 16

	// maxSteps is how many steps of one installation are remembered for those
	// who come later. Beyond it the newest replaces the last; a source takes six
	// steps, so it is never reached.
	maxSteps = 500
)

// installs are the installations under way. Requests that ask for the same share
// one. It is safe for concurrent use.
type installs struct {
	ctx     context.Context // ends all of them
	running sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*flight // by what was asked for; one that ended is not in it
	closed  bool               // nothing new is begun
}

// flight is one installation and everybody who waits for it.
type flight struct {
	cancel  context.CancelFunc
	waiting int // guarded by installs.mu

	ended  chan struct{}  // closed when the next two are set
	result install.Result // valid without err
	err    error

	mu    sync.Mutex
	steps []install.Progress // each step's newest report
	more  chan struct{}      // closed and replaced when steps changes
}

// join begins an installation, or joins one that was asked for the same. The
// caller must call leave once.
func (s *installs) join(in Installer, req install.Request) (f *flight, leave func(), err error) {
	sources := make([]string, len(req.Sources))
	for i, source := range req.Sources {
		sources[i] = string(source)
	}
	key := fmt.Sprintf("%q %q %t %q", req.Agent, req.Version, req.Reinstall, strings.Join(sources, ","))
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.flights[key]
	switch {
	case f != nil:
	case s.closed:
		return nil, nil, errStopping()
	case len(s.flights) >= maxInstalls:
		return nil, nil, problem.New(problem.Unavailable, "%d installations are under way already: wait for one of them", len(s.flights))
	default:
		ctx, cancel := context.WithCancel(s.ctx)
		f = &flight{cancel: cancel, ended: make(chan struct{}), more: make(chan struct{})}
		req.Progress = f.report
		s.flights[key] = f
		s.running.Go(func() {
			defer cancel()
			f.result, f.err = in.Install(ctx, req)
			s.forget(key, f)
			close(f.ended)
		})
	}
	f.waiting++
	return f, func() { s.leave(key, f) }, nil
}

// leave ends an installation for which nobody waits any more.
func (s *installs) leave(key string, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		// Whoever asks for the same from now on does not get its end.
		if s.flights[key] == f {
			delete(s.flights, key)
		}
		f.cancel()
	}
}

func (s *installs) forget(key string, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[key] == f {
		delete(s.flights, key)
	}
}

// refuse makes that nothing new is begun.
func (s *installs) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// report takes an installation's progress. Counts within a step replace each
// other, so a slow reader sees every step and the newest count.
func (f *flight) report(p install.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.steps); n > 0 && (n >= maxSteps || sameStep(f.steps[n-1], p)) {
		f.steps[n-1] = p
	} else {
		f.steps = append(f.steps, p)
	}
	close(f.more)
	f.more = make(chan struct{})
}

// sameStep reports whether b only counts on from a.
func sameStep(a, b install.Progress) bool {
	return a.Source == b.Source && a.Step == b.Step && a.Detail == b.Detail && b.Done >= a.Done
}

// reader is a position in an installation's progress.
type reader struct {
	read int // steps that were seen
	last install.Progress
}

// next returns what was not read yet, and what is closed when there is more.
func (r *reader) next(f *flight) (news []install.Progress, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := r.read
	if from > 0 && f.steps[from-1] != r.last {
		from--
	}
	news = slices.Clone(f.steps[from:])
	if r.read = len(f.steps); r.read > 0 {
		r.last = f.steps[r.read-1]
	}
	return news, f.more
}
