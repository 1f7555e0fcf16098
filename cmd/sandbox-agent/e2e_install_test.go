package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shop is a server that plays a vendor and the ACP registry, whose agent gadget
// is one file.
type shop struct {
	*httptest.Server
	mu     sync.Mutex
	files  map[string]http.HandlerFunc
	ranges map[string][]string // Range headers of the requests, "" for none
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{files: map[string]http.HandlerFunc{}, ranges: map[string][]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		h := s.files[r.URL.Path]
		s.ranges[r.URL.Path] = append(s.ranges[r.URL.Path], r.Header.Get("Range"))
		s.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) handle(path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = h
}

func (s *shop) put(path string, body []byte) { s.handle(path, serveFile(body)) }

// serveFile serves a file, also from the middle.
func serveFile(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+sha256Of(body)[:8]+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

// asked returns the Range headers of the requests for a path.
func (s *shop) asked(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ranges[path])
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

const gadgetFile = "/files/gadget"

// gadget is a program of some megabytes that speaks ACP.
func gadget(version string) []byte {
	return append([]byte(`#!/bin/sh
case "$1" in
--version) echo 'gadget `+version+`' ;;
--acp) read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"gadget","version":"`+version+`"}}}' ;;
*) exit 2 ;;
esac
exit
`), bytes.Repeat([]byte("# nothing\n"), 300_000)...)
}

// list makes the registry list gadget; sum is the checksum that it publishes.
func (s *shop) list(version, sum string) {
	type obj = map[string]any
	binary := obj{"archive": "https://files.test/gadget", "cmd": "./gadget", "args": []string{"--acp"}, "sha256": sum}
	b, err := json.Marshal(obj{"version": "1.0.0", "agents": []obj{{
		"id": "gadget", "name": "Gadget", "version": version, "description": "x",
		"distribution": obj{"binary": obj{"linux-x86_64": binary, "linux-aarch64": binary, "darwin-aarch64": binary, "darwin-x86_64": binary}},
	}}})
	if err != nil {
		panic(err)
	}
	s.put("/registry.json", b)
}

// sell publishes a version of gadget.
func (s *shop) sell(version string) {
	body := gadget(version)
	s.list(version, sha256Of(body))
	s.put(gadgetFile, body)
}

// flags make a command ask the shop instead of the world.
func (s *shop) flags() []string {
	return []string{"--registry-url", s.URL + "/registry.json", "--mirror", "https://files.test=" + s.URL + "/files", "--mirror", vendorHost + "=" + s.URL + "/vendor"}
}

// vendorHost serves claude's releases.
const vendorHost = "https://storage.googleapis.com"

// apiAnswer is what the API answered to one request.
type apiAnswer struct {
	status int
	body   []byte
}

func (a apiAnswer) json(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// do sends a request of the HTTP API; cancelling ctx makes the client go away.
func (g *gateway) do(ctx context.Context, method, path, body, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	g.authorize(req.Header)
	return http.DefaultClient.Do(req)
}

func (g *gateway) ask(method, path, body string) apiAnswer {
	g.t.Helper()
	resp, err := g.do(context.Background(), method, path, body, "application/json")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return apiAnswer{resp.StatusCode, b}
}

// installEvent is one event of an installation's stream.
type installEvent struct {
	name string
	data map[string]any
}

// streamInstall posts a request to install gadget and returns its events as
// they come; the channel is closed at the stream's end.
func (g *gateway) streamInstall(ctx context.Context, body string) <-chan installEvent {
	events := make(chan installEvent, 1000)
	go func() {
		defer close(events)
		resp, err := g.do(ctx, "POST", "/v2/agents/gadget/install", body, "text/event-stream")
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
			b, _ := io.ReadAll(resp.Body)
			events <- installEvent{name: "no stream: " + string(b)}
			return
		}
		name := ""
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			if v, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
				ev := installEvent{name: name}
				_ = json.Unmarshal([]byte(v), &ev.data)
				events <- ev
			}
		}
	}()
	return events
}

