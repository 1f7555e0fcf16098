package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func terminal(line ...string) Spec {
	return Spec{Command: line[0], Args: line[1:], Dir: "/", TTY: true, Env: map[string]string{"PS1": "$ ", "ENV": ""}}
}

func TestTerminal_Shell(t *testing.T) {
	s := service(t)
	p := start(t, s, terminal("sh"))
	await(t, p, "$ ")
	send(t, p, "stty size; tty >/dev/null && echo has $((40+2)) $TERM\n")
	if got := await(t, p, "has 42 xterm-256color"); !strings.Contains(got, "24 80") {
		t.Errorf("size in %q", got)
	}
	if err := p.Resize(132, 43); err != nil {
		t.Fatal(err)
	}
	send(t, p, "stty size\n")
	await(t, p, "43 132")
	if i := p.Info(); i.Cols != 132 || i.Rows != 43 || !i.TTY {
		t.Errorf("%+v", i)
	}
	// Ctrl-C ends what is in the foreground and leaves the shell.
	send(t, p, "sh -c 'echo sleeping $((1+1)); exec sleep 1000'\n")
	await(t, p, "sleeping 2")
	send(t, p, "\x03")
	await(t, p, "^C")
	send(t, p, "echo code $?\n")
	await(t, p, "code 130")
	send(t, p, "sh -c 'echo again $((1+1)); exec sleep 1000'\n")
	await(t, p, "again 2")
	if err := p.Interrupt("TERM"); err != nil {
		t.Fatal(err)
	}
	send(t, p, "echo code $((100+$?))\n")
	await(t, p, "code 243")
	wantCode(t, p.Resize(0, 5), Invalid)
	wantCode(t, p.Interrupt("NOPE"), Invalid)
	// Ctrl-D ends the shell, and is none of the bytes that were given.
	if n, err := p.Write(t.Context(), []byte("stty size\n"), true); err != nil || n != 10 {
		t.Errorf("%d of 10 bytes are written: %v", n, err)
	}
	if i := ended(t, p); i.State != Exited {
		t.Errorf("%+v", i)
	}
	wantCode(t, p.Resize(80, 24), Ended)
	wantCode(t, p.Interrupt("INT"), Ended)
	q := start(t, s, shell("sleep 1000"))
	wantCode(t, q.Resize(80, 24), NoTerminal)
	_, err := q.View()
	wantCode(t, err, NoTerminal)
}

// What a viewer did not get another one is to answer, unless that one has been shown it, too.
func TestShow(t *testing.T) {
	const begin, has, lost = "begin", "has", "lost"
	type step struct {
		viewer, what string
		to           uint64 // of begin
		shown        uint64 // behind it
	}
	for name, steps := range map[string][]step{
		"one gets it":                       {{"a", begin, 20, 20}, {"a", has, 0, 20}},
		"one does not":                      {{"a", begin, 10, 10}, {"a", has, 0, 10}, {"a", begin, 20, 20}, {"a", lost, 0, 10}},
		"another one does":                  {{"a", begin, 20, 20}, {"b", begin, 20, 20}, {"a", lost, 0, 20}, {"b", has, 0, 20}},
		"another one did":                   {{"a", begin, 20, 20}, {"b", begin, 20, 20}, {"b", has, 0, 20}, {"a", lost, 0, 20}},
		"another one has more":              {{"a", begin, 20, 20}, {"b", begin, 30, 30}, {"a", lost, 0, 30}, {"b", has, 0, 30}},
		"another one has less":              {{"a", begin, 20, 20}, {"b", begin, 10, 20}, {"b", has, 0, 20}, {"a", lost, 0, 10}},
		"neither gets the same":             {{"a", begin, 20, 20}, {"b", begin, 20, 20}, {"a", lost, 0, 20}, {"b", lost, 0, 0}},
		"neither gets the same, turned":     {{"a", begin, 20, 20}, {"b", begin, 20, 20}, {"b", lost, 0, 20}, {"a", lost, 0, 0}},
		"neither gets it":                   {{"a", begin, 10, 10}, {"b", begin, 20, 20}, {"b", lost, 0, 10}, {"a", lost, 0, 0}},
		"neither gets it, the nearer first": {{"a", begin, 10, 10}, {"b", begin, 20, 20}, {"a", lost, 0, 20}, {"b", lost, 0, 0}},
		"one is far behind":                 {{"a", begin, 20, 20}, {"a", has, 0, 20}, {"b", begin, 5, 20}, {"b", lost, 0, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			var p Process
			ends := map[string]func(){}
			for i, s := range steps {
				if s.what == begin {
					ends[s.viewer+has], ends[s.viewer+lost] = p.Show(s.to)
				} else {
					ends[s.viewer+s.what]()
				}
				if got := p.Shown(); got != s.shown {
					t.Errorf("behind step %d, shown up to %d, want %d", i, got, s.shown)
				}
			}
		})
	}
}

