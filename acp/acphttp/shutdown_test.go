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

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
)

// The end waits for a moment only for a client that takes nothing, or sends nothing of what it began. One that takes what it is sent gets
// all of it, as long as there is time.
func TestShutdown_ClientsThatStandStill(t *testing.T) {
	const size = 16 << 20 // more than is on its way at one time
	const bound = time.Minute / 2
	large := acp.NewNotification("session/update", []byte(`["`+strings.Repeat("x", size)+`"]`))
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	do := func(t *testing.T, l pipes.Listener, two bool, method, body, id string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodGet {
			r.Header.Set("Accept", "text/event-stream")
		}
		if id != "" {
			r.Header.Set(HeaderInlineConnection, id)
		}
		resp, err := l.Transport(t, two).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	stream := func(two bool) func(*testing.T, pipes.Listener, *fakeClient) io.Reader {
		return func(t *testing.T, l pipes.Listener, c *fakeClient) io.Reader {
			_, _ = io.Copy(io.Discard, do(t, l, two, http.MethodPost, initialize, "").Body)
			events := do(t, l, two, http.MethodGet, "", c.ID()).Body
			c.Deliver(large)
			return events
		}
	}
	body := func(two bool) func(*testing.T, pipes.Listener, *fakeClient) io.Reader {
		return func(t *testing.T, l pipes.Listener, _ *fakeClient) io.Reader {
			unsent, line := io.Pipe()
			answered := make(chan struct{})
			t.Cleanup(func() { _ = line.Close(); <-answered })
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", unsent)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = 1000
			go func() {
				defer close(answered)
				resp, err := l.Transport(t, two).RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("it is answered %s %s, %v", resp.Status, b, err)
				}
			}()
			return nil
		}
	}
	for name, begin := range map[string]func(*testing.T, pipes.Listener, *fakeClient) io.Reader{
		"stream":        stream(false),
		"stream HTTP/2": stream(true),
		"answer": func(t *testing.T, l pipes.Listener, c *fakeClient) io.Reader {
			_, _ = io.Copy(io.Discard, do(t, l, false, http.MethodPost, initialize, "").Body)
			c.replies <- acp.Reply{Frame: large.Frame()}
			return do(t, l, false, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}`, c.ID()).Body
		},
		"body":        body(false),
		"body HTTP/2": body(true),
		"header of a stream": func(t *testing.T, l pipes.Listener, c *fakeClient) io.Reader {
			_, _ = io.Copy(io.Discard, do(t, l, false, http.MethodPost, initialize, "").Body)
			conn := l.Dial()
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n"+HeaderInlineConnection+": "+c.ID()+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"held answer": func(t *testing.T, l pipes.Listener, c *fakeClient) io.Reader {
			_, _ = io.Copy(io.Discard, do(t, l, false, http.MethodPost, initialize, "").Body)
			do(t, l, false, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}`, c.ID())
			time.Sleep(30 * time.Second) // of the test's own clock: a blank is being sent
			c.Close()
			return nil
		},
		"WebSocket": func(t *testing.T, l pipes.Listener, c *fakeClient) io.Reader {
			ws, _, err := websocket.Dial(t.Context(), "http://localhost/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: l.Transport(t, false)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ws.CloseNow() })
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(initialize)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ws.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			ws.SetReadLimit(-1)
			c.Deliver(large)
			_, message, err := ws.Reader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return message
		},
	} {
		for taking, row := range map[string]struct {
			pause       time.Duration // between two pieces, 0 is forever
			least, most time.Duration
			all         bool
		}{
			"nothing":         {0, farewell, 2 * farewell, false},
			"slowly":          {lastWord * pieceBytes * 4 / 5 / size, lastWord / 2, lastWord, true},
			"not fast enough": {farewell * 9 / 10, lastWord, lastWord, false},
		} {
			if row.pause > 0 && slices.Contains([]string{"body", "body HTTP/2", "header of a stream", "held answer"}, name) {
				continue // there is nothing to take
			}
			t.Run(name+", taking "+taking, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newFakeClient()
					h := New(fakeGateway{c}, Options{})
					from := begin(t, pipes.Serve(t, h), c)
					synctest.Wait() // it is being sent
					taken := make(chan int)
					go func() {
						n := 0
						for row.pause > 0 {
							time.Sleep(row.pause) // of the test's own clock
							some, err := io.CopyN(io.Discard, from, pieceBytes)
							if n += int(some); err != nil {
								break
							}
						}
						taken <- n
					}()
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), bound)
					defer cancel()
					err := h.Shutdown(ctx)
					if took := time.Since(began); took < row.least || took > row.most || err != nil && took < bound {
						t.Errorf("it ended with %v after %v", err, took)
					}
					synctest.Wait() // what is answered has come
					select {
					case <-h.open.empty():
					default:
						t.Error("something is open behind the end")
					}
					if got := <-taken; (got >= size) != row.all {
						t.Errorf("it took %d of %d bytes", got, size)
					}
				})
			})
		}
	}
}

// What waits for another POST is refused when the end begins: the other one is not served any more.
func TestShutdown_WhatFollowsAnother(t *testing.T) {
	for name, key := range map[string]string{"with a key": "k2", "without one": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPosts()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", notification("session/cancel"))
				for name, value := range map[string]string{"Content-Type": "application/json", HeaderConnection: p.c.id, HeaderSession: "s", HeaderKey: key, HeaderAfter: "k1"} {
					r.Header.Set(name, value)
				}
				w := httptest.NewRecorder()
				var all sync.WaitGroup
				all.Go(func() { p.h.ServeHTTP(w, r) })
				synctest.Wait()
				if err := p.h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				all.Wait()
				if taken, after := p.came(); w.Code != http.StatusServiceUnavailable || len(taken) > 0 || after > 0 {
					t.Errorf("it is answered %d after %d s, and %s is taken", w.Code, after, taken)
				}
			})
		})
	}
}

// A WebSocket that has not said initialize is told of the end.
func TestShutdown_BeforeInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(fakeGateway{newFakeClient()}, Options{})
		ws, _, err := websocket.Dial(t.Context(), "http://localhost/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: pipes.Serve(t, h).Transport(t, false)}})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan error)
		go func() {
			_, _, err := ws.Read(t.Context())
			heard <- err
		}()
		synctest.Wait()
		ended := make(chan error)
		go func() { ended <- h.Shutdown(t.Context()) }()
		if err := <-heard; websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("it was told %v", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
