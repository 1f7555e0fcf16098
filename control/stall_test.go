package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// slowTravel takes a long time for what it does, as long as somebody waits for it.
type slowTravel struct {
	Travel
	dir  string
	took time.Duration
	left []string // what it leaves out
}

func (s slowTravel) TravelFolder() (string, func(), error) { return s.dir, func() {}, nil }

func (s slowTravel) KeptOf(string, string) ([]byte, bool, error) { return nil, false, nil }

func (s slowTravel) ImportSession(ctx context.Context, _ runtime.Manifest, _ string, _ runtime.ImportOptions) (runtime.Imported, error) {
	return runtime.Imported{LeftOut: s.left}, s.pause(ctx)
}

func (s slowTravel) ExportSession(ctx context.Context, id string, d *runtime.Departure) error {
	if err := d.Begin(runtime.Manifest{Version: runtime.ManifestVersion, SessionID: id, Agent: "mock", Cwd: "/w", ExportedAt: when}); err != nil {
		return err
	}
	for i := range 3 {
		if err := d.Put(fmt.Sprintf("agent/%d", i), &noise{left: 1 << 20}); err != nil {
			return err
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s slowTravel) pause(ctx context.Context) error {
	select {
	case <-time.After(s.took):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("take the session: %w", ctx.Err())
	}
}

// noise is bytes that do not become smaller.
type noise struct {
	left  int
	state uint64
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), n.left)]
	for i := range p {
		n.state = n.state*6364136223846793005 + 1442695040888963407
		p[i] = byte(n.state >> 56)
	}
	n.left -= len(p)
	return len(p), nil
}

func sessionFile(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := parcel.NewWriter(&file, runtime.Manifest{Version: runtime.ManifestVersion, SessionID: "new", Agent: "mock", Cwd: "/w", ExportedAt: when})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// What the gateway itself takes long for is not held against a client that has sent all, and reads all.
func TestTransfers_GatewayIsSlow(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2=%v", two), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, Options{Travel: slowTravel{dir: dir, took: 3 * stall}})
				l := pipes.Serve(t, s)
				c := &http.Client{Transport: l.Transport(t, two)}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v2/sessions/import", bytes.NewReader(sessionFile(t)))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusCreated {
					t.Errorf("import: %s %s, %v", resp.Status, b, err)
				}
				if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v2/sessions/s1/export", nil); err != nil {
					t.Fatal(err)
				}
				if resp, err = c.Do(r); err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || n < 3<<20 {
					t.Errorf("export: %s, %d bytes, %v", resp.Status, n, err)
				}
			})
		})
	}
}

// An upload that the gateway takes slowly, as to a slow disk, is not one that stalls.
func TestIncoming_TakenSlowly(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2=%v", two), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 4 << 20 // more than is on its way at one time
				read := make(chan error, 1)
				l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					in := newIncoming(fileRequest{Context: newServer(t, Options{}).echo.NewContext(r, w)})
					defer in.done()
					for {
						if _, err := io.ReadFull(in, make([]byte, 1<<20)); err != nil {
							read <- err
							return
						}
						time.Sleep(3 * stall)
					}
				}))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/", &noise{left: size})
				if err != nil {
					t.Fatal(err)
				}
				resp, err := l.Transport(t, two).RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if err := <-read; err != io.EOF {
					t.Errorf("the body ended with %v", err)
				}
			})
		})
	}
}

