package lasting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
)

func note(n int) acp.Message {
	return acp.NewNotification("x/note", fmt.Appendf(nil, `{"n":%d}`, n))
}

// writeItself is write for one who waits without a bound: if nothing else is on its way the message is sent by who
// writes it.
func writeItself(t *testing.T, c *Conn, m acp.Message) {
	t.Helper()
	if err := c.Write(context.Background(), m); err != nil {
		t.Error(err)
	}
}

func frame(m acp.Message) string { return string(m.Frame()) }

// begin opens the first connection.
func begin(t *testing.T, c *Conn, first *wire) {
	t.Helper()
	write(t, c, hello)
	first.welcome(t)
	if m, err := c.Read(t.Context()); err != nil || m.Err() != nil {
		t.Fatalf("%s, %v", m.Frame(), err)
	}
}

// permutations calls f with every order of the steps.
func permutations(steps []string, f func([]string)) {
	for i := range steps {
		rest := append(append([]string(nil), steps[:i]...), steps[i+1:]...)
		if len(rest) == 0 {
			f(steps[i : i+1])
		}
		permutations(rest, func(p []string) { f(append([]string{steps[i]}, p...)) })
	}
}

// A Write is under way while the connection breaks. Whatever comes first of
// what a break consists of, the message that the connection did not take is in
// front of what was written later, and all of it arrives once.
func TestConn_AWriteMeetsABreakInEveryOrder(t *testing.T) {
	do := acp.NewRequest(acp.IntID(2), "session/list", []byte(`{}`))
	for name, first := range map[string]acp.Message{"notification": note(0), "request": do, "sent by who writes it": note(0)} {
		permutations([]string{"reading ends", "writing fails", "close returns", "another write"}, func(order []string) {
			t.Run(name+": "+strings.Join(order, ", "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					one, two := newWire(), newWire()
					one.mayClose = make(chan struct{})
					c := New(Options{Dial: dials(one, two)})
					begin(t, c, one)
					one.stuck = true
					var arrived []string
					go func() {
						two.welcome(t)
						for {
							select {
							case m := <-two.toGateway:
								arrived = append(arrived, frame(m))
							case <-two.closing:
								return
							}
						}
					}()
					if name == "sent by who writes it" {
						go writeItself(t, c, first)
					} else {
						go write(t, c, first)
					}
					synctest.Wait()
					for _, step := range order {
						switch step {
						case "reading ends":
							one.breakRead()
						case "writing fails":
							one.breakWrite()
						case "close returns":
							close(one.mayClose)
						case "another write":
							go write(t, c, note(1))
						}
						time.Sleep(time.Minute) // whatever can happen now happens
					}
					_ = c.Close()
					synctest.Wait()
					if diff := cmp.Diff([]string{frame(first), frame(note(1))}, arrived); diff != "" {
						t.Errorf("what arrived differs (-want +got):\n%s", diff)
					}
				})
			})
		})
	}
}

// Close returns whatever the Conn is doing, and who writes or reads is told.
func TestConn_CloseInEveryState(t *testing.T) {
	states := map[string]func(t *testing.T, c *Conn, one, two *wire){
		"new":                  func(*testing.T, *Conn, *wire, *wire) {},
		"before the answer":    func(t *testing.T, c *Conn, one, _ *wire) { write(t, c, hello); <-one.toGateway },
		"hello cannot be sent": func(t *testing.T, c *Conn, _, _ *wire) { write(t, c, hello) },
		"up":                   func(t *testing.T, c *Conn, one, _ *wire) { begin(t, c, one) },
		"a write is under way": func(t *testing.T, c *Conn, one, _ *wire) {
			begin(t, c, one)
			go write(t, c, note(0))
		},
		"the next one does not answer": func(t *testing.T, c *Conn, one, two *wire) {
			begin(t, c, one)
			one.breakRead()
			<-two.toGateway
		},
		"the next one cannot be had": func(t *testing.T, c *Conn, one, two *wire) {
			begin(t, c, one)
			one.breakRead()
			<-two.toGateway
			two.breakRead()
		},
		"sessions are restored": func(t *testing.T, c *Conn, one, two *wire) {
			begin(t, c, one)
			go write(t, c, acp.NewRequest(acp.IntID(2), "session/load", []byte(`{"sessionId":"s"}`)))
			one.takes(t, "session/load")
			one.breakRead()
			two.welcome(t)
		},
		"the client does not read": func(t *testing.T, c *Conn, one, _ *wire) {
			begin(t, c, one)
			for range maxUnread + 1 {
				one.toClient <- note(0)
			}
		},
	}
	for name, reach := range states {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := newWire(), newWire()
				c := New(Options{Dial: dials(one, two)})
				reach(t, c, one, two)
				synctest.Wait()
				_ = c.Close()
				for {
					if _, err := c.Read(t.Context()); err != nil {
						break
					}
				}
				if err := c.Write(t.Context(), note(1)); err == nil {
					t.Error("a closed Conn takes messages")
				}
			})
		})
	}
}