// A program for screens draws, hears of a new size, and is left.
func TestTerminal_FullScreen(t *testing.T) {
	var line []string
	for _, l := range [][]string{{"vim", "-u", "NONE", "-N"}, {"vi"}, {"less", "/etc/passwd"}, {"top"}} {
		if _, err := exec.LookPath(l[0]); err == nil {
			line = l
			break
		}
	}
	if line == nil {
		t.Skip("there is no vim, vi, less or top")
	}
	t.Log(line[0])
	s := service(t)
	p := start(t, s, terminal(line...))
	await(t, p, "\x1b[")
	_, before := p.output.bounds()
	if err := p.Resize(40, 10); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, now := p.output.bounds(); return now > before }) // it draws again
	for range 100 {
		_, _ = p.Write(t.Context(), []byte("\x1b:q!\rq"), false) // until it has ended
		select {
		case <-p.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		break
	}
	ended(t, p)
}

// A slow reader neither holds up the program nor a fast one, and knows how much
// it missed.
func TestTerminal_SlowAndFastReaders(t *testing.T) {
	t.Parallel()
	const total = 10_000_000
	s := service(t, func(l *Limits) { l.LogBytes = 1 << 20 })
	p := start(t, s, terminal("sh", "-c", "stty -opost; head -c 10000000 /dev/zero | tr '\\0' x"))
	var readers sync.WaitGroup
	slow := make(chan struct{})
	count := func(name string, wait func()) {
		readers.Go(func() {
			var got, missed uint64
			for after := uint64(0); ; {
				part := p.Output(after, 256<<10)
				for _, c := range part.Chunks {
					got += uint64(len(c.Data))
				}
				missed += part.Missed
				if after = part.Next; part.Ended {
					break
				}
				<-part.More
				wait()
			}
			t.Logf("%s: got %d, missed %d", name, got, missed)
			if got+missed != total {
				t.Errorf("%s: %d and %d are not %d", name, got, missed, total)
			}
			if name == "slow" && missed == 0 {
				t.Error("the slow reader missed nothing")
			}
		})
	}
	count("fast", func() {})
	count("slow", func() { <-slow })
	begin := time.Now()
	select {
	case <-p.Done(): // while the slow reader stands still
		t.Logf("%v", time.Since(begin))
	case <-time.After(5 * time.Minute): // for ever: it takes a second where nothing else runs
		t.Error("the program waits for a reader")
	}
	close(slow)
	readers.Wait()
}

// All that a program writes on its terminal is there, though it ends at once behind it.
func TestTerminal_NothingOfTheEndIsLost(t *testing.T) {
	s := service(t)
	for range 20 {
		p := start(t, s, terminal("sh", "-c", "seq 3000; echo the last line"))
		if out := await(t, p, ""); !strings.HasSuffix(out, "3000\r\nthe last line\r\n") {
			t.Fatalf("the output ends with %q", out[max(0, len(out)-100):])
		}
	}
}

// A program that has let go of its terminal, and opens it again, is heard on.
func TestTerminal_LetGoOf(t *testing.T) {
	p := start(t, service(t), terminal("sh", "-c", "exec <&- >&- 2>&-; sleep 0.2; exec </dev/tty >/dev/tty 2>&1; echo back; read line; echo $line"))
	await(t, p, "back")
	send(t, p, "word\n")
	if got := await(t, p, ""); !strings.HasSuffix(got, "word\r\n") {
		t.Errorf("%q", got)
	}
	if _, err := p.tty.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the gateway still holds the program's end of the terminal: %v", err)
	}
}