// Who sends nothing of a body for a while is told so, and not waited for any more.
func TestBody_Stalls(t *testing.T) {
	o, _ := withProcesses(t, Options{Installer: &fakeInstaller{}})
	cat, err := o.Processes.Start(t.Context(), process.Spec{Command: "cat", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{
		"PUT /v2/fs/file?path=f", "POST /v2/fs/upload-batch?path=d", "POST /v2/sessions/import", "POST /v2/sessions/s1/export",
		"POST /v2/agents/mock/install", "POST /v2/processes", "PUT /v2/processes/config", "POST /v2/processes/" + cat.ID() + "/stdin",
	} {
		t.Run(request, func(t *testing.T) {
			o.Travel = slowTravel{dir: t.TempDir()}
			synctest.Test(t, func(t *testing.T) {
				p := pipes.Serve(t, newServer(t, o))
				conn := p.Dial()
				defer conn.Close()
				if _, err := io.WriteString(conn, request+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_ = conn.SetReadDeadline(began.Add(10 * stall))
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("no answer came: %v", err)
				}
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "nothing was received") || time.Since(began) != stall {
					t.Errorf("%s %s after %v", resp.Status, b, time.Since(began))
				}
			})
		})
	}
}

// Who reads nothing of an answer keeps nobody else waiting for a search, and is cut off.
func TestSearches_AnswersThatNobodyReads(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	put(t, dir+"/f", "one\n")
	inGit(t, dir, "init", "-q")
	inGit(t, dir, "add", "-A")
	put(t, dir+"/f", strings.Repeat("two\n", pieceBytes))
	o.Travel = slowTravel{dir: t.TempDir(), left: []string{strings.Repeat("x", 100<<10)}}
	file := sessionFile(t)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	for name, request := range map[string]string{
		"diff":   get("/v2/fs/git/diff?path=."),
		"search": get("/v2/fs/search?content=two&path=."),
		"import": fmt.Sprintf("POST /v2/sessions/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(file), file),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes.Serve(t, newServer(t, o))
				ask := func(request string) net.Conn {
					conn := p.Dial()
					t.Cleanup(func() { _ = conn.Close() })
					_ = conn.SetDeadline(time.Now().Add(10 * writeTimeout))
					if _, err := io.WriteString(conn, request); err != nil {
						t.Fatal(err)
					}
					return conn
				}
				var conns [maxSearches]net.Conn
				for i := range conns {
					conns[i] = ask(request)
				}
				synctest.Wait() // their answers are being written
				began := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(ask(get("/v2/fs/git/status?path=."))), nil)
				if err != nil {
					t.Fatalf("the next one got no answer: %v", err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || time.Since(began) != 0 {
					t.Errorf("the next one: %s after %v", resp.Status, time.Since(began))
				}
				for _, conn := range conns {
					cutOff(t, conn, began)
				}
			})
		})
	}
}

// cutOff checks that the server drops a client that takes nothing, in time. It takes a byte of a next request meanwhile, and no second one until it
// is done with the one before.
func cutOff(t *testing.T, conn io.Writer, began time.Time) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET"); !errors.Is(err, io.ErrClosedPipe) || time.Since(began) != writeTimeout {
		t.Errorf("cut off with %v after %v", err, time.Since(began))
	}
}

// Answers that nobody reads take of the memory of all, and those who wait for it have no place that others need.
func TestSearches_AnswersTakeMemory(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	inGit(t, dir, "init", "-q")
	put(t, dir+"/f", "one\n")
	inGit(t, dir, "add", "-A")
	put(t, dir+"/f", strings.Repeat("two\n", pieceBytes))
	for i := range 600 {
		put(t, fmt.Sprintf("%s/%0200d", dir, i), "")
	}
	ask := func(t *testing.T, l pipes.Listener, path string) net.Conn {
		conn := l.Dial()
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, path := range map[string]string{"diff": "/v2/fs/git/diff?path=.", "search": "/v2/fs/search?name=0&limit=1000&path=.", "status": "/v2/fs/git/status?path=."} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Memory = memory.NewBound(1 << 19)
				l := pipes.Serve(t, newServer(t, o))
				var conns [maxSearches]net.Conn
				for i := range conns {
					conns[i] = ask(t, l, path)
				}
				time.Sleep(writeTimeout / 2) // of the test's own clock
				cut := 0
				for _, conn := range conns {
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						cut++
						continue
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode == http.StatusTooManyRequests {
						cut++
					}
					_ = resp.Body.Close()
				}
				if cut == 0 {
					t.Error("all are held")
				}
			})
			synctest.Test(t, func(t *testing.T) {
				o.Memory = memory.NewBound(1 << 19)
				others := o.Memory.Open(nil)
				defer others.Close()
				others.Count(2 << 20)
				l := pipes.Serve(t, newServer(t, o))
				for range maxSearches {
					ask(t, l, path)
				}
				synctest.Wait() // all that may do wait for memory
				began := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(ask(t, l, "/v2/fs/search?name=nothing&path=.")), nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || time.Since(began) != 0 {
					t.Errorf("another one: %s after %v", resp.Status, time.Since(began))
				}
			})
		})
	}
}

// checksums are those of many files, as the other side of an export says that it has them.
func checksums() string {
	var sums strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&sums, "%064x  %d\x00", i, i)
	}
	return sums.String()
}

