package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// watched tells when so much of an answer was written, and when its deadline was taken off.
type watched struct {
	http.ResponseWriter
	left            *int
	written, lifted func()
}

func (w watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w watched) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if *w.left -= n; *w.left <= 0 {
		w.written()
	}
	return n, err
}

func (w watched) SetWriteDeadline(t time.Time) error {
	err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
	if t.IsZero() {
		w.lifted()
	}
	return err
}

// watchedBody tells when a body has come.
type watchedBody struct {
	io.ReadCloser
	come func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.come()
	}
	return n, err
}

// When others need the memory in the very moment in which an answer has left, or a body has come, all of the answer arrives, and the next
// request is served.
func TestDeadline_EndedAtTheEnd(t *testing.T) {
	list := func(gist int) runtime.SessionList {
		return runtime.SessionList{Sessions: []runtime.SessionInfo{{ID: "s1", Gist: strings.Repeat("x", gist)}}}
	}
	b, err := encoded(list(0))
	if err != nil {
		t.Fatal(err)
	}
	// The server has a small piece of it still when the handler returns.
	o, _ := withProcesses(t, Options{Sessions: &fake{sessions: func(runtime.SessionFilter) (runtime.SessionList, error) {
		return list(pieceBytes - len(b) + 1000), nil
	}}})
	for name, row := range map[string]struct {
		request string
		status  int
	}{
		"an answer, with its last piece": {"GET /v2/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n", http.StatusOK},
		"an answer, behind it":           {"GET /v2/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n", http.StatusOK},
		"a body": {"POST /v2/processes/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n" +
			`{"command":"` + strings.Repeat(" ", 200000-14) + `"}`, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 4 << 20
				o.Memory = memory.NewBound(most)
				first := true
				need := func() { // once, for as long as others take to look who stands still
					if !first {
						return
					}
					first = false
					go func() {
						others := o.Memory.Open(nil)
						defer others.Close()
						if err := others.Take(t.Context(), most*3/4); err != nil {
							t.Error(err)
						}
					}()
					time.Sleep(3 * time.Second) // of the test's own clock
				}
				s := newServer(t, o)
				l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := r.Context().Err(); err != nil {
						t.Errorf("it comes with %v", err)
					}
					if r.ContentLength > 0 {
						r.Body = watchedBody{r.Body, need}
						s.ServeHTTP(w, r)
						return
					}
					left, at := pieceBytes+1000, watched{ResponseWriter: w, written: func() {}, lifted: need}
					if strings.HasSuffix(name, "piece") {
						at.written, at.lifted = need, at.written
					}
					at.left = &left
					s.ServeHTTP(at, r)
					need()
				}))
				conn := l.Dial()
				defer func() { _ = conn.Close() }()
				send := func(conn net.Conn, request string) { _, _ = io.WriteString(conn, request) }
				go send(conn, row.request)
				r := bufio.NewReader(conn)
				for _, want := range []int{row.status, http.StatusNotFound} {
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
						t.Errorf("%s, %v", resp.Status, err)
					}
					_ = resp.Body.Close()
					if resp.Close {
						_ = conn.Close()
						conn = l.Dial()
						r.Reset(conn)
					}
					go send(conn, "GET /v2/sessions/none HTTP/1.1\r\nHost: localhost\r\n\r\n")
				}
				if first {
					t.Error("nobody has needed the memory")
				}
			})
		})
	}
}

// A stream lasts as long as its client takes something of it, however slowly. Of one that takes nothing the connection is cut.
func TestStream_SlowAndStill(t *testing.T) {
	for _, two := range []bool{false, true} {
		for name, slow := range map[string]bool{"slow": true, "still": false} {
			t.Run(fmt.Sprintf("%s, HTTP2=%v", name, two), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const number = 80 // more than a client takes in without reading
					text := []byte(`"` + strings.Repeat("x", 128<<10) + `"`)
					var began, ended time.Time
					s := newServer(t, Options{Sessions: &fake{follow: func(ctx context.Context, _ uint64) iter.Seq2[runtime.Event, error] {
						return func(yield func(runtime.Event, error) bool) {
							began = time.Now()
							for i := range uint64(number) {
								if ctx.Err() != nil || !yield(runtime.Event{Seq: i + 1, Time: when, Direction: runtime.FromAgent, Message: text}, nil) {
									return
								}
							}
						}
					}}})
					done := make(chan struct{})
					l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(done)
						s.ServeHTTP(w, r)
						ended = time.Now()
					}))
					transport := l.Transport(t, two)
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v2/sessions/s1/events", nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Accept", "text/event-stream")
					resp, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if !slow {
						<-done
						if took := ended.Sub(began); took != writeTimeout {
							t.Errorf("it was cut after %v", took)
						}
						return
					}
					var got bytes.Buffer
					for err == nil {
						time.Sleep(5 * time.Second) // of the test's own clock
						_, err = io.CopyN(&got, resp.Body, 64<<10)
					}
					<-done
					if n := strings.Count(got.String(), "\nid: "); err != io.EOF || ended.Sub(began) < 3*writeTimeout {
						t.Errorf("%d events came in %v: %v", n, ended.Sub(began), err)
					}
					if n := strings.Count(got.String(), "data: "); n != number {
						t.Errorf("%d events came", n)
					}
				})
			})
		}
	}
}

