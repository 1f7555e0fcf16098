package agentcache

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
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
