package process

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestStart_OutputAndInput(t *testing.T) {
	s := service(t)
	p := start(t, s, shell("echo ready; echo no >&2; cat; echo done"))
	await(t, p, "ready")
	i := p.Info()
	if i.State != Running || i.PID == 0 || !i.StdinOpen || i.ExitCode != nil || i.Cwd != "/" || i.TTY {
		t.Errorf("%+v", i)
	}
	send(t, p, "hello\n")
	await(t, p, "hello")
	if n, err := p.Write(t.Context(), []byte("last\n"), true); err != nil || n != 5 {
		t.Errorf("%d, %v", n, err)
	}
	if i = ended(t, p); i.State != Exited || i.ExitCode == nil || *i.ExitCode != 0 || i.EndedAt == nil || i.StdinOpen {
		t.Errorf("%+v", i)
	}
	got := map[Stream]string{}
	for _, c := range p.Output(0, 1<<20).Chunks {
		got[c.Stream] += string(c.Data)
	}
	if got[Stdout] != "ready\nhello\nlast\ndone\n" || got[Stderr] != "no\n" {
		t.Errorf("output %q", got)
	}
	_, err := p.Write(t.Context(), []byte("x"), false)
	wantCode(t, err, Ended)
	wantCode(t, p.Signal("TERM"), Ended)
	if found, err := s.Process(p.ID()); err != nil || found != p {
		t.Error(err)
	}
	s.Delete(p)
	_, err = s.Process(p.ID())
	wantCode(t, err, NotFound)
}

// Who finds that a process has ended finds the end of its output, and who finds that finds the
// process ended.
func TestOutput_EndsWithTheProcess(t *testing.T) {
	s := service(t)
	for range 20 {
		p := start(t, s, shell("exec true"))
		for p.Info().State == Running {
		}
		if !p.Output(0, 1<<20).Ended {
			t.Error("a process has ended, and its output has not")
		}
		p = start(t, s, shell("exec true"))
		for !p.Output(0, 1<<20).Ended {
		}
		if i := p.Info(); i.State != Exited || s.Census().Running != 0 {
			t.Errorf("the output of a process has ended, and it has not: %+v", i)
		}
	}
}

func TestWrite_InputThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := service(t)
	p := start(t, s, shell("sleep 1000"))
	var n int64
	var err error
	for wait := 100 * time.Millisecond; n == 0 && wait < time.Minute; wait *= 2 { // until something was written in time
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		n, err = p.Write(ctx, make([]byte, 1<<20), false)
		cancel()
	}
	if err == nil || n == 0 || n == 1<<20 {
		t.Errorf("%d, %v", n, err)
	}
	// Another gets its turn, and the end of the process ends it.
	res := make(chan error, 1)
	go func() {
		_, err := p.Write(context.Background(), make([]byte, 1<<20), false)
		res <- err
	}()
	p.Stop(0)
	wantCode(t, <-res, Ended)
	q := start(t, s, shell("exec 0<&-; echo closed; sleep 1000"))
	await(t, q, "closed")
	_, err = q.Write(t.Context(), []byte("x"), false)
	wantCode(t, err, Ended)
}

func TestSignal(t *testing.T) {
	s := service(t)
	p := start(t, s, shell("trap 'echo usr1' USR1; trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.05; done"))
	await(t, p, "ready")
	wantCode(t, p.Signal("SIGNONSENSE"), Invalid)
	for _, sig := range []string{"usr1", "SIGINT"} {
		if err := p.Signal(sig); err != nil {
			t.Error(err)
		}
		await(t, p, strings.ToLower(strings.TrimPrefix(sig, "SIG")))
	}
	if i := ended(t, p); i.ExitCode == nil || *i.ExitCode != 7 {
		t.Errorf("%+v", i)
	}
	q := start(t, s, shell("sleep 1000"))
	if err := q.Signal("KILL"); err != nil {
		t.Error(err)
	}
	if i := ended(t, q); i.Signal != "SIGKILL" || i.ExitCode != nil {
		t.Errorf("%+v", i)
	}
}