// Nobody is waited for without end, whoever writes the answer, and however small it is.
func TestAnswers_NobodyReads(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	o := Options{
		UI: fstest.MapFS{"index.html": {Data: []byte(big)}},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, big)
		}),
	}
	for _, path := range []string{"/v2/health", "/v2/nothing", "/v1/x", "/ui/", "/metrics"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := pipes.Serve(t, newServer(t, o)).Dial()
				defer conn.Close()
				if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_ = conn.SetDeadline(began.Add(10 * writeTimeout))
				cutOff(t, conn, began)
			})
		})
	}
}

// A patch that waits for memory is not made before there is some: it shows what the files have by then.
func TestDiff_WaitsForMemory(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	inGit(t, dir, "init", "-q")
	put(t, dir+"/f", "one\n")
	inGit(t, dir, "add", "-A")
	put(t, dir+"/f", strings.Repeat("two\n", 100<<10))
	for name, row := range map[string]struct {
		later  string
		status int
	}{
		"smaller": {strings.Repeat("six\n", 90<<10), http.StatusOK},
		"larger":  {strings.Repeat("three\n", 300<<10), http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 2 << 20
				o.Memory = memory.NewBound(most)
				others := o.Memory.Open(nil)
				others.Count(most)
				before := o.Memory.Used() - most
				transport := pipes.Serve(t, newServer(t, o)).Transport(t, false)
				put(t, dir+"/f", strings.Repeat("two\n", 100<<10))
				answered := make(chan string)
				go func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v2/fs/git/diff?path=.", nil)
					if err != nil {
						t.Error(err)
					}
					resp, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						close(answered)
						return
					}
					b, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != row.status {
						t.Errorf("%s, %v", resp.Status, err)
					}
					answered <- string(b)
				}()
				synctest.Wait() // it waits for memory
				put(t, dir+"/f", row.later)
				others.Close()
				if got := <-answered; row.status == http.StatusOK && (strings.Contains(got, "+two") || !strings.Contains(got, "+six")) {
					t.Errorf("it is %.300q", got)
				}
				synctest.Wait()
				if left := o.Memory.Used(); left != before {
					t.Errorf("%d bytes are taken behind it", left-before)
				}
			})
		})
	}
}

// An answer that waits for memory takes none meanwhile: it is made when there is some.
func TestAnswer_WaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2 << 20
		o := Options{Memory: memory.NewBound(most)}
		s := newServer(t, o)
		others := o.Memory.Open(nil)
		others.Count(most)
		var with []int64 // what was taken whenever the answer was made
		answer := marshaled(func() string {
			with = append(with, o.Memory.Used())
			return strings.Repeat("x", 1<<20)
		})
		rec := httptest.NewRecorder()
		written := make(chan error)
		go func() {
			c := s.echo.NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), rec)
			written <- s.writeJSON(c, answer)
		}()
		synctest.Wait() // it waits for memory
		others.Close()
		if err := <-written; err != nil || rec.Body.Len() < 1<<20 {
			t.Errorf("%d bytes are written, %v", rec.Body.Len(), err)
		}
		if len(with) != 2 || with[1] < 1<<20 {
			t.Errorf("it was made with %d bytes taken", with)
		}
	})
}

// marshaled is a value whose text a function makes.
type marshaled func() string

// MarshalJSON implements json.Marshaler.
func (m marshaled) MarshalJSON() ([]byte, error) { return json.Marshal(m()) }