// What the other side has is read of no more clients than there are places.
func TestExport_WhatTheOtherSideHas(t *testing.T) {
	dir := t.TempDir()
	sums := checksums()
	post := func(t *testing.T, conn net.Conn, body string) {
		t.Helper()
		if _, err := fmt.Fprintf(conn, "POST /v2/sessions/s1/export HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(sums), body); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(t *testing.T, conn net.Conn) string {
		t.Helper()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.Status + " " + string(b[:min(len(b), 300)])
	}
	synctest.Test(t, func(t *testing.T) {
		l := pipes.Serve(t, newServer(t, Options{Travel: slowTravel{dir: dir}, Transfers: 1}))
		slow, other := l.Dial(), l.Dial()
		defer slow.Close()
		defer other.Close()
		post(t, slow, sums[:100])
		synctest.Wait() // its place is taken
		post(t, other, "")
		_ = other.SetReadDeadline(time.Now().Add(stall / 2))
		if got := answer(t, other); !strings.HasPrefix(got, "429 ") {
			t.Errorf("the second one: %s", got)
		}
		if _, err := io.WriteString(slow, sums[100:]); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, slow); !strings.HasPrefix(got, "200 ") {
			t.Errorf("the first one: %s", got)
		}
	})
}

// A body that is held in memory takes that of what all clients have together, as it comes.
func TestBody_WithoutRoom(t *testing.T) {
	o, _ := withProcesses(t, Options{Travel: slowTravel{dir: t.TempDir()}})
	cat, err := o.Processes.Start(t.Context(), process.Spec{Command: "cat", Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	sums := checksums()
	text := `{"command":"` + strings.Repeat("x", 2<<20)
	for path, body := range map[string]string{
		"sessions/s1/export":               sums,
		"processes":                        text,
		"processes/run":                    text,
		"processes/" + cat.ID() + "/stdin": text,
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 64 << 20
				o.Memory = memory.NewBound(most)
				others := o.Memory.Open(nil)
				defer others.Close()
				others.Count(most*3/4 - 1<<20)
				before := o.Memory.Used()
				conn := pipes.Serve(t, newServer(t, o)).Dial()
				defer conn.Close()
				go func() { // all but the last byte
					_, _ = fmt.Fprintf(conn, "POST /v2/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body)+1, body)
				}()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), "--max-memory") {
					t.Errorf("it got %s %s", resp.Status, b)
				}
				synctest.Wait()
				if left := o.Memory.Used(); left != before {
					t.Errorf("%d bytes are taken behind it, and %d were before", left, before)
				}
			})
		})
	}
}

// Who does not send on gives back what memory its body takes, and is told so, when others need it.
func TestBody_OthersNeedTheMemory(t *testing.T) {
	o, _ := withProcesses(t, Options{Travel: slowTravel{dir: t.TempDir()}})
	sums := checksums()
	for name, row := range map[string]struct {
		path, begin, more string // more comes each second
		holds             bool
	}{
		"checksums, none came":    {"sessions/s1/export", "", "", false},
		"checksums, many came":    {"sessions/s1/export", sums, "", true},
		"checksums, slowly":       {"sessions/s1/export", sums[:100], sums[100:1000], true},
		"a process, many came":    {"processes", `{"command":"` + strings.Repeat("x", 2<<20), "", true},
		"a process, comes slowly": {"processes", `{"command":"` + strings.Repeat("x", 2<<20), "xxx", true},
	} {
		for _, two := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP2=%v", name, two), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const most = 16 << 20
					o.Memory = memory.NewBound(most)
					body, line := io.Pipe()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v2/"+row.path, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					answered := make(chan *http.Response)
					transport := pipes.Serve(t, newServer(t, o)).Transport(t, two)
					go func() {
						resp, err := transport.RoundTrip(r)
						if err != nil {
							t.Error(err)
						}
						answered <- resp
					}()
					go func() {
						_, err := io.WriteString(line, row.begin)
						for err == nil && row.more != "" {
							time.Sleep(time.Second) // of the test's own clock
							_, err = io.WriteString(line, row.more)
						}
					}()
					synctest.Wait()
					other := o.Memory.Open(nil)
					defer other.Close()
					began := time.Now()
					if err := other.Take(t.Context(), most*3/4); err != nil || time.Since(began) > 3*time.Second {
						t.Errorf("another has room after %v, %v", time.Since(began), err)
					}
					if !row.holds {
						_ = line.Close()
					}
					resp := <-answered
					defer line.Close()
					if resp == nil {
						return
					}
					b, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), "--max-memory") {
						t.Errorf("it got %s %s, %v", resp.Status, b, err)
					}
					_ = resp.Body.Close()
					_ = line.Close()
					time.Sleep(2 * stall) // as above: nothing happens behind it
				})
			})
		}
	}
}

// written is how much wrote returns the output of.
const written = 500_000