func TestStop_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := service(t)
	const stubborn = "trap '' TERM HUP INT; (trap '' TERM HUP; setsid sleep 1000) & setsid sleep 1000 & echo pid $! ; echo ready; while :; do sleep 1; done"
	for name, spec := range map[string]Spec{
		"willing":   shell("trap 'exit 0' TERM; echo pid 1; echo ready; while :; do sleep 0.05; done"),
		"stubborn":  shell(stubborn),
		"stopped":   shell("echo pid 1; echo ready; kill -STOP $$; sleep 1000"),
		"on a tty":  {Command: "sh", Args: []string{"-c", stubborn}, Dir: "/", TTY: true},
		"tty shell": {Command: "sh", Args: []string{"-ic", "echo pid 1; echo ready; sh -i"}, Dir: "/", TTY: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			if name == "willing" { // it is given all the time that it needs
				s = service(t, func(l *Limits) { l.StopMs = maxLimits.StopMs })
			}
			p := start(t, s, spec)
			out := await(t, p, "ready")
			_, pid, _ := strings.Cut(out, "pid ")
			pid, _, _ = strings.Cut(pid, "\n")
			begin := time.Now()
			s.Delete(p)
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
			if pid = strings.TrimSpace(pid); pid != "1" {
				gone(t, pid)
			}
			gone(t, fmt.Sprint(p.Info().PID))
			if i := p.Info(); name == "willing" && (i.ExitCode == nil || *i.ExitCode != 0) {
				t.Errorf("%+v", i)
			}
		})
	}
}

// Who ends a process with less patience than another is not made to wait for that one.
func TestStop_WhileAnotherIsPatient(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *Service, p *Process){
		"less patience": func(_ *Service, p *Process) { p.Stop(50 * time.Millisecond) },
		"deleted":       func(s *Service, p *Process) { s.Delete(p) },
		"closed":        func(s *Service, _ *Process) { s.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t)
			p := start(t, s, shell("trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done"))
			await(t, p, "ready")
			var patient sync.WaitGroup
			patient.Go(func() { p.Stop(time.Minute) })
			await(t, p, "asked")
			begin := time.Now()
			end(s, p)
			patient.Wait()
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
			if out := await(t, p, ""); strings.Count(out, "asked") != 1 {
				t.Errorf("it was asked more than once: %q", out)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := service(t, func(l *Limits) { l.Running, l.Ended = 2, 2 })
	first := start(t, s, shell("sleep 1000"))
	second := start(t, s, shell("sleep 1000"))
	_, err := s.Start(t.Context(), shell("true"))
	wantCode(t, err, Busy)
	_, err = s.Run(t.Context(), shell("true"), RunOptions{})
	wantCode(t, err, Busy)
	s.Delete(second)
	var last *Process
	for range 4 {
		last = start(t, s, shell("true"))
		ended(t, last)
	}
	if all := s.Processes(); len(all) != 3 || all[0] != first || all[2] != last {
		t.Errorf("%d are listed", len(all))
	}
	// What agents run pushes out nothing but what agents ran.
	hidden := shell("true")
	hidden.Hidden = true
	var agents []*Process
	for range 4 {
		p := start(t, s, hidden)
		ended(t, p)
		agents = append(agents, p)
	}
	for p, want := range map[*Process]bool{last: true, agents[0]: false, agents[1]: false, agents[2]: true, agents[3]: true} {
		if _, err := s.Process(p.ID()); (err == nil) != want {
			t.Errorf("%s: %v", p.ID(), err)
		}
	}
	if all := s.Processes(); len(all) != 3 || all[2] != last {
		t.Errorf("behind the commands of agents %d are listed", len(all))
	}
	l := s.Limits()
	l.Running, l.EndedMs = 3, 50
	if err := s.ChangeLimits(func(now *Limits) error { *now = l; return nil }); err != nil {
		t.Fatal(err)
	}
	brief := start(t, s, shell("true"))
	ended(t, brief)
	for _, p := range []*Process{brief, last, agents[3]} { // the others had ended before
		waitFor(t, func() bool { _, err := s.Process(p.ID()); return err != nil })
	}
	for _, bad := range []func(*Limits){
		func(l *Limits) { l.Running = 0 },
		func(l *Limits) { l.LogBytes = 1 << 60 },
		func(l *Limits) { l.RunMs = l.MaxRunMs + 1 },
	} {
		l := DefaultLimits()
		bad(&l)
		wantCode(t, s.ChangeLimits(func(now *Limits) error { *now = l; return nil }), Invalid)
	}
	if s.Limits().Running != 3 {
		t.Error("refused limits are in force")
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond) // nobody is told of it
	}
	t.Error("it never came true")
}

