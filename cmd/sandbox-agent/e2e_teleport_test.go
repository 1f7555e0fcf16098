package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// road is the way of a command to a gateway, which keeps its address while the gateway is
// killed and started again. reached is told of each step: a request, before the gateway
// has it, while it is read, and behind its answer.
type road struct {
	*httptest.Server
	mu      sync.Mutex
	g       *gateway
	reached func(step string)
	passing sync.WaitGroup // requests
}

func newRoad(t *testing.T, g *gateway) *road {
	r := &road{g: g, reached: func(string) {}}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			r.mu.Lock()
			defer r.mu.Unlock()
			to, err := url.Parse(r.g.url)
			if err != nil {
				panic(err)
			}
			p.SetURL(to)
		},
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(resp *http.Response) error { r.tell("answered", resp.Request); return nil },
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.passing.Add(1)
		defer r.passing.Done()
		r.tell("asked", req)
		if req.ContentLength != 0 && strings.HasSuffix(req.URL.Path, "/import") {
			req.Body = &tellingBody{ReadCloser: req.Body, tell: func() { r.tell("half of", req) }}
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *road) tell(when string, req *http.Request) {
	r.mu.Lock()
	reached := r.reached
	r.mu.Unlock()
	path := req.URL.Path
	if i := strings.Index(path, "/v2/"); i >= 0 {
		path = path[i:]
	}
	reached(when + " " + req.Method + " " + path)
}

