package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	t.Parallel()
	s := service(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Each is taken before the next one is written: of two that are there at one time nobody knows the order.
	taken := Spec{Command: "sh", Args: []string{"-c", "echo a; $0 " + whenTaken + " 1; sleep 0.4; echo b >&2; $0 " + whenTaken + " 2; sleep 0.4; echo c", self}, Dir: "/"}
	tests := []struct {
		name string
		spec Spec
		o    RunOptions
		want Result
	}{
		{"both outputs", shell("echo out; echo err >&2; exit 3"), RunOptions{}, Result{
			Code: 3, Stdout: Captured{Data: []byte("out\n"), Bytes: 4}, Stderr: Captured{Data: []byte("err\n"), Bytes: 4},
		}},
		{"in order", taken, RunOptions{Combined: true}, Result{
			Stdout: Captured{Data: []byte("a\nc\n"), Bytes: 4}, Stderr: Captured{Data: []byte("b\n"), Bytes: 2},
			Combined: Captured{Data: []byte("a\nb\nc\n"), Bytes: 6},
		}},
		{"signal", shell("kill -USR1 $$"), RunOptions{}, Result{Code: -1, Signal: "SIGUSR1"}},
		{"input", Spec{Command: "cat", Dir: "/"}, RunOptions{Stdin: []byte("x\x00\xff")}, Result{Stdout: Captured{Data: []byte("x\x00\xff"), Bytes: 3}}},
		{"input nobody reads", Spec{Command: "true", Dir: "/"}, RunOptions{Stdin: make([]byte, 1<<20)}, Result{}},
		{"cut", shell("printf 1234567890; printf abc >&2"), RunOptions{Bytes: 4}, Result{
			Stdout: Captured{Data: []byte("1234"), Bytes: 10, Truncated: true}, Stderr: Captured{Data: []byte("abc"), Bytes: 3},
		}},
		{"variables", Spec{Command: "sh", Args: []string{"-c", "echo $A$HOME"}, Dir: "/", Env: map[string]string{"A": "1", "HOME": ""}}, RunOptions{}, Result{
			Stdout: Captured{Data: []byte("1\n"), Bytes: 2},
		}},
		{"directory", Spec{Command: "pwd", Dir: "/usr"}, RunOptions{}, Result{Stdout: Captured{Data: []byte("/usr\n"), Bytes: 5}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Run(t.Context(), tt.spec, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if got.Duration <= 0 {
				t.Errorf("it took %v", got.Duration)
			}
			got.Duration = 0
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("result differs (-want +got):\n%s", diff)
			}
		})
	}
	if n := len(s.Processes()); n != 0 {
		t.Errorf("%d processes are listed", n)
	}
}

// What a run has said when its time is over is in its result.
func TestRun_TimeIsOver(t *testing.T) {
	t.Parallel()
	s := service(t)
	want := Result{Code: -1, Signal: "SIGKILL", TimedOut: true, Stdout: Captured{Data: []byte("begun\n"), Bytes: 6}}
	for lasts := time.Second; ; lasts *= 2 { // a machine with much else to do needs longer to begin
		got, err := s.Run(t.Context(), shell("echo begun; sleep 1000"), RunOptions{Timeout: lasts})
		if err != nil {
			t.Fatal(err)
		}
		if got.Duration <= 0 {
			t.Errorf("it took %v", got.Duration)
		}
		got.Duration = 0
		if diff := cmp.Diff(want, got); diff == "" {
			return
		} else if got.Stdout.Bytes > 0 || lasts > time.Minute {
			t.Fatalf("result differs (-want +got):\n%s", diff)
		}
	}
}

