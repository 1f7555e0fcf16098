package control

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
)

// withProcesses are options with a root of files and processes of their own.
func withProcesses(t *testing.T, o Options, change ...func(*process.Limits)) (Options, string) {
	t.Helper()
	l := process.DefaultLimits()
	l.StopMs = 200
	for _, f := range change {
		f(&l)
	}
	all, err := process.New(process.Options{Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close(context.Background()) })
	var dir string
	o.Files, dir = fileService(t, fs.Options{})
	o.Processes = all
	return o, dir
}

func processServer(t *testing.T, o Options, change ...func(*process.Limits)) (base string, s *Server) {
	t.Helper()
	o, _ = withProcesses(t, o, change...)
	s = newServer(t, o)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL, s
}

func TestProcesses_Answers(t *testing.T) {
	o, dir := withProcesses(t, Options{}, func(l *process.Limits) { l.InputBytes = 1000 })
	a := newAPI(t, o)
	put(t, dir+"/sub/f", "x")
	if err := os.Symlink("/etc", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	start := func(body string) string {
		w := a.send("POST", "/v2/processes", body, "")
		var i process.Info
		if err := json.Unmarshal(w.Body.Bytes(), &i); err != nil || w.Code != 201 || w.Header().Get("Location") != "/v2/processes/"+i.ID {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		return "/v2/processes/" + i.ID
	}
	cat := start(`{"command":"cat"}`)
	ended := start(`{"command":"sh","args":["-c","echo one; echo two; echo three"]}`)
	terminal := start(`{"command":"cat","tty":true,"cols":20,"rows":5}`)
	// Followed to its end: a stop may come before it has said anything.
	follow := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+ended+"/logs", nil)
	follow.Header.Set("Accept", sse.ContentType)
	a.server.ServeHTTP(httptest.NewRecorder(), follow)
	if w := a.send("POST", ended+"/stop", "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"exited"`) {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if w := a.send("POST", "/v2/processes", `{"command":"cat","cwd":"`+dir+`/no"}`, ""); !strings.Contains(w.Body.String(), dir+"/no, which does not exist: make the directory, or name another one as cwd") {
		t.Errorf("in a directory that is not there: %s", w.Body)
	}
	tests := []struct {
		method, target, body, invalid string
		status                        int
		want                          string // contained; a kind for problems
	}{
		{"POST", "/v2/processes/run", `{"command":"pwd"}`, "", 200, `"exitCode":0,"timedOut":false`},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":"sub"}`, "", 200, `"data":"` + dir + `/sub\n"`},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":"` + dir + `/sub"}`, "", 200, dir + `/sub\n`},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":".."}`, "", 403, "path_escapes"},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":"out"}`, "", 403, "path_escapes"},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":"no"}`, "", 404, "not_found"},
		{"POST", "/v2/processes/run", `{"command":"pwd","cwd":"sub/f"}`, "", 409, "not_a_directory"},
		{"POST", "/v2/processes/run", `{"command":"pwd","sessionId":"s9"}`, "", 404, "session_not_found"},
		{"POST", "/v2/processes/run", `{"command":"pwd","sessionId":"s1"}`, "", 403, "path_escapes"}, // its directory is outside
		{"POST", "/v2/processes/run", `{"command":"sh","args":["-c","exit 3"]}`, "", 200, `"exitCode":3`},
		{"POST", "/v2/processes/run", `{"command":"sh","args":["-c","kill -9 $$"]}`, "", 200, `{"signal":"SIGKILL"`},
		{"POST", "/v2/processes/run", `{"command":"sleep","args":["9"],"timeoutMs":50}`, "", 200, `"timedOut":true`},
		{"POST", "/v2/processes/run", `{"command":"sh","args":["-c","echo a; echo $X >&2"],"env":{"X":"<b>"},"combined":true}`, "", 200, `"stderr":{"data":"<b>\n","bytes":4,"truncated":false},"combined"`},
		{"POST", "/v2/processes/run", `{"command":"printf","args":["äöü"],"maxOutputBytes":3}`, "", 200, `{"data":"ä","bytes":6,"truncated":true}`},
		{"POST", "/v2/processes/run", `{"command":"printf","args":["\\377"]}`, "", 200, `{"data":"` + "\uFFFD" + `","bytes":1,"truncated":false}`},
		{"POST", "/v2/processes/run", `{"command":"cat","stdin":"AP8=","encoding":"base64"}`, "", 200, `{"data":"AP8=","bytes":2,`},
		{"POST", "/v2/processes/run", `{"command":"cat","stdin":"?","encoding":"base64"}`, "", 400, "invalid_request"},
		{"POST", "/v2/processes/run", `{"command":"cat","encoding":"latin1"}`, "encoding", 400, "invalid_request"},
		{"POST", "/v2/processes/run", `{"command":"cat","stdin":"` + strings.Repeat("x", 1001) + `"}`, "", 413, "payload_too_large"},
		{"POST", "/v2/processes/run", `{"command":"no-such-program"}`, "", 404, "not_found"},
		{"POST", "/v2/processes/run", `{"command":"/etc/passwd"}`, "", 403, "permission_denied"},
		{"POST", "/v2/processes/run", `{"command":"cat","timeoutMs":0}`, "", 400, "invalid_request"},
		{"POST", "/v2/processes/run", `{"command":"cat","maxOutputBytes":99999999999}`, "", 400, "invalid_request"},
		{"POST", "/v2/processes/run", `{"cmd":"cat"}`, "command", 400, "invalid_request"},
		{"POST", "/v2/processes", `{"command":"cat","cols":1}`, "", 400, "invalid_request"},
		{"POST", "/v2/processes", `{"command":"cat","tty":true,"cols":-1,"rows":1}`, "cols", 400, "invalid_request"},
		{"GET", "/v2/processes", "", "", 200, `"command":"cat","args":[],"cwd":"` + dir + `"`},
		{"GET", "/v2/processes/p-nonsense", "", "", 404, "not_found"},
		{"GET", cat, "", "", 200, `"state":"running"`},
		{"GET", cat + "/logs", "", "", 200, `{"chunks":[],"missed":0,"next":0,"hasMore":false,"ended":false}`},
		{"POST", cat + "/signal", `{"signal":"SIGCONT"}`, "", 204, ""},
		{"POST", cat + "/signal", `{"signal":"SIGNO"}`, "", 400, "invalid_request"},
		{"POST", cat + "/stdin?close=maybe", "", "close", 400, "invalid_request"},
		{"GET", cat + "/terminal", "", "", 426, "upgrade_required"},
		{"GET", terminal, "", "", 200, `"cols":20,"rows":5`},
		{"POST", ended + "/signal", `{"signal":"SIGTERM"}`, "", 409, "conflict"},
		{"POST", ended + "/stdin", "", "", 409, "conflict"},
		{"POST", ended + "/stop?patienceMs=x", "", "patienceMs", 400, "invalid_request"},
		{"POST", ended + "/stop?patienceMs=999999", "", "patienceMs", 400, "invalid_request"},
		{"GET", ended + "/logs", "", "", 200, `"ended":true`},
		{"GET", ended + "/logs?tail=1", "", "", 200, base64.StdEncoding.EncodeToString([]byte("three\n"))},
		{"GET", ended + "/logs?after=4&stream=stdout", "", "", 200, base64.StdEncoding.EncodeToString([]byte("two\nthree\n"))},
		{"GET", ended + "/logs?stream=stderr", "", "", 200, `{"chunks":[]`},
		{"GET", ended + "/logs?stream=no", "", "stream", 400, "invalid_request"},
		{"GET", ended + "/logs?since=2100-01-01T00:00:00Z", "", "", 200, `{"chunks":[]`},
		{"GET", ended + "/logs?since=now", "", "since", 400, "invalid_request"},
		{"GET", ended + "/logs?tail=1&after=1", "", "", 400, "invalid_request"},
		{"GET", "/v2/processes/config", "", "", 200, `"running":64`},
		{"PUT", "/v2/processes/config", `{"running":65}`, "", 200, `"running":65,"ended":32`},
		{"PUT", "/v2/processes/config", `{"running":0}`, "", 400, "invalid_request"},
		{"PUT", "/v2/processes/config", `{"walking":1}`, "", 400, "invalid_request"},
		{"DELETE", ended, "", "", 204, ""},
		{"DELETE", ended, "", "", 404, "not_found"},
		{"DELETE", cat, "", "", 204, ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+strings.ReplaceAll(tt.target, "/v2/processes", "")+" "+tt.body, func(t *testing.T) {
			a.t = t
			w := a.send(tt.method, tt.target, tt.body, tt.invalid)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if tt.status >= 400 {
				if kind := kindOf(t, w); string(kind) != tt.want {
					t.Errorf("problem %s, want %s: %s", kind, tt.want, w.Body)
				}
			} else if !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("body %q, want %q in it", w.Body, tt.want)
			}
		})
	}
	if w := newAPI(t, Options{}).get("/v2/processes"); kindOf(t, w) != problem.NotSupported {
		t.Errorf("answer %s", w.Body)
	}
}

// A client that leaves ends what it ran.
func TestProcesses_RunEndsWithItsClient(t *testing.T) {
	base, s := processServer(t, Options{}, func(l *process.Limits) { l.Running = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	r, err := http.NewRequestWithContext(ctx, "POST", base+"/v2/processes/run", strings.NewReader(`{"command":"sh","args":["-c","trap '' TERM; touch \"$0\"; sleep 1000","`+began+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	run := func() (int, string) {
		resp, body := ask(t, "POST", base+"/v2/processes/run", strings.NewReader(`{"command":"true"}`), "Content-Type", "application/json")
		return resp.StatusCode, body
	}
	for {
		if _, err := os.Stat(began); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("it has ended: %v", err)
		case <-tick(t):
		}
	}
	if status, body := run(); status != 429 {
		t.Errorf("another one runs beside it: %d %s", status, body)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it has an answer")
	}
	for late := time.After(patience); ; {
		if status, _ := run(); status == 200 {
			return
		}
		select {
		case <-tick(t):
		case <-late:
			t.Fatalf("it still runs: %+v", s.o.Processes.Limits())
		}
	}
}

func startOn(t *testing.T, base, body string) (process.Info, string) {
	t.Helper()
	resp, text := ask(t, "POST", base+"/v2/processes", strings.NewReader(body), "Content-Type", "application/json")
	var i process.Info
	if err := json.Unmarshal([]byte(text), &i); err != nil || resp.StatusCode != 201 {
		t.Fatalf("%d: %s", resp.StatusCode, text)
	}
	return i, base + "/v2/processes/" + i.ID
}

// A stream of a log goes on where one before it broke off, and ends with the
// process.
func TestProcesses_FollowLogs(t *testing.T) {
	base, _ := processServer(t, Options{})
	_, target := startOn(t, base, `{"command":"sh","args":["-c","echo one; read x; echo $x; read x; exit 5"]}`)
	follow := func(last string) (*sse.Decoder, func()) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", target+"/logs", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", sse.ContentType)
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return sse.NewDecoder(resp.Body, 1<<20), func() { _ = resp.Body.Close() }
	}
	text := func(d *sse.Decoder, want string) (id string) {
		t.Helper()
		var got bytes.Buffer
		for got.Len() < len(want) {
			ev, err := d.Next()
			if err != nil {
				t.Fatal(err)
			}
			var c logChunk
			if err := json.Unmarshal(ev.Data, &c); err != nil || ev.Type != "message" {
				t.Fatalf("%s: %s", ev.Type, ev.Data)
			}
			got.Write(c.Data)
			id = ev.ID
		}
		if got.String() != want {
			t.Fatalf("got %q, want %q", &got, want)
		}
		return id
	}
	d, leave := follow("")
	last := text(d, "one\n")
	leave()
	if resp, body := ask(t, "POST", target+"/stdin", strings.NewReader("two\n")); resp.StatusCode != 200 || !strings.Contains(body, `"written":4`) {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
	d, leave = follow(last)
	defer leave()
	if last = text(d, "two\n"); last != "8" {
		t.Errorf("the id is %s", last)
	}
	if resp, body := ask(t, "POST", target+"/stdin?close=true", http.NoBody); resp.StatusCode != 200 {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
	ev, err := d.Next()
	if err != nil || ev.Type != "exit" || !strings.Contains(string(ev.Data), `"exitCode":5`) {
		t.Errorf("%v: %s %s", err, ev.Type, ev.Data)
	}
	if _, err := d.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the exit: %v", err)
	}
}

// narrow is a client whose sockets keep little that nobody reads.
var narrow = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetReadBuffer(64 << 10)
}}}

