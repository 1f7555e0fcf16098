package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure a Service.
type Options struct {
	Limits Limits       // the zero value is DefaultLimits
	Env    []string     // what programs inherit; nil is the gateway's own without what configures it
	Logger *slog.Logger // nil discards
}

// Service runs programs. Close ends them.
type Service struct {
	env     []string
	log     *slog.Logger
	closing chan struct{} // closed by Close

	work sync.WaitGroup // one for each program

	mu      sync.Mutex
	limits  Limits
	all     map[string]*Process
	ended   []*Process // those of all that have ended, oldest first; at most limits.Ended
	running int        // programs, also those of runs and hidden ones
	started uint64     // likewise
	closed  bool
}

// New returns a service that runs nothing yet.
func New(o Options) (*Service, error) {
	s := &Service{env: o.Env, log: o.Logger, limits: o.Limits, closing: make(chan struct{}), all: map[string]*Process{}}
	if s.limits == (Limits{}) {
		s.limits = DefaultLimits()
	}
	if err := s.limits.check(); err != nil {
		return nil, err
	}
	if s.env == nil {
		s.env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBOX_AGENT_") })
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Limits returns the limits.
func (s *Service) Limits() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// ChangeLimits has change make other limits of those that there are, which nobody else does meanwhile: it must not wait.
// What runs keeps the log that it has; what has ended is kept as long as the new ones say.
func (s *Service) ChangeLimits(change func(l *Limits) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limits
	if err := change(&l); err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	s.limits = l
	for _, p := range s.ended {
		p.expiry.Reset(s.keptLocked(p))
	}
	s.expireLocked()
	return nil
}

// Start starts a program in the background. ctx bounds only the start.
func (s *Service) Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := s.start(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	s.all[p.id] = p
	if p.isEnded() { // before it was listed
		s.keepLocked(p)
	}
	s.mu.Unlock()
	if closed { // while it started
		p.Stop(0)
		return nil, errClosing()
	}
	return p, nil
}

func errClosing() error { return errorf(Closing, "the gateway is shutting down") }

// start starts a program that is not listed. Its output goes to taken, if that
// is not nil, in place of its log.
func (s *Service) start(ctx context.Context, spec Spec, taken *capture) (*Process, error) {
	ready, err := spec.prepare(s.env)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	switch {
	case s.closed:
		err = errClosing()
	case s.running >= s.limits.Running:
		err = errorf(Busy, "%d processes run, which is the most that this server runs at one time: end one, or raise the limit running", s.running)
	default:
		s.running++
		s.work.Add(1)
	}
	limits := s.limits
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p := &Process{
		s: s, id: "p-" + strings.ToLower(rand.Text()[:16]), spec: spec, output: newLog(limits.LogBytes), taken: taken,
		stdin: make(chan struct{}, 1), done: make(chan struct{}), cols: spec.Cols, rows: spec.Rows,
	}
	if err := p.begin(ctx, ready); err != nil {
		s.gone(nil)
		s.work.Done()
		return nil, err
	}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	s.log.Debug("process started", "process", p.id, "pid", p.proc.PID())
	return p, nil
}

// gone gives a program's place to others and tells of its end, in one step: who
// sees the end may start another. p is nil when it did not start.
func (s *Service) gone(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if p == nil {
		return
	}
	close(p.done)
	if s.all[p.id] == p {
		s.keepLocked(p)
	}
}

// keepLocked keeps a listed process that has ended for a while.
func (s *Service) keepLocked(p *Process) {
	if s.closed || slices.Contains(s.ended, p) {
		return
	}
	s.ended = append(s.ended, p)
	p.expiry = time.AfterFunc(s.keptLocked(p), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forgetLocked(p)
	})
	s.expireLocked()
}

// keptLocked is how long a process that has ended is still kept.
func (s *Service) keptLocked(p *Process) time.Duration {
	return millis(s.limits.EndedMs) - time.Since(p.ended)
}

// expireLocked forgets the oldest that have ended: what agents run does not push out what clients have started.
func (s *Service) expireLocked() {
	kept := map[bool]int{} // by who they are of
	for _, p := range slices.Backward(slices.Clone(s.ended)) {
		if kept[p.spec.Hidden]++; kept[p.spec.Hidden] > s.limits.Ended {
			s.forgetLocked(p)
		}
	}
}

func (s *Service) forgetLocked(p *Process) {
	delete(s.all, p.id)
	s.ended = slices.DeleteFunc(s.ended, func(o *Process) bool { return o == p })
	if p.expiry != nil {
		p.expiry.Stop()
	}
}

// Process returns a process, also one that is in no list.
func (s *Service) Process(id string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[id]; p != nil {
		return p, nil
	}
	return nil, errorf(NotFound, "there is no process %q; it may have ended long ago", id)
}

// Census is how many processes there are, those of runs and of agents' tools
// included.
type Census struct {
	Running   int
	Terminals int // of those that run; of runs none
	Started   uint64
}

// Census counts.
func (s *Service) Census() Census {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Census{Running: s.running, Started: s.started}
	for _, p := range s.all {
		if p.spec.TTY && !p.isEnded() {
			c.Terminals++
		}
	}
	return c
}

// Processes returns the processes in the order in which they were started.
func (s *Service) Processes() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Process, 0, len(s.all))
	for _, p := range s.all {
		if !p.spec.Hidden {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *Process) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
	})
	return out
}

// Delete ends a process, if it runs, and forgets it. When it returns nothing of
// it is left.
func (s *Service) Delete(p *Process) {
	p.Stop(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(p)
}

// Close ends all programs, in bounded time, and waits until nothing of them is
// left. When ctx ends they are killed. Nothing can be started afterwards.
func (s *Service) Close(ctx context.Context) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	all := make([]*Process, 0, len(s.all))
	for _, p := range s.all {
		all = append(all, p)
		if p.expiry != nil {
			p.expiry.Stop()
		}
	}
	s.mu.Unlock()
	var stops sync.WaitGroup
	for _, p := range all {
		stops.Go(func() {
			defer context.AfterFunc(ctx, p.proc.Kill)()
			p.Stop(-1)
		})
	}
	stops.Wait()
	s.work.Wait() // runs end by themselves
}