// All of a large output is there, though the program ends at once behind it.
func TestRun_NothingOfTheEndIsLost(t *testing.T) {
	s := service(t)
	for range 20 {
		r, err := s.Run(t.Context(), shell("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"), RunOptions{})
		if err != nil || r.Stdout.Bytes != 300000 || r.Stderr.Bytes != 200000 {
			t.Fatalf("%d, %d, %v", r.Stdout.Bytes, r.Stderr.Bytes, err)
		}
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := service(t)
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, shell("trap '' TERM; setsid sleep 1000 & echo $! $$ > "+file+".tmp; mv "+file+".tmp "+file+"; sleep 1000"), RunOptions{})
		done <- err
	}()
	var pids []byte
	for len(pids) == 0 {
		pids, _ = os.ReadFile(file)
		time.Sleep(5 * time.Millisecond) // a file tells nobody that it is there
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a run that was given up has a result")
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		gone(t, pid)
	}
}

// What a run leaves running does not outlive it, and does not hold it up.
func TestRun_DoesNotWaitForWhatItLeft(t *testing.T) {
	t.Parallel()
	s := service(t)
	begin := time.Now()
	r, err := s.Run(t.Context(), shell("setsid sleep 1000 & echo $!"), RunOptions{})
	if err != nil || time.Since(begin) > 10*time.Second {
		t.Fatalf("after %v: %v", time.Since(begin), err)
	}
	gone(t, string(r.Stdout.Data))
}

func TestRun_Refused(t *testing.T) {
	s := service(t, func(l *Limits) {
		l.MaxRunMs, l.RunMs, l.MaxRunBytes, l.RunBytes, l.InputBytes = 1000, 1000, 100, 100, 10
	})
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := script + "-x"
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		spec Spec
		o    RunOptions
		code Code
		text string
	}{
		{"nothing", Spec{Dir: "/"}, RunOptions{}, Invalid, "command is missing"},
		{"unknown", Spec{Command: "no-such-program", Dir: "/"}, RunOptions{}, NoProgram, "no-such-program"},
		{"a command line", Spec{Command: "ls -l", Dir: "/"}, RunOptions{}, NoProgram, "sh with the arguments -c"},
		{"unknown path", Spec{Command: "./x", Dir: "/usr"}, RunOptions{}, NoProgram, "/usr/x"},
		{"a directory", Spec{Command: "/usr", Dir: "/"}, RunOptions{}, Invalid, "is a directory"},
		{"not executable", Spec{Command: script, Dir: "/"}, RunOptions{}, Denied, "not executable"},
		{"no interpreter", Spec{Command: broken, Dir: "/"}, RunOptions{}, NoProgram, "interpreter"},
		{"no directory", Spec{Command: "true", Dir: "/no/such"}, RunOptions{}, NoProgram, "no such directory"},
		{"a file as directory", Spec{Command: "true", Dir: script}, RunOptions{}, NoProgram, "not a directory"},
		{"zero byte", Spec{Command: "true", Args: []string{"a\x00"}, Dir: "/"}, RunOptions{}, Invalid, "zero byte"},
		{"variable", Spec{Command: "true", Dir: "/", Env: map[string]string{"A=": "1"}}, RunOptions{}, Invalid, "env"},
		{"too many arguments", Spec{Command: "true", Dir: "/", Args: make([]string, 5000)}, RunOptions{}, Invalid, "at most 4096"},
		{"too long", Spec{Command: "true", Dir: "/", Args: []string{strings.Repeat("x", 2<<20)}}, RunOptions{}, Invalid, "write them to a file"},
		{"one argument too long", Spec{Command: "true", Dir: "/", Args: []string{strings.Repeat("x", 300<<10)}}, RunOptions{}, Invalid, "too long"},
		{"time", shell("true"), RunOptions{Timeout: time.Hour}, Invalid, "maxRunMs"},
		{"bytes", shell("true"), RunOptions{Bytes: 101}, Invalid, "maxRunBytes"},
		{"input", shell("true"), RunOptions{Stdin: bytes.Repeat([]byte("x"), 11)}, TooLarge, "at most 10"},
		{"terminal", Spec{Command: "true", Dir: "/", TTY: true}, RunOptions{}, Invalid, "no terminal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.Run(t.Context(), tt.spec, tt.o)
			wantCode(t, err, tt.code)
			if err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q, want %q in it", err, tt.text)
			}
		})
	}
}