// view opens a terminal and returns its first frame.
func view(t *testing.T, target string, header ...string) (*websocket.Conn, TerminalFrame) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	ws, resp, err := websocket.Dial(t.Context(), strings.Replace(target, "http", "ws", 1), &websocket.DialOptions{HTTPClient: narrow, HTTPHeader: h, Subprotocols: h.Values("Sub")})
	if err != nil {
		if resp != nil {
			b, _ := io.ReadAll(resp.Body)
			t.Fatalf("%v: %s", err, b)
		}
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	_, f := next(t, ws)
	if f.Type != "ready" || f.Position == nil {
		t.Fatalf("the first frame is %+v", f)
	}
	return ws, f
}

// next returns output or a control frame.
func next(t *testing.T, ws *websocket.Conn) ([]byte, TerminalFrame) {
	t.Helper()
	var f TerminalFrame
	kind, b, err := ws.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kind == websocket.MessageBinary {
		return b, f
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return nil, f
}

func until(t *testing.T, ws *websocket.Conn, text string) string {
	t.Helper()
	var got strings.Builder
	for !strings.Contains(got.String(), text) {
		b, f := next(t, ws)
		if b == nil {
			t.Fatalf("frame %+v, want %q after %q", f, text, got.String())
		}
		got.Write(b)
	}
	return got.String()
}

func say(t *testing.T, ws *websocket.Conn, frame string) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal_Viewers(t *testing.T) {
	base, _ := processServer(t, Options{})
	_, target := startOn(t, base, `{"command":"sh","tty":true,"env":{"PS1":"$ ","ENV":""}}`)
	first, ready := view(t, target+"/terminal")
	if ready.Cols != 80 || ready.Rows != 24 || *ready.Position != 0 || *ready.Shown != 0 {
		t.Errorf("%+v", ready)
	}
	seen := until(t, first, "$ ")
	say(t, first, `{"type":"resize","cols":91,"rows":17}`)
	say(t, first, `{"type":"input","data":"stty size\n"}`)
	seen += until(t, first, "17 91")
	// Another viewer sees what was before it came.
	second, ready := view(t, target+"/terminal")
	if ready.Cols != 91 || ready.Rows != 17 || *ready.Position != 0 || *ready.Shown < uint64(len(seen)) {
		t.Errorf("%+v", ready)
	}
	until(t, second, "17 91")
	if _, body := ask(t, "GET", target, nil); !strings.Contains(body, `"viewers":2`) {
		t.Error(body)
	}
	if err := second.Write(t.Context(), websocket.MessageBinary, []byte("echo by $((40+2))\n")); err != nil {
		t.Fatal(err)
	}
	until(t, first, "by 42")
	until(t, second, "by 42")
	for _, bad := range []string{"nonsense", `{"type":"no"}`, `{"type":"resize","cols":0,"rows":-1}`, `{"type":"signal","signal":"SIGNO"}`, `{"type":"input","encoding":"x"}`, `{"type":"input","encoding":"base64","data":"?"}`} {
		say(t, second, bad)
		for {
			b, f := next(t, second)
			if b != nil {
				continue // the prompt
			}
			if f.Type != "error" || f.Problem != nil && f.Problem.Kind != "" { // the type is in the document only
				t.Errorf("%s: %+v", bad, f)
			}
			break
		}
	}
	say(t, second, `{"type":"input","data":"exec sh -c 'trap \"echo usr $((1+1))\" USR1; echo up $((2+1)); while :; do sleep 0.05; done'\n"}`)
	until(t, second, "up 3")
	say(t, second, `{"type":"signal","signal":"USR1"}`)
	until(t, second, "usr 2")
	// One who comes back is not shown what it has seen.
	_ = first.CloseNow()
	_, info := ask(t, "GET", target, nil)
	var i process.Info
	if err := json.Unmarshal([]byte(info), &i); err != nil {
		t.Fatal(err)
	}
	again, ready := view(t, target+"/terminal?after=3")
	if *ready.Position != 3 {
		t.Errorf("%+v", ready)
	}
	say(t, second, `{"type":"signal","signal":"KILL"}`)
	for _, ws := range []*websocket.Conn{second, again} {
		var f TerminalFrame
		for b := []byte{}; b != nil; {
			b, f = next(t, ws)
		}
		if f.Type != "exit" || f.Signal != "SIGKILL" || f.ExitCode != nil {
			t.Errorf("%+v", f)
		}
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("it ended with %v", err)
		}
	}
	// One who comes late sees all of it, and its end.
	late, _ := view(t, target+"/terminal")
	until(t, late, "usr 2")
}

