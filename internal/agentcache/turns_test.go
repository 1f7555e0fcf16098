package agentcache

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueue_SeatsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{free: 3}
		var mu sync.Mutex
		var order []int
		leaves := map[int]func(){}
		come := func(n, weight int) {
			go func() {
				leave, err := q.enter(t.Context(), weight)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order, leaves[n] = append(order, n), leave
			}()
			synctest.Wait()
		}
		come(1, 2)
		come(2, 2) // has to wait
		come(3, 1) // there is a seat, and it is not its turn
		if len(order) != 1 {
			t.Fatalf("seated: %d", order)
		}
		leaves[1]()
		synctest.Wait()
		if len(order) != 3 || q.free != 0 {
			t.Fatalf("seated: %d, free %d", order, q.free)
		}
		leaves[2]()
		leaves[3]()
		if q.free != 3 {
			t.Errorf("free: %d", q.free)
		}
	})
}

func TestQueue_WhoGivesUpHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{free: 2}
		first, err := q.enter(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := q.enter(ctx, 2)
			gaveUp <- err
		}()
		synctest.Wait()
		seated := make(chan func(), 1)
		go func() {
			leave, _ := q.enter(t.Context(), 1)
			seated <- leave
		}()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		(<-seated)()
		first()
		if q.free != 2 {
			t.Errorf("free: %d", q.free)
		}
	})
}

func TestServe_SharesOneQueue(t *testing.T) {
	// A folder with a short name: a socket's path has 100 bytes.
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("SANDBOX_AGENT_TEST_CACHE", dir)
	if _, err := ask(t.Context(), 1); err == nil {
		t.Fatal("a turn was given where nobody serves")
	}
	ctx, end := context.WithCancel(t.Context())
	for _, want := range []bool{true, false} {
		if first, err := Serve(ctx); err != nil || first != want {
			t.Fatalf("it serves: %t, %v", first, err)
		}
	}
	leave, err := ask(t.Context(), seats())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := ask(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn beside one that has all seats: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		leave, err := ask(t.Context(), 1)
		if err == nil {
			leave()
		}
		second <- err
	}()
	leave()
	if err := <-second; err != nil {
		t.Error(err)
	}
	end()
	for { // the listener is closed soon
		path, _ := address()
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	if _, err := ask(t.Context(), 1); err == nil {
		t.Error("a turn was given after the end")
	}
}

// cacheAt makes dir the cache, and with it the place of the queue.
func cacheAt(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("SANDBOX_AGENT_TEST_CACHE", dir)
}

// shortDir is a folder whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "turns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestServe_CacheWithALongName(t *testing.T) {
	cacheAt(t, filepath.Join(shortDir(t), strings.Repeat("long/", 40)))
	if first, err := Serve(t.Context()); err != nil || !first {
		t.Fatalf("it serves: %t, %v", first, err)
	}
	leave, err := ask(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestServe_AfterARunThatWasKilled(t *testing.T) {
	cacheAt(t, shortDir(t))
	path, err := address()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if first, err := Serve(t.Context()); err != nil || !first {
		t.Fatalf("it serves: %t, %v", first, err)
	}
	leave, err := ask(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// Of runs that begin at once over what a killed one left, one serves.
func TestServe_OneOfManyAtOnce(t *testing.T) {
	dir := shortDir(t)
	cacheAt(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "turns.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var serving atomic.Int32
	var runs sync.WaitGroup
	for range 20 {
		runs.Go(func() {
			first, err := Serve(t.Context())
			if err != nil {
				t.Error(err)
			}
			if first {
				serving.Add(1)
			}
		})
	}
	runs.Wait()
	if n := serving.Load(); n != 1 {
		t.Errorf("%d serve", n)
	}
}

func TestServe_AnotherRunTakesOver(t *testing.T) {
	cacheAt(t, shortDir(t))
	one, end := context.WithCancel(t.Context())
	q, err := keep(one)
	if err != nil || q == nil {
		t.Fatalf("it does not serve: %v", err)
	}
	if first, err := Serve(t.Context()); err != nil || first {
		t.Fatalf("both serve: %v", err)
	}
	leave, err := ask(t.Context(), seats()) // what nobody holds is closed by the garbage collector, and the seats are free
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	// It waits in the queue of the run that ends, and is given seats in the next one's.
	got := make(chan error, 1)
	next := func() {}
	go func() {
		var err error
		next, err = seat(t.Context(), seats())
		got <- err
	}()
	waits := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == 1
	}
	for tick := time.Tick(time.Millisecond); !waits(); { // a queue tells nobody of who comes into it
		<-tick
	}
	end()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	defer next()
	if free := own().free; free != seats() {
		t.Errorf("it sits in its program's own queue, which has %d free seats of %d", free, seats())
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := seat(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn beside one that has all seats: %v", err)
	}
}

// Two tests that each hold seats and wait for more would wait for each other.
func TestTurn_ATestHasOne(t *testing.T) {
	cacheAt(t, shortDir(t))
	if _, err := Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("first", func(t *testing.T) {
		for range 2 * seats() {
			Turn(t, "pi")
		}
		t.Run("part", func(t *testing.T) {
			for range seats() {
				Turn(t, "claude")
			}
		})
	})
	leave, err := ask(t.Context(), seats())
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestServe_KilledProgramGivesItsSeatsBack(t *testing.T) {
	if os.Getenv("TEST_HOLDS_ALL_SEATS") != "" {
		if _, err := ask(context.Background(), seats()); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("seated\n")
		select {}
	}
	cacheAt(t, shortDir(t))
	if _, err := Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServe_KilledProgramGivesItsSeatsBack$")
	cmd.Env = append(os.Environ(), "TEST_HOLDS_ALL_SEATS=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "seated\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	leave, err := seat(t.Context(), seats())
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// Each package would have a cache of its own, and a queue.
func TestDir_IsTheSameForAllPackages(t *testing.T) {
	t.Chdir(t.TempDir())
	cacheAt(t, "cache")
	if dir, err := Dir(); err == nil {
		t.Errorf("it is %s", dir)
	}
}
