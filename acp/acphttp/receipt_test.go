package acphttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestKey_StandardPostIsPassedOnOnce(t *testing.T) {
	c, _, url := serve(t, Options{})
	res := request(t, "POST", url, initialize)
	if res.Header.Get("Accept-Idempotency-Key") != "?1" {
		t.Error("initialize does not say that keys are honoured")
	}
	for range 3 {
		if res := request(t, "POST", url, promptBody, HeaderConnection, c.id, HeaderSession, "s", HeaderKey, "k1"); res.StatusCode != http.StatusAccepted {
			t.Fatalf("status %d", res.StatusCode)
		}
	}
	other := strings.Replace(promptBody, `"id":1`, `"id":2`, 1)
	request(t, "POST", url, other, HeaderConnection, c.id, HeaderSession, "s", HeaderKey, "k2")
	for _, want := range []string{"1", "2"} {
		if m := receive(t, c.sent); string(m.ID()) != want {
			t.Errorf("the client was sent %s, want %s", m.ID(), want)
		}
	}
	if res := request(t, "POST", url, promptBody, HeaderConnection, c.id, HeaderSession, "s", HeaderKey, strings.Repeat("k", 256)); res.StatusCode != http.StatusBadRequest {
		t.Errorf("long key: status %d", res.StatusCode)
	}
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(wait):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

func TestKey_InlineAnswerIsGivenToEveryTry(t *testing.T) {
	c, h, url := serve(t, Options{})
	request(t, "POST", url, initialize)
	bodies := make(chan string, 3)
	try := func() {
		res := request(t, "POST", url, promptBody, HeaderInlineConnection, c.id, HeaderKey, "k")
		b, _ := io.ReadAll(res.Body)
		bodies <- string(b)
	}
	var tries sync.WaitGroup
	tries.Go(try)
	tries.Go(try)
	for waiting := 0; waiting < 2; { // both wait for the one request
		h.mu.Lock()
		rs := &h.conns[c.id].receipts
		h.mu.Unlock()
		rs.mu.Lock()
		if r := rs.m["k"]; r != nil {
			waiting = len(r.waiting)
		}
		rs.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	answer := acp.NewResult("1", []byte(`{"stopReason":"end_turn"}`))
	c.replies <- acp.Reply{Frame: answer.Frame()}
	tries.Wait()
	try()
	for range 3 {
		if b := <-bodies; b != string(answer.Frame()) {
			t.Errorf("got %s", b)
		}
	}
}

func TestKey_AnswersAreKeptWithinTheBound(t *testing.T) {
	var rs receipts
	big := acp.Reply{Frame: make([]byte, 3<<20)}
	var all []*receipt
	for _, key := range []string{"a", "b", "c"} {
		r, again := rs.begin(key)
		if again {
			t.Fatal(key)
		}
		rs.record(r, big)
		all = append(all, r)
	}
	if _, err := rs.answer(all[0]); err == nil || !strings.Contains(err.Error(), "no longer kept") {
		t.Errorf("the oldest answer: %v", err)
	}
	for _, r := range all[1:] {
		ch, err := rs.answer(r)
		if err != nil || len((<-ch).Frame) != len(big.Frame) {
			t.Errorf("%s: %v", r.key, err)
		}
	}
	if r, again := rs.begin("a"); !again || r != all[0] {
		t.Error("a dropped answer's key must still be known: its request must not be repeated")
	}
	for i := range maxReceipts {
		rs.begin(strings.Repeat("x", i+1))
	}
	if len(rs.m) != maxReceipts || len(rs.order) != maxReceipts || rs.bytes != 0 {
		t.Errorf("%d keys, %d in order, %d bytes", len(rs.m), len(rs.order), rs.bytes)
	}
}

func TestAfter_APostDoesNotOvertakeTheOneItFollows(t *testing.T) {
	c, h, url := serve(t, Options{})
	request(t, "POST", url, initialize)
	var late sync.WaitGroup
	late.Go(func() {
		cancel := `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
		request(t, "POST", url, cancel, HeaderConnection, c.id, HeaderSession, "s", HeaderKey, "k2", HeaderAfter, "k1")
	})
	for waiting := false; !waiting; { // its predecessor is late
		h.mu.Lock()
		rs := &h.conns[c.id].receipts
		h.mu.Unlock()
		rs.mu.Lock()
		waiting = rs.moved != nil
		rs.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	select {
	case m := <-c.sent:
		t.Fatalf("%s did not wait", m.Method())
	default:
	}
	request(t, "POST", url, promptBody, HeaderConnection, c.id, HeaderSession, "s", HeaderKey, "k1")
	late.Wait()
	for _, want := range []string{"session/prompt", "session/cancel"} {
		if m := receive(t, c.sent); m.Method() != want {
			t.Errorf("%s came, want %s", m.Method(), want)
		}
	}
}

// What is wrong holds nothing up that comes after it, and is looked at anew when it comes again. What
// is refused for a moment is waited for.
func TestAfter_RefusedPosts(t *testing.T) {
	for kind, waits := range map[problem.Kind]bool{problem.InvalidRequest: false, problem.Unavailable: true} {
		synctest.Test(t, func(t *testing.T) {
			rs := &receipts{}
			went := make(chan struct{})
			go func() {
				defer close(went)
				_ = rs.await(t.Context(), "k1", "k2")
			}()
			synctest.Wait()
			note, _ := rs.begin("k1")
			rs.end(note, problem.New(kind, "no"))
			synctest.Wait()
			select {
			case <-went:
				if waits {
					t.Errorf("%s: what comes after it did not wait", kind)
				}
			default:
				if !waits {
					t.Errorf("%s: what comes after it waits", kind)
				}
			}
			again, known := rs.begin("k1")
			if known {
				t.Errorf("%s: it is not carried out when it comes again", kind)
			}
			rs.end(again, nil)
			<-went
		})
	}
}

// posts is a handler with a connection, whose time passes at once.
type posts struct {
	h     *Handler
	c     *fakeClient
	taken []string // methods, in order
	begun time.Time
}

func newPosts() *posts {
	c := newFakeClient()
	p := &posts{h: New(fakeGateway{c}, Options{}), c: c, begun: time.Now()}
	p.post(context.Background(), strings.NewReader(initialize), "", "")
	return p
}

// post sends a POST with a key, behind another one, and returns the status.
func (p *posts) post(ctx context.Context, body io.Reader, key, after string) int {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
	for name, value := range map[string]string{"Content-Type": "application/json", HeaderConnection: p.c.id, HeaderSession: "s", HeaderKey: key, HeaderAfter: after} {
		if key != "" || name == "Content-Type" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Code
}

// notification is a message of the session, to be told by its method.
func notification(method string) io.Reader {
	return strings.NewReader(`{"jsonrpc":"2.0","method":"` + method + `","params":{"sessionId":"s"}}`)
}

// came has all that was taken up to now, and how many seconds after the beginning that is.
func (p *posts) came() ([]string, int) {
	synctest.Wait()
	for {
		select {
		case m := <-p.c.sent:
			p.taken = append(p.taken, m.Method())
		default:
			return p.taken, int(time.Since(p.begun).Seconds())
		}
	}
}

func TestAfter_WhatFollowsABodyThatIsComing(t *testing.T) {
	for name, breaks := range map[string]bool{"it comes": false, "it breaks off, and comes again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPosts()
				body, line := io.Pipe()
				var all sync.WaitGroup
				all.Go(func() { p.post(t.Context(), body, "k1", "") })
				synctest.Wait()
				for i, method := range []string{"session/cancel", "_later", "_last"} {
					all.Go(func() { p.post(t.Context(), notification(method), "k"+string(rune('2'+i)), "k"+string(rune('1'+i))) })
					synctest.Wait()
				}
				time.Sleep(8 * time.Second) // of the test's own clock
				if taken, _ := p.came(); len(taken) != 0 {
					t.Errorf("%s was taken before what it follows", taken)
				}
				if breaks {
					_ = line.CloseWithError(io.ErrUnexpectedEOF)
					time.Sleep(4 * time.Second) // as above
					p.post(t.Context(), strings.NewReader(promptBody), "k1", "")
				} else {
					_, _ = io.WriteString(line, promptBody)
					_ = line.Close()
				}
				all.Wait()
				if taken, _ := p.came(); !slices.Equal(taken, []string{"session/prompt", "session/cancel", "_later", "_last"}) {
					t.Errorf("taken: %s", taken)
				}
			})
		})
	}
}

// A client that leaves while its POST waits sends it again: if it were carried out, it would overtake.
func TestAfter_TheClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPosts()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan int)
		go func() { left <- p.post(ctx, notification("session/cancel"), "k2", "k1") }()
		synctest.Wait()
		leave()
		if status := <-left; status != http.StatusServiceUnavailable {
			t.Errorf("status %d", status)
		}
		p.post(t.Context(), strings.NewReader(promptBody), "k1", "")
		p.post(t.Context(), notification("session/cancel"), "k2", "k1")
		if taken, _ := p.came(); !slices.Equal(taken, []string{"session/prompt", "session/cancel"}) {
			t.Errorf("taken: %s", taken)
		}
	})
}

func TestAfter_WhatNeverArrives(t *testing.T) {
	for name, after := range map[string][]string{"no other": {"k9"}, "each other": {"k2", "k3", "k1"}, "itself": {"k1"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPosts()
				var all sync.WaitGroup
				for i, key := range after {
					all.Go(func() { p.post(t.Context(), notification("_one"), "k"+string(rune('1'+i)), key) })
				}
				all.Wait()
				if taken, seconds := p.came(); len(taken) != len(after) || seconds != int(afterBound.Seconds()) {
					t.Errorf("%d taken after %d s", len(taken), seconds)
				}
			})
		})
	}
}