// A signal and a size reach a program that reads none of its input, also behind some.
func TestTerminal_InputIsNotRead(t *testing.T) {
	base, _ := processServer(t, Options{})
	_, target := startOn(t, base, `{"command":"sh","args":["-c","stty raw -echo; trap 'stty size; echo usr $((1+1))' USR1; echo up $((2+1)); while :; do sleep 0.05; done"],"tty":true}`)
	ws, _ := view(t, target+"/terminal")
	until(t, ws, "up 3")
	if err := ws.Write(t.Context(), websocket.MessageBinary, bytes.Repeat([]byte("x"), 512<<10)); err != nil {
		t.Fatal(err)
	}
	say(t, ws, `{"type":"resize","cols":91,"rows":17}`)
	say(t, ws, `{"type":"signal","signal":"USR1"}`)
	for seen := ""; !strings.Contains(seen, "17 91") || !strings.Contains(seen, "usr 2"); {
		b, f := next(t, ws)
		if b == nil {
			t.Fatalf("before that: %+v", f) // that nobody reads
		}
		seen += string(b)
	}
}

// What a viewer has typed before it leaves reaches the program.
func TestTerminal_InputOfWhoLeaves(t *testing.T) {
	base, _ := processServer(t, Options{})
	_, target := startOn(t, base, `{"command":"sh","args":["-c","stty raw -echo; echo up $((2+1)); head -c 200000 | wc -c"],"tty":true}`)
	ws, _ := view(t, target+"/terminal")
	other, _ := view(t, target+"/terminal")
	until(t, ws, "up 3")
	if err := ws.Write(t.Context(), websocket.MessageBinary, bytes.Repeat([]byte("x"), 200_000)); err != nil {
		t.Fatal(err)
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
	until(t, other, "200000")
}

func TestTerminal_GuardAndShutdown(t *testing.T) {
	base, s := processServer(t, Options{Guard: Guard{Token: "tok"}})
	resp, text := ask(t, "POST", base+"/v2/processes", strings.NewReader(`{"command":"cat","tty":true}`), "Content-Type", "application/json", "Authorization", "Bearer tok")
	var i process.Info
	if err := json.Unmarshal([]byte(text), &i); err != nil || resp.StatusCode != 201 {
		t.Fatalf("%d: %s", resp.StatusCode, text)
	}
	target := base + "/v2/processes/" + i.ID + "/terminal"
	bearer := "bearer." + base64.RawURLEncoding.EncodeToString([]byte("tok"))
	for _, tt := range []struct {
		name   string
		header []string
		status int
	}{
		{"no token", nil, 401},
		{"another's token", []string{"Authorization", "Bearer other"}, 401},
		{"a browser's wrong token", []string{"Sec-WebSocket-Protocol", "bearer.eA, " + TerminalSubprotocol}, 401},
		{"another site", []string{"Authorization", "Bearer tok", "Origin", "https://example.com"}, 403},
	} {
		h := append([]string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, tt.header...)
		if resp, body := ask(t, "GET", target, nil, h...); resp.StatusCode != tt.status {
			t.Errorf("%s: %d: %s", tt.name, resp.StatusCode, body)
		}
	}
	ws, resp, err := websocket.Dial(t.Context(), strings.Replace(target, "http", "ws", 1), &websocket.DialOptions{Subprotocols: []string{bearer, TerminalSubprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != TerminalSubprotocol {
		t.Errorf("the subprotocol is %q", got)
	}
	go s.Shutdown(t.Context())
	for {
		if _, _, err = ws.Read(t.Context()); err != nil {
			break
		}
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("it ended with %v", err)
	}
}

// A viewer that reads nothing holds up neither the program nor another viewer,
// and is told how much it missed.
func TestTerminal_SlowAndFastViewers(t *testing.T) {
	// More than the log and the buffers of sockets hold, and not much more: a viewer that answers
	// no ping for half a minute is dropped, and the other one is done by then.
	const total = 6_000_000
	base, _ := processServer(t, Options{}, func(l *process.Limits) { l.LogBytes = 256 << 10 })
	_, target := startOn(t, base, `{"command":"sh","args":["-c","stty -opost -echo; read go; head -c 6000000 /dev/zero | tr '\\0' x"],"tty":true}`)
	count := func(ws *websocket.Conn) (got, missed uint64) {
		for {
			b, f := next(t, ws)
			switch {
			case b != nil:
				got += uint64(len(b))
			case f.Type == "missed":
				missed += f.Bytes
			case f.Type == "exit":
				return got, missed
			}
		}
	}
	slow, _ := view(t, target+"/terminal")
	fast, _ := view(t, target+"/terminal")
	begin := time.Now()
	say(t, fast, `{"type":"input","data":"\n"}`)
	got, missed := count(fast)
	t.Logf("fast: got %d, missed %d in %v", got, missed, time.Since(begin))
	// The terminal shows the key before the program turns that off.
	if sum := got + missed; sum < total || sum > total+2 {
		t.Errorf("fast: %d and %d", got, missed)
	}
	got, missed = count(slow)
	t.Logf("slow: got %d, missed %d", got, missed)
	if sum := got + missed; sum < total || sum > total+2 || missed == 0 {
		t.Errorf("slow: %d and %d", got, missed)
	}
}

// Deleting a process under its viewers and readers ends them all.
func TestProcesses_DeleteUnderReaders(t *testing.T) {
	base, _ := processServer(t, Options{})
	_, target := startOn(t, base, `{"command":"sh","args":["-c","trap '' TERM HUP; while :; do echo line; done"],"tty":true}`)
	var readers sync.WaitGroup
	for range 4 {
		ws, _ := view(t, target+"/terminal")
		readers.Go(func() {
			for {
				if _, _, err := ws.Read(t.Context()); err != nil {
					return
				}
			}
		})
	}
	if resp, body := ask(t, "DELETE", target, nil); resp.StatusCode != 204 {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
	readers.Wait()
	if resp, _ := ask(t, "GET", target, nil); resp.StatusCode != 404 {
		t.Errorf("%d", resp.StatusCode)
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, s := range []string{`{"type":"input","data":"x"}`, `{"type":"input","encoding":"base64","data":"eA=="}`, `{"type":"resize","cols":1,"rows":2}`, `{"type":"signal","signal":"INT"}`, `null`, `[]`, `{"type":"input","position":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, input, err := parseFrame(b)
		if err == nil && got.Type != frameInput && len(input) > 0 {
			t.Errorf("%q is input of type %s", b, got.Type)
		}
	})
}

// Two who change different limits at one time have both changed them, however slow one is to say which.
func TestProcesses_LimitsChangedByTwo(t *testing.T) {
	o, _ := withProcesses(t, Options{})
	a := newAPI(t, o)
	body, say := io.Pipe()
	slow := httptest.NewRequestWithContext(t.Context(), "PUT", "http://localhost/v2/processes/config", body)
	slow.Header.Set("Content-Type", "application/json")
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, slow)
		answered <- w
	}()
	if _, err := io.WriteString(say, `{"running":`); err != nil { // it is being read
		t.Fatal(err)
	}
	if w := a.send("PUT", "/v2/processes/config", `{"ended":5}`, ""); w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	_, err := io.WriteString(say, "7}")
	_ = say.Close()
	if w := <-answered; err != nil || w.Code != 200 {
		t.Fatalf("%d: %s, %v", w.Code, w.Body, err)
	}
	if w := a.send("GET", "/v2/processes/config", "", ""); !strings.Contains(w.Body.String(), `"running":7,"ended":5,`) {
		t.Errorf("the limits are %s", w.Body)
	}
}