// lastEvent reads a stream to its end and returns the steps and the last event.
func lastEvent(t *testing.T, events <-chan installEvent) (steps []string, end installEvent) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return steps, end
			}
			end = ev
			if step, _ := ev.data["step"].(string); ev.name == "progress" && (len(steps) == 0 || steps[len(steps)-1] != step) {
				steps = append(steps, step)
			}
		case <-limit:
			t.Fatalf("the stream did not end after %v", steps)
		}
	}
}

func TestInstallAPI_StreamsAndRemembers(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	g := startGateway(t, s.flags()...)
	steps, end := lastEvent(t, g.streamInstall(t.Context(), `{"sources":["registry"]}`))
	if want := []string{"resolve", "download", "prove", "land"}; !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	if end.name != "result" || end.data["version"] != "1.0.0" || end.data["source"] != "registry" || end.data["verified"] != true || end.data["already"] != false || end.data["handshake"] != "initialize" {
		t.Errorf("the end %+v", end)
	}
	program, _ := end.data["program"].(string)
	if out, err := exec.Command(program, "--version").Output(); err != nil || string(out) != "gadget 1.0.0\n" || !strings.HasPrefix(program, g.dir) {
		t.Errorf("%s: %q, %v", program, out, err)
	}

	var status struct {
		InUse     struct{ Version, Program string }
		Installed []struct {
			Version, Source, Handshake string
			Verified                   bool
			Artifacts                  []struct{ Kind, Path, Version, Source, SHA256 string }
			Downloads                  []struct {
				URL, SHA256 string
				Bytes       int64
			}
		}
	}
	g.get("/v2/agents/gadget/install", &status)
	body := gadget("1.0.0")
	if len(status.Installed) != 1 || status.InUse.Program != program {
		t.Fatalf("status %+v", status)
	}
	i := status.Installed[0]
	if len(i.Artifacts) != 1 || i.Artifacts[0].Kind != "program" || i.Artifacts[0].SHA256 != sha256Of(body) || len(i.Downloads) != 1 || i.Downloads[0].Bytes != int64(len(body)) || !strings.HasPrefix(i.Downloads[0].URL, s.URL) {
		t.Errorf("provenance %+v", i)
	}

	var again struct{ Already bool }
	if a := g.ask("POST", "/v2/agents/gadget/install", ""); a.status != 200 {
		t.Errorf("again: %d %s", a.status, a.body)
	} else if a.json(t, &again); !again.Already {
		t.Errorf("again: %s", a.body)
	}
	if n := len(s.asked(gadgetFile)); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
	if a := g.ask("POST", "/v2/agents/gadget/install", `{"reinstall":true}`); a.status != 200 || len(s.asked(gadgetFile)) != 2 {
		t.Errorf("reinstall: %d %s", a.status, a.body)
	}
	if a := g.ask("DELETE", "/v2/agents/gadget/install", ""); a.status != 204 {
		t.Errorf("remove: %d %s", a.status, a.body)
	}
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after it was removed: %v", err)
	}
	if a := g.ask("DELETE", "/v2/agents/gadget/install", ""); a.status != 404 || !bytes.Contains(a.body, []byte("agent_not_installed")) {
		t.Errorf("remove again: %d %s", a.status, a.body)
	}
}

func TestInstallAPI_NeedsToken(t *testing.T) {
	g := startGateway(t, "--token", token)
	for _, r := range [][2]string{{"POST", "/v2/agents/mock/install"}, {"GET", "/v2/agents/mock/install"}, {"DELETE", "/v2/agents/mock/install"}, {"GET", "/v2/doctor"}} {
		req, err := http.NewRequestWithContext(t.Context(), r[0], g.url+r[1], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("%s %s without the token: %d", r[0], r[1], resp.StatusCode)
		}
	}
	if a := g.ask("POST", "/v2/agents/mock/install", ""); a.status != 200 || !bytes.Contains(a.body, []byte(`"source":"builtin"`)) {
		t.Errorf("with the token: %d %s", a.status, a.body)
	}
}