func (r *road) on(reached func(step string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = reached
}

// tellingBody tells when more than a part of it was read.
type tellingBody struct {
	io.ReadCloser
	n    int
	once sync.Once
	tell func()
}

func (b *tellingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.n += n; b.n > 2000 {
		b.once.Do(b.tell)
	}
	return n, err
}

// journey is a session that a command moves from one gateway to another.
type journey struct {
	t        *testing.T
	from, to *gateway
	a, b     *road
	id       string
	home     string // its directory
	away     string // where it goes
	before   []event
}

func newJourney(t *testing.T) *journey {
	j := &journey{t: t, from: newGateway(t), to: newGateway(t)}
	j.from.start()
	j.to.start()
	j.a, j.b = newRoad(t, j.from), newRoad(t, j.to)
	return j
}

// pack makes a session with a repository, at the beginning of a move.
func (j *journey) pack(name string) {
	j.t.Helper()
	top := j.t.TempDir()
	j.home, j.away = filepath.Join(top, "home"), filepath.Join(top, "away")
	for i := range 150 {
		path := filepath.Join(j.home, fmt.Sprintf("d%d", i%10), fmt.Sprintf("file-%d", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			j.t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s %d\n", name, i), 0o644); err != nil {
			j.t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "first"}} {
		cmd := exec.CommandContext(j.t.Context(), "git", args...)
		cmd.Dir = j.home
		if out, err := cmd.CombinedOutput(); err != nil {
			j.t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(j.home, "d0", "file-0"), []byte("changed\n"), 0o644); err != nil {
		j.t.Fatal(err)
	}
	c := connect(j.t, j.from, wsocket, options{agent: "mock", cwd: j.home})
	j.id = c.newSession()
	if stop := c.prompt(j.id, "echo the word is heron"); stop != "end_turn" {
		j.t.Fatal(stop)
	}
	c.close()
	j.before = j.from.events(j.id)
}

// lend has one of the files be where the session goes, so that it is not sent.
func (j *journey) lend() {
	j.t.Helper()
	b, err := os.ReadFile(filepath.Join(j.home, "d1", "file-1"))
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(j.away, "d1"), 0o755), os.WriteFile(filepath.Join(j.away, "d1", "file-1"), b, 0o644))
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// teleport runs the command; told is what it wrote.
func (j *journey) teleport() (told string, err error) {
	j.t.Helper()
	return j.teleportAs(make(chan *os.Process, 1))
}

// teleportAs is teleport by a process that started, which has room for one, is given.
func (j *journey) teleportAs(started chan<- *os.Process) (told string, err error) {
	j.t.Helper()
	bin, err := binary()
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.CommandContext(j.t.Context(), bin, "teleport", "--from", j.a.URL, "--to", j.b.URL, "--cwd", j.away, j.id)
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TO_TOKEN=", "SANDBOX_AGENT_TOKEN=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	started <- cmd.Process
	err = cmd.Wait()
	return out.String(), err
}

// placed is what is known of the session at a gateway.
type placed struct {
	State    string
	Metadata struct{ MovedTo, Ticket string }
}

// at returns the session at a gateway, nil where it is not.
func (j *journey) at(g *gateway) *placed {
	j.t.Helper()
	resp, err := http.Get(g.url + "/v2/sessions/" + j.id)
	if err != nil {
		j.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil
	}
	var p placed
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != http.StatusOK {
		j.t.Fatalf("%s, %v", resp.Status, err)
	}
	return &p
}

// whole checks that one of the gateways has the session open, or the first says where it
// went and the second has it, and that nothing is lost.
func (j *journey) whole() {
	j.t.Helper()
	here, there := j.at(j.from), j.at(j.to)
	if here == nil {
		j.t.Error("the session is not at its source any more")
		return
	}
	hereOpen, thereOpen := here.State != "closed", there != nil && there.State != "closed"
	switch {
	case hereOpen && thereOpen:
		j.t.Errorf("the session is open at both: %+v and %+v", here, there)
	case !hereOpen && !thereOpen && (here.Metadata.MovedTo != j.b.URL || there == nil):
		j.t.Errorf("the session is open nowhere, and nobody says where it is: %+v and %+v", here, there)
	}
	same(j.t, j.from.events(j.id), j.before)
	if there != nil {
		same(j.t, j.to.events(j.id), j.before)
		j.sameFiles()
	}
	if got := files(j.t, j.home); !strings.HasPrefix(got["d0/file-0"], "changed") || len(got) != 150 {
		j.t.Errorf("%d files are at the source, one is %q", len(got), got["d0/file-0"])
	}
}

func (j *journey) sameFiles() {
	j.t.Helper()
	here, there := files(j.t, j.home), files(j.t, j.away)
	if len(here) != len(there) {
		j.t.Errorf("%d files are at the source and %d at the target", len(here), len(there))
	}
	for name, content := range here {
		if there[name] != content {
			j.t.Errorf("%s is %q at the target, want %q", name, there[name], content)
		}
	}
}

// files returns what is in the files of a folder, but for git's own.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case info.Name() == ".git":
			return filepath.SkipDir
		case info.IsDir():
			return nil
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// finish repeats the command, and looks whether the session goes on where it is.
func (j *journey) finish() {
	j.t.Helper()
	told, err := j.teleport()
	if err != nil {
		j.t.Fatalf("repeated: %v, %s", err, told)
	}
	here, there := j.at(j.from), j.at(j.to)
	if here.State != "closed" || here.Metadata.MovedTo != j.b.URL || there == nil || there.State == "closed" {
		j.t.Errorf("moved: %+v and %+v", here, there)
	}
	j.whole()
	if left, err := filepath.Glob(filepath.Join(j.away, ".sandbox-agent-*")); err != nil || len(left) > 0 {
		j.t.Errorf("%q is left in the workspace, %v", left, err)
	}
	c := connect(j.t, j.to, wsocket, options{agent: "mock", cwd: j.away})
	defer c.close()
	c.must("session/load", map[string]any{"sessionId": j.id, "cwd": j.away, "mcpServers": []any{}})
	if stop := c.prompt(j.id, "echo and on"); stop != "end_turn" {
		j.t.Errorf("at the target: %s", stop)
	}
	d := connect(j.t, j.from, wsocket, options{agent: "mock", cwd: j.home})
	defer d.close()
	if _, err := d.call("session/load", map[string]any{"sessionId": j.id, "cwd": j.home, "mcpServers": []any{}}); err == nil || !strings.Contains(err.Error(), "went to "+j.b.URL) {
		j.t.Errorf("at the source it is opened again: %v", err)
	}
}

// steps are those that a move makes, as its roads see them.
func (j *journey) steps() (list []string) {
	j.t.Helper()
	var mu sync.Mutex
	note := func(name string) func(string) {
		return func(step string) {
			mu.Lock()
			defer mu.Unlock()
			step = name + " " + strings.ReplaceAll(step, j.id, "ID")
			if !slices.Contains(list, step) {
				list = append(list, step)
			}
		}
	}
	j.a.on(note("source"))
	j.b.on(note("target"))
	j.finish()
	j.a.on(func(string) {})
	j.b.on(func(string) {})
	return list
}

// At each step of a move its source, its target and the command are killed. Both sides are
// whole then, one of them has the session, and the command finishes the move.
func TestTeleport_Killed(t *testing.T) {
	j := newJourney(t)
	j.pack("first")
	j.lend()
	steps := j.steps()
	for _, want := range []string{"target answered GET /v2/fs/checksums", "source answered POST /v2/sessions/ID/export", "target half of POST /v2/sessions/import", "source answered POST /v2/sessions/ID/close", "target answered POST /v2/sessions/import"} {
		if !slices.Contains(steps, want) {
			t.Fatalf("the steps of a move are %q, without %q", steps, want)
		}
	}
	for _, step := range steps {
		for _, who := range []string{"source", "target", "command"} {
			// A gateway is killed with each step that is its own, and before the other one is
			// asked to do something.
			if who != "command" && !strings.HasPrefix(step, who) && !strings.Contains(step, "asked POST") {
				continue
			}
			t.Run(who+" at "+strings.ReplaceAll(step, "/", "_"), func(t *testing.T) {
				j.t = t
				j.killedAt(step, who)
			})
		}
	}
}

func (j *journey) killedAt(step, who string) {
	j.pack(step + who)
	j.lend()
	started := make(chan *os.Process, 1)
	killed := false
	var once sync.Once
	hook := func(name string) func(string) {
		return func(at string) {
			if name+" "+strings.ReplaceAll(at, j.id, "ID") != step {
				return
			}
			once.Do(func() {
				killed = true
				switch who {
				case "source":
					j.from.kill(syscall.SIGKILL)
				case "target":
					j.to.kill(syscall.SIGKILL)
				case "command": // before it has the answer to this step
					_ = (<-started).Kill()
				}
			})
		}
	}
	j.a.on(hook("source"))
	j.b.on(hook("target"))
	told, err := j.teleportAs(started)
	j.a.passing.Wait() // what a command has asked that was killed may still be on its way
	j.b.passing.Wait()
	j.a.on(func(string) {})
	j.b.on(func(string) {})
	if !killed {
		j.t.Fatalf("the step was not reached: %s", told)
	}
	if who == "command" && err == nil {
		j.t.Errorf("the command was not killed: %s", told)
	}
	for _, g := range []*gateway{j.from, j.to} {
		if !g.alive() {
			g.start()
		}
	}
	j.settled()
	j.whole()
	j.finish()
}

// settled waits until no gateway is about to open or to close the session: one notices at
// its own time that nobody reads what it exports, for which the session is closed.
func (j *journey) settled() {
	j.t.Helper()
	deadline := time.Now().Add(patience)
	for busy := true; busy && time.Now().Before(deadline); {
		here := j.at(j.from)
		busy = here != nil && here.State == "closed" && here.Metadata.MovedTo == ""
		for _, g := range []*gateway{j.from, j.to} {
			busy = busy || exists(filepath.Join(g.dir, "travelling", "*"))
		}
	}
}

// A gateway is killed while it makes the session of what it was sent.
func TestTeleport_KilledWithin(t *testing.T) {
	j := newJourney(t)
	for name, reached := range map[string]func() bool{
		"while the file is unpacked": func() bool { return exists(filepath.Join(j.to.dir, "travelling", "*", "session", "log", "*")) },
		"while the files are made":   func() bool { return exists(filepath.Join(j.away, ".sandbox-agent-tmp-arriving", "new", "d9")) },
		"while they are put there":   func() bool { return exists(filepath.Join(j.away, "d0")) },
		"when the files are there":   func() bool { return exists(filepath.Join(j.away, ".git")) },
		"when the session is made":   func() bool { return exists(filepath.Join(j.to.dir, "sessions", j.id)) },
	} {
		t.Run(name, func(t *testing.T) {
			j.t = t
			j.pack(name)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = j.teleport()
			}()
			for over := false; !over && !reached(); {
				select {
				case <-done:
					over = true
				default:
				}
			}
			j.to.kill(syscall.SIGKILL)
			<-done
			j.to.start()
			j.settled()
			if here := j.at(j.from); here.State == "closed" && here.Metadata.MovedTo == "" {
				t.Errorf("at the source: %+v", here)
			}
			j.finish()
		})
	}
}

// A gateway is killed while it puts files together with those that are there. When it has
// started again, all of them are as they were, or the session is there with all of them new.
func TestTeleport_KilledWhileMerging(t *testing.T) {
	j := newJourney(t)
	for _, when := range []string{"undo", "before/*", "before/9*", "index.after"} {
		t.Run(strings.NewReplacer("/", "_", "*", "").Replace(when), func(t *testing.T) {
			j.t = t
			j.pack(when)
			if out, err := exec.CommandContext(t.Context(), "cp", "-a", j.home, j.away).CombinedOutput(); err != nil {
				t.Fatalf("%v, %s", err, out)
			}
			for name, content := range files(t, j.home) {
				if err := os.WriteFile(filepath.Join(j.home, name), []byte("changed "+content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(j.away, "d0", "file-0"), []byte(when+" 0\n"), 0o644); err != nil { // as it was committed
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "git", "-C", j.home, "add", "d1").CombinedOutput(); err != nil {
				t.Fatalf("%v, %s", err, out)
			}
			before := files(t, j.away)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = j.teleport()
			}()
			for over := false; !over && !exists(filepath.Join(j.away, ".sandbox-agent-tmp-arriving", when)); {
				select {
				case <-done:
					over = true
				default:
				}
			}
			j.to.kill(syscall.SIGKILL)
			<-done
			j.to.start()
			j.settled()
			if j.at(j.to) != nil {
				j.sameFiles()
			} else if after := files(t, j.away); !maps.Equal(after, before) {
				t.Errorf("the gateway has left %q", after)
			}
			j.finish()
		})
	}
}

func exists(pattern string) bool {
	found, err := filepath.Glob(pattern)
	return err == nil && len(found) > 0
}

// What is said between the export and the close ends the move before the close, and the
// command, repeated, takes it along.
func TestTeleport_GoesOnMeanwhile(t *testing.T) {
	j := newJourney(t)
	j.pack("meanwhile")
	c := connect(t, j.from, wsocket, options{agent: "mock", cwd: j.home})
	var once sync.Once
	j.a.on(func(step string) {
		if strings.HasPrefix(step, "asked POST") && strings.HasSuffix(step, "/close") {
			once.Do(func() {
				c.must("session/load", map[string]any{"sessionId": j.id, "cwd": j.home, "mcpServers": []any{}})
				if err := os.WriteFile(filepath.Join(j.home, "d0", "file-0"), []byte("changed again\n"), 0o644); err != nil {
					t.Error(err)
				}
				if stop := c.prompt(j.id, "echo said meanwhile"); stop != "end_turn" {
					t.Error(stop)
				}
			})
		}
	})
	told, err := j.teleport()
	if err == nil || !strings.Contains(told, "went on here while it was moved") {
		t.Errorf("%v, %s", err, told)
	}
	if here, there := j.at(j.from), j.at(j.to); here.State == "closed" || there == nil || there.State != "closed" {
		t.Errorf("%+v and %+v", here, there)
	}
	edit := sync.OnceFunc(func() {
		c.must("_sandboxagent/session/set_metadata", map[string]any{"sessionId": j.id, "metadata": map[string]string{"ticket": "X-1"}})
	})
	j.a.on(func(step string) {
		if strings.HasPrefix(step, "asked POST") && strings.HasSuffix(step, "/close") {
			edit()
		}
	})
	if told, err := j.teleport(); err == nil || !strings.Contains(told, "went on here while it was moved") {
		t.Errorf("what no event tells: %v, %s", err, told)
	}
	j.before = j.from.events(j.id)
	if told, err := j.teleport(); err != nil {
		t.Fatalf("%v, %s", err, told)
	}
	same(t, j.to.events(j.id), j.before)
	if there := j.at(j.to); there.Metadata.Ticket != "X-1" {
		t.Errorf("its metadata is %v", there.Metadata)
	}
	if b, err := os.ReadFile(filepath.Join(j.away, "d0", "file-0")); err != nil || string(b) != "changed again\n" {
		t.Errorf("%q, %v", b, err)
	}
	j.finish()
}