// wrote returns a program that has written more than a viewer takes at one time, and has ended.
func wrote(t *testing.T, all *process.Service) *process.Process {
	t.Helper()
	program, err := all.Start(t.Context(), process.Spec{Command: "sh", Args: []string{"-c", fmt.Sprintf("stty -opost; head -c %d /dev/zero | tr '\\0' x", written)}, Dir: "/", TTY: true})
	if err != nil {
		t.Fatal(err)
	}
	<-program.Done()
	return program
}

// viewing opens a program's terminal, and reads nothing.
func viewing(t *testing.T, s *Server, program *process.Process) *websocket.Conn {
	t.Helper()
	l := pipes.Serve(t, s)
	ws, _, err := websocket.Dial(t.Context(), "http://localhost/v2/processes/"+program.ID()+"/terminal", &websocket.DialOptions{HTTPClient: &http.Client{Transport: l.Transport(t, false)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// A viewer of a terminal that takes nothing for most of a minute misses nothing, whoever asks meanwhile whether the other is there.
func TestTerminal_TakesNothingForAWhile(t *testing.T) {
	o, _ := withProcesses(t, Options{})
	program := wrote(t, o.Processes)
	synctest.Test(t, func(t *testing.T) {
		ws := viewing(t, newServer(t, o), program)
		pinged := make(chan error, 1)
		go func() { pinged <- ws.Ping(t.Context()) }()
		time.Sleep(writeTimeout * 3 / 4)
		got, ended := 0, false
		for !ended {
			b, f := next(t, ws)
			got += len(b)
			ended = f.Type == frameExit
		}
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure || got != written {
			t.Errorf("it got %d bytes, and ended with %v", got, err)
		}
		if err := <-pinged; err != nil {
			t.Errorf("its ping: %v", err)
		}
	})
}

// The gateway ends also when a viewer of a terminal takes nothing. One that takes what it is sent, however slowly, is told.
func TestTerminal_ShutdownWhileOneStandsStill(t *testing.T) {
	o, _ := withProcesses(t, Options{})
	program := wrote(t, o.Processes)
	for name, takes := range map[string]bool{"nothing": false, "slowly": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, o)
				ws := viewing(t, s, program)
				synctest.Wait() // it is being sent what there is
				heard := make(chan error, 1)
				go func() {
					for n := 0; takes; n++ {
						if _, _, err := ws.Read(t.Context()); err != nil {
							heard <- err
							break
						}
						if n < 2 {
							time.Sleep(farewell * 3 / 4) // of the test's own clock
						}
					}
					close(heard)
				}()
				began := time.Now()
				s.Shutdown(t.Context())
				if took := time.Since(began); took > 2*farewell || takes && took < farewell {
					t.Errorf("it took %v", took)
				}
				if err := <-heard; takes && websocket.CloseStatus(err) != websocket.StatusGoingAway {
					t.Errorf("it was told %v", err)
				}
			})
		})
	}
}

// What went wrong is in the log also when nobody is there any more to hear that it is. That a client has left is no news.
func TestServer_LogsWhatNobodyHears(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		logged bool
	}{
		"the client's leaving": {fmt.Errorf("read: %w", context.Canceled), false},
		"something else":       {errors.New("the disk is gone"), true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := newServer(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, leave := context.WithCancel(t.Context())
			leave()
			if p := s.shown(httptest.NewRequestWithContext(ctx, http.MethodGet, "/x", nil), test.err); p.Kind != problem.Internal {
				t.Errorf("%v", p)
			}
			if got := strings.Contains(log.String(), "request failed"); got != test.logged {
				t.Errorf("logged %v: %s", got, log.String())
			}
		})
	}
}

// What a program has said is told also where there is no memory for it: who is refused would run it once more.
func TestRun_IsToldWithoutMemory(t *testing.T) {
	t.Parallel()
	o, dir := withProcesses(t, Options{})
	o.Memory = memory.NewBound(1 << 19)
	others := o.Memory.Open(nil)
	defer others.Close()
	others.Count(2 << 20)
	l := pipes.Serve(t, newServer(t, o))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v2/processes/run",
		strings.NewReader(`{"command":"sh","args":["-c","echo ran >>mark; head -c 300000 /dev/zero | tr '\\0' x"],"cwd":"`+dir+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := l.Transport(t, false).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || strings.Count(string(b), "x") < 300_000 {
		t.Errorf("%s, %v: %.200s", resp.Status, err, b)
	}
	if mark, err := os.ReadFile(dir + "/mark"); err != nil || string(mark) != "ran\n" {
		t.Errorf("%q, %v", mark, err)
	}
}