// problemDoc is a problem document of an installation.
type problemDoc struct {
	Type    string
	Detail  string
	Sources []struct{ Source, Answer string }
}

func TestInstallAPI_FailureKeepsWhatWasThere(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	g := startGateway(t, s.flags()...)
	if a := g.ask("POST", "/v2/agents/gadget/install", ""); a.status != 200 {
		t.Fatalf("install: %d %s", a.status, a.body)
	}
	s.list("2.0.0", sha256Of([]byte("something else")))
	s.put(gadgetFile, gadget("2.0.0"))
	if err := os.Remove(filepath.Join(g.dir, "agents", ".registry.json")); err != nil { // it is kept for a day
		t.Fatal(err)
	}
	a := g.ask("POST", "/v2/agents/gadget/install", `{"agentVersion":"latest","sources":["vendor","registry"]}`)
	var p problemDoc
	a.json(t, &p)
	if a.status != 500 || !strings.HasSuffix(p.Type, ":install_failed") || len(p.Sources) != 2 || p.Sources[0].Source != "vendor" ||
		!strings.Contains(p.Sources[1].Answer, "has the SHA-256 "+sha256Of(gadget("2.0.0"))) || !strings.Contains(p.Sources[1].Answer, "nothing was installed") {
		t.Errorf("wrong checksum: %d %s", a.status, a.body)
	}
	_, end := lastEvent(t, g.streamInstall(t.Context(), `{"agentVersion":"latest","sources":["registry"]}`))
	if end.name != "error" || end.data["status"] != 500.0 || end.data["sources"] == nil {
		t.Errorf("wrong checksum as a stream: %+v", end)
	}
	var status struct {
		InUse     struct{ Version string }
		Installed []struct{ Version string }
	}
	g.get("/v2/agents/gadget/install", &status)
	if status.InUse.Version != "1.0.0" || len(status.Installed) != 1 {
		t.Errorf("after the failure %+v", status)
	}

	for _, tt := range []struct {
		agent, body string
		status      int
		want        string
	}{
		{"gadget", `{"agentVersion":"9.9.9","sources":["registry"]}`, 400, "no such version as 9.9.9"},
		{"gadget", `{"agentVersion":"../../x"}`, 400, "is no version"},
		{"gadget", `{"sources":["floppy"]}`, 400, "is no source"},
		{"nope", ``, 404, "no agent nope is known"},
		{"..%2Fx", ``, 400, "no agent's id"},
	} {
		if a := g.ask("POST", "/v2/agents/"+tt.agent+"/install", tt.body); a.status != tt.status || !bytes.Contains(a.body, []byte(tt.want)) {
			t.Errorf("%s %s: %d %s, want %d and %q", tt.agent, tt.body, a.status, a.body, tt.status, tt.want)
		}
	}
}

func TestInstallAPI_CutThenResumed(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	body := gadget("1.0.0")
	var requests int
	s.handle(gadgetFile, func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests > 1 {
			serveFile(body)(w, r)
			return
		}
		w.Header().Set("ETag", `"`+sha256Of(body)[:8]+`"`)
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler) // cuts the connection
	})
	g := startGateway(t, s.flags()...)
	_, end := lastEvent(t, g.streamInstall(t.Context(), ``))
	if end.name != "result" || end.data["verified"] != true {
		t.Errorf("the end %+v", end)
	}
	if got := s.asked(gadgetFile); len(got) != 2 || got[0] != "" || !strings.HasPrefix(got[1], "bytes=") || got[1] == "bytes=0-" {
		t.Errorf("ranges %q, want the second to continue", got)
	}
}