// What waits for a connection is bounded. A Write beyond that waits until there
// is room, its ctx ends or the Conn is closed.
func TestConn_WriteWaitsForRoom(t *testing.T) {
	for _, end := range []string{"room", "ctx", "close"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := newWire(), newWire()
				c := New(Options{Dial: dials(one, two)})
				begin(t, c, one)
				one.breakRead()
				one.breakWrite()
				for i := range maxWaiting {
					write(t, c, note(i))
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := make(chan error, 1)
				go func() { result <- c.Write(ctx, note(maxWaiting)) }()
				synctest.Wait()
				select {
				case err := <-result:
					t.Fatalf("there was room for %d messages: %v", maxWaiting+1, err)
				default:
				}
				switch end {
				case "room":
					two.welcome(t)
					for i := range maxWaiting + 1 {
						if m := <-two.toGateway; frame(m) != frame(note(i)) {
							t.Fatalf("%s came as number %d", m.Frame(), i)
						}
					}
				case "ctx":
					cancel()
				case "close":
					go func() { _ = c.Close() }()
				}
				if err := <-result; (err == nil) != (end == "room") {
					t.Error(err)
				}
				_ = c.Close()
			})
		})
	}
}

// A message that has found room is sent, also when the ctx of its Write ends.
func TestConn_AWriteWhoseContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newWire()
		c := New(Options{Dial: dials(one)})
		begin(t, c, one)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- c.Write(ctx, note(0)) }()
		synctest.Wait()
		select {
		case <-result:
			t.Fatal("Write returned before the connection had the message")
		default:
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if m := <-one.toGateway; frame(m) != frame(note(0)) {
			t.Errorf("%s", m.Frame())
		}
		_ = c.Close()
	})
}

// Many messages that are no initialize do not fill the Conn.
func TestConn_TheFirstMessageIsNoInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newWire()
		c := New(Options{Dial: dials(one)})
		const n = maxUnread + 2
		written := make(chan struct{})
		go func() {
			defer close(written)
			for i := range n {
				write(t, c, acp.NewRequest(acp.IntID(int64(i)), "session/list", []byte(`{}`)))
				write(t, c, note(i))
			}
		}()
		synctest.Wait() // they are more than the Conn keeps for the client
		for i := range n {
			m, err := c.Read(t.Context())
			if err != nil || m.ID() != acp.IntID(int64(i)) || m.Err() == nil || m.Err().Code != acp.CodeInvalidRequest {
				t.Fatalf("%s, %v", m.Frame(), err)
			}
		}
		<-written
		begin(t, c, one)
		_ = c.Close()
	})
}

// Connections break after any message, in either direction first, while the
// client writes. Notifications arrive once and in order, a request is answered
// once, and one that must not run twice arrives once at most.
func TestConn_RandomBreaks(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomBreaks(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func randomBreaks(t *testing.T, rnd *rand.Rand) {
	const messages = 40
	pause := func() { time.Sleep(time.Duration(rnd.IntN(3)) * 150 * time.Millisecond) }
	wires := make([]*wire, 6)
	left := make([]int, len(wires)) // messages until it breaks
	slow := make([]time.Duration, len(wires))
	for i := range wires {
		wires[i], left[i], slow[i] = newWire(), 1+rnd.IntN(messages/4), time.Duration(rnd.IntN(3)-1)*300*time.Millisecond
	}
	left[len(wires)-1] = 1 << 20
	var notes, want []string
	did := map[acp.ID]int{}
	gateway := func(w *wire, left int) {
		for {
			var m acp.Message
			select {
			case m = <-w.toGateway:
			case <-w.closing:
				return
			}
			switch {
			case m.Method() == "initialize":
			case m.IsRequest():
				did[m.ID()]++
				left--
			default:
				notes = append(notes, frame(m))
				left--
			}
			if left == 0 {
				return
			}
			if m.IsRequest() {
				select {
				case w.toClient <- acp.NewResult(m.ID(), []byte(`{}`)):
				case <-w.closing:
				}
			}
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		for i, w := range wires {
			gateway(w, left[i])
			first, second := w.breakRead, w.breakWrite
			if slow[i] < 0 {
				first, second = second, first
			}
			first()
			time.Sleep(slow[i].Abs())
			second()
		}
	})
	c := New(Options{Dial: dials(wires...)})
	write(t, c, hello)
	once := map[acp.ID]bool{}
	asked := map[acp.ID]bool{hello.ID(): true}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range messages {
			id := acp.IntID(int64(100 + i))
			switch rnd.IntN(3) {
			case 0:
				asked[id] = true
				write(t, c, acp.NewRequest(id, "session/list", []byte(`{}`)))
			case 1:
				asked[id], once[id] = true, true
				write(t, c, acp.NewRequest(id, "x/do", []byte(`{}`)))
			default:
				want = append(want, frame(note(i)))
				if rnd.IntN(2) == 0 {
					writeItself(t, c, note(i))
				} else {
					write(t, c, note(i))
				}
			}
			pause()
		}
	}()
	answered := map[acp.ID]int{}
	work.Go(func() {
		for {
			m, err := c.Read(context.Background())
			if err != nil {
				return
			}
			answered[m.ID()]++
		}
	})
	<-written
	time.Sleep(time.Hour)
	_ = c.Close()
	for _, w := range wires {
		_ = w.Close()
	}
	work.Wait()
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notifications differ (-want +got):\n%s", diff)
	}
	for id := range asked {
		if answered[id] != 1 {
			t.Errorf("request %s was answered %d times", id, answered[id])
		}
		if once[id] && did[id] > 1 {
			t.Errorf("request %s was carried out %d times", id, did[id])
		}
	}
}