func TestClose_WhileProcessesStart(t *testing.T) {
	t.Parallel()
	s := service(t)
	var starters sync.WaitGroup
	for range 8 {
		starters.Go(func() {
			for {
				if _, err := s.Start(context.Background(), shell("trap '' TERM; sleep 1000")); err != nil {
					if e, ok := err.(*Error); ok && e.Code == Closing {
						return
					}
				}
				if _, err := s.Run(context.Background(), shell("sleep 0.01"), RunOptions{}); err != nil {
					if e, ok := err.(*Error); ok && e.Code == Closing {
						return
					}
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // any moment of it
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	s.Close(ctx)
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	starters.Wait()
	if s.running != 0 {
		t.Errorf("%d processes run", s.running)
	}
}

func TestLog(t *testing.T) { synctest.Test(t, testLog) }

func testLog(t *testing.T) {
	l := newLog(1000)
	text := func(p Part) string {
		var b bytes.Buffer
		for _, c := range p.Chunks {
			fmt.Fprintf(&b, "[%d %s %s]", c.Position, c.Stream, c.Data)
		}
		return b.String()
	}
	l.write(Stdout, []byte("one\ntw"))
	l.write(Stdout, []byte("o\n"))
	l.write(Stderr, []byte("three\n"))
	p := l.read(0, 1<<20)
	if got := text(p); got != "[0 stdout one\ntwo\n][8 stderr three\n]" || p.Missed != 0 || p.Next != 14 || p.Ended {
		t.Errorf("%s, %+v", got, p)
	}
	if got := text(l.read(5, 1<<20)); got != "[5 stdout wo\n][8 stderr three\n]" {
		t.Error(got)
	}
	if p := l.read(0, 1); text(p) != "[0 stdout one\ntwo\n]" || p.Next != 8 {
		t.Errorf("%+v", p)
	}
	if p := l.read(99, 1); len(p.Chunks) != 0 || p.Next != 14 {
		t.Errorf("%+v", p)
	}
	for _, tt := range []struct {
		lines int
		of    []Stream
		want  uint64
	}{{0, nil, 14}, {1, nil, 8}, {2, nil, 4}, {3, nil, 0}, {9, nil, 0}, {1, []Stream{Stdout}, 4}, {1, []Stream{Stderr}, 0}} {
		if got := l.tail(tt.lines, tt.of); got != tt.want && tt.of == nil || tt.of != nil && got > tt.want {
			t.Errorf("tail %d of %v is %d, want %d", tt.lines, tt.of, got, tt.want)
		}
	}
	select {
	case <-l.read(14, 1).More:
		t.Error("there is no more")
	default:
	}
	more := l.read(14, 1).More
	l.write(Stdout, bytes.Repeat([]byte("x"), 5000))
	<-more
	if p = l.read(0, 1<<20); p.Missed+uint64(len(p.Chunks[0].Data)) != 14+5000 || p.Chunks[0].Position != p.Missed {
		t.Errorf("missed %d", p.Missed)
	}
	l.end()
	if p = l.read(p.Next, 1); !p.Ended || p.More != nil {
		t.Errorf("%+v", p)
	}
}

// Many small pieces far apart in time are bounded too.
func TestLog_SmallPieces(t *testing.T) {
	l := newLog(10_000)
	for i := range 100_000 {
		l.write([]Stream{Stdout, Stderr}[i%2], []byte("x"))
	}
	if len(l.chunks) > 10_000/chunkCost {
		t.Errorf("%d chunks", len(l.chunks))
	}
	if first, next := l.bounds(); next != 100_000 || first < 99_800 {
		t.Errorf("%d to %d", first, next)
	}
}

// Readers see the same bytes as were written, whatever is read meanwhile.
func TestLog_ConcurrentReaders(t *testing.T) {
	l := newLog(1 << 20)
	const total = 8 << 20
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for after := uint64(0); ; {
				p := l.read(after, 64<<10)
				for _, c := range p.Chunks {
					for i, b := range c.Data {
						if b != byte((c.Position+uint64(i))%251) {
							t.Errorf("wrong byte at %d", c.Position+uint64(i))
							return
						}
					}
				}
				if after = p.Next; p.Ended {
					if after != total {
						t.Errorf("it ended at %d", after)
					}
					return
				}
				<-p.More
			}
		})
	}
	for n := 0; n < total; {
		b := make([]byte, 1+n%5000)
		for i := range b {
			b[i] = byte((n + i) % 251)
		}
		b = b[:min(len(b), total-n)]
		l.write(PTY, b)
		n += len(b)
	}
	l.end()
	readers.Wait()
}