// gate makes the download wait until it is opened; left is closed when the
// gateway went away before.
func (s *shop) gate(body []byte) (open func(), waiting, left <-chan struct{}) {
	opened, w, l := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.handle(gadgetFile, func(rw http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(w) })
		select {
		case <-opened:
			serveFile(body)(rw, r)
		case <-r.Context().Done():
			close(l)
		}
	})
	return sync.OnceFunc(func() { close(opened) }), w, l
}

// awaitClosed waits for a channel to be closed.
func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("waited in vain for ", what)
	}
}

func TestInstallAPI_TwoShareOne(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	open, waiting, _ := s.gate(gadget("1.0.0"))
	defer open()
	g := startGateway(t, s.flags()...)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	first := g.streamInstall(ctx, ``)
	awaitClosed(t, "the download", waiting)
	second := g.streamInstall(t.Context(), `{}`)
	<-second // it hears of the steps before it came
	leave()
	for range first { // until the client is gone
	}
	open()
	steps, end := lastEvent(t, second)
	if end.name != "result" || end.data["already"] != false || !slices.Contains(steps, "prove") {
		t.Errorf("the end of the second after the first left: %+v after %v", end, steps)
	}
	if n := len(s.asked(gadgetFile)); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

func TestInstallAPI_EndsWithTheLastClient(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	_, waiting, left := s.gate(nil)
	g := startGateway(t, s.flags()...)
	ctx, leave := context.WithCancel(t.Context())
	g.streamInstall(ctx, ``)
	awaitClosed(t, "the download", waiting)
	leave()
	awaitClosed(t, "the end of the download", left)
}

func TestInstallAPI_EndsWithTheGateway(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	_, waiting, left := s.gate(nil)
	g := startGateway(t, s.flags()...)
	events := g.streamInstall(t.Context(), ``)
	awaitClosed(t, "the download", waiting)
	if took := g.kill(syscall.SIGTERM); took > 10*time.Second {
		t.Errorf("the gateway took %v to end", took)
	}
	awaitClosed(t, "the end of the download", left)
	if _, end := lastEvent(t, events); end.name != "error" {
		t.Errorf("the end %+v", end)
	}
	stages, _ := filepath.Glob(filepath.Join(g.dir, "agents", "gadget", ".stage-*"))
	if len(stages) > 0 {
		t.Errorf("left %q", stages)
	}
}

func TestDoctorAPI(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	g := startGateway(t, append(s.flags(), "--source", "path", "--source", "registry")...)
	type report struct {
		OK     bool
		Checks []struct{ Name, Agent, Status, Found, Remedy string }
	}
	var before, after report
	g.get("/v2/doctor?agent=gadget", &before)
	if before.OK || !slices.ContainsFunc(before.Checks, func(c struct{ Name, Agent, Status, Found, Remedy string }) bool {
		return c.Agent == "gadget" && c.Status == "failed" && strings.Contains(c.Remedy, "agents install gadget")
	}) {
		t.Errorf("before %+v", before)
	}
	if a := g.ask("POST", "/v2/agents/gadget/install", ""); a.status != 200 {
		t.Fatalf("install: %d %s", a.status, a.body)
	}
	g.get("/v2/doctor?agent=gadget", &after)
	if !after.OK || !slices.ContainsFunc(after.Checks, func(c struct{ Name, Agent, Status, Found, Remedy string }) bool {
		return c.Agent == "gadget" && c.Status == "ok" && strings.Contains(c.Found, "answers initialize")
	}) {
		t.Errorf("after %+v", after)
	}
}

// serveSlowly serves half of a file, then hardly anything until shown is
// closed, and then the rest.
func serveSlowly(body []byte, shown <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		at := len(body) / 2
		_, _ = w.Write(body[:at])
		slow := time.NewTicker(20 * time.Millisecond)
		defer slow.Stop()
		for {
			select {
			case <-slow.C:
				_, _ = w.Write(body[at : at+10])
				at += 10
				_ = http.NewResponseController(w).Flush()
			case <-shown:
				_, _ = w.Write(body[at:])
				return
			case <-r.Context().Done():
				return
			}
		}
	}
}