// A connection that takes nothing any more is replaced, also when its reader
// notices nothing; who waited for it goes on, and what was written is sent next.
func TestConn_OnlyWritingBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		c := New(Options{Dial: dials(one, two)})
		begin(t, c, one)
		one.stuck = true
		const n = 3
		returned := make(chan int, n+2)
		for i := range n {
			go func() {
				write(t, c, note(i))
				returned <- i
			}()
			synctest.Wait()
		}
		if len(returned) > 0 {
			t.Error("a Write returned before its message was taken")
		}
		one.breakWrite()
		synctest.Wait()
		if len(returned) != n {
			t.Errorf("%d of %d went on when the connection broke", len(returned), n)
		}
		two.welcome(t)
		for i := range n {
			if m := <-two.toGateway; frame(m) != frame(note(i)) {
				t.Errorf("%s came as number %d", m.Frame(), i)
			}
		}
		// As on the first connection, Write returns when its message was taken.
		for i, write := range []func(*testing.T, *Conn, acp.Message){write, writeItself} {
			synctest.Wait()
			go func() {
				write(t, c, note(n+i))
				returned <- n + i
			}()
			synctest.Wait()
			if len(returned) != n+i {
				t.Error("a Write returned before its message was taken")
			}
			<-two.toGateway
			synctest.Wait()
			if len(returned) != n+i+1 {
				t.Error("a Write did not return")
			}
		}
		_ = c.Close()
	})
}

// While somebody sends what he writes himself, others wait in line behind that, of either kind.
func TestConn_WritesBehindOneThatSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newWire()
		c := New(Options{Dial: dials(one)})
		begin(t, c, one)
		returned := make(chan int, 4)
		for i, write := range []func(*testing.T, *Conn, acp.Message){writeItself, write, writeItself, writeItself} {
			go func() {
				write(t, c, note(i))
				returned <- i
			}()
			synctest.Wait()
		}
		for i := range 4 {
			if len(returned) != i {
				t.Errorf("%d returned before message %d was taken", len(returned), i)
			}
			if m := <-one.toGateway; frame(m) != frame(note(i)) {
				t.Errorf("%s came as number %d", m.Frame(), i)
			}
			synctest.Wait()
		}
		if len(returned) != 4 {
			t.Errorf("%d of 4 returned", len(returned))
		}
		_ = c.Close()
	})
}

// All who wait for room get it, one after another.
func TestConn_ManyWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		c := New(Options{Dial: dials(one, two)})
		begin(t, c, one)
		one.breakRead()
		one.breakWrite()
		for i := range maxWaiting {
			write(t, c, note(i))
		}
		const more = 5
		for range more {
			go write(t, c, note(maxWaiting))
		}
		two.welcome(t)
		for i := range maxWaiting + more {
			if m := <-two.toGateway; frame(m) != frame(note(min(i, maxWaiting))) {
				t.Fatalf("%s came as number %d", m.Frame(), i)
			}
		}
		_ = c.Close()
	})
}

// A connection on which initialize is refused, or not answered, is closed.
func TestConn_AConnectionThatCannotBeUsedIsClosed(t *testing.T) {
	for _, how := range []string{"refused", "silent"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := newWire(), newWire()
				c := New(Options{Dial: dials(one, two), GiveUp: time.Minute})
				begin(t, c, one)
				one.breakRead()
				m := two.takes(t, "initialize")
				if how == "refused" {
					two.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeAuthRequired, "log in first"))
				}
				began := time.Now()
				if _, err := c.Read(t.Context()); err == nil {
					t.Error("it is not given up")
				}
				for name, w := range map[string]*wire{"the first": one, "the second": two} {
					select {
					case <-w.closing:
					default:
						t.Errorf("%s is open", name)
					}
				}
				if how == "refused" && time.Since(began) > 0 {
					t.Errorf("it was tried again for %v", time.Since(began))
				}
				_ = c.Close()
			})
		})
	}
}
