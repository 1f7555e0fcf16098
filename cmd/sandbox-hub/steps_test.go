package main_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/join"
)

// stop is a request of a move at which a test stops it.
type stop struct {
	name  string
	there bool // it is one to the node to which the session goes
	ends  bool // it is also stopped when it is done; what comes next stands for that else
	is    func(r *http.Request, session string) bool
}

func ofSession(method, rest string) func(*http.Request, string) bool {
	return func(r *http.Request, session string) bool {
		return r.Method == method && r.URL.Path == "/v2/sessions/"+session+rest && !r.URL.Query().Has("log")
	}
}

func ofPath(path string) func(*http.Request, string) bool {
	return func(r *http.Request, _ string) bool { return r.URL.Path == path }
}

// stops are the requests of a move that tell its steps apart, in their order.
var stops = []stop{
	{"claim", true, true, ofSession(http.MethodGet, "")},
	{"look", false, true, ofSession(http.MethodGet, "")},
	{"export", false, true, ofSession(http.MethodGet, "/export")},
	{"import", true, false, ofPath("/v2/sessions/import")},
	{"depart", false, true, ofSession(http.MethodPost, "/close")},
	{"open", true, false, ofPath("/v2/rpc")},
}

// overseen is a gateway in a process of its own whose tunnel the test holds, so that it sees each request of the hub.
type overseen struct {
	f       *fleet
	name    string
	file    string // with the token to join
	gateway *program
	w       *wire // to the hub

	leave context.CancelFunc
	done  chan struct{}

	mu   sync.Mutex
	meet func(w http.ResponseWriter, r *http.Request, serve http.Handler) bool
}

func (f *fleet) oversee(t *testing.T, name string) *overseen {
	t.Helper()
	dir := t.TempDir()
	n := &overseen{f: f, name: name, file: filepath.Join(dir, "join-token")}
	if err := os.WriteFile(n.file, []byte(f.command("token", "create", "--kind", "join")), 0o600); err != nil {
		t.Fatal(err)
	}
	n.gateway = startProgram(t, "sandbox-agent", "server", "--port", "0", "--token", "the-nodes-own-token", "--default-agent", "mock", "--data-dir", filepath.Join(dir, "data"))
	n.w = newWire(t, strings.TrimPrefix(f.url, "http://"))
	n.join(t)
	f.hasJoined(name)
	t.Cleanup(n.gone)
	return n
}

func (n *overseen) join(t *testing.T) {
	t.Helper()
	at, err := url.Parse(n.gateway.url)
	if err != nil {
		t.Fatal(err)
	}
	serve := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(at)
			p.Out.Header.Set("Authorization", "Bearer the-nodes-own-token")
		},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as it breaks off
	}
	j, err := join.New(join.Options{Hub: &url.URL{Scheme: "http", Host: n.w.addr()}, TokenFile: n.file, Name: n.name, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	j.SetAgents([]string{"mock"})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		meet := n.meet
		n.mu.Unlock()
		if meet == nil || !meet(w, r, serve) {
			serve.ServeHTTP(w, r)
		}
	})}
	ctx, leave := context.WithCancel(context.Background())
	n.leave, n.done = leave, make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(j.Listener())
	}()
	go func() {
		defer close(n.done)
		j.Run(ctx)
		_ = srv.Close()
		<-served
	}()
}

// gone ends what a gateway that is killed ends: its connections break, without a word.
func (n *overseen) gone() {
	n.w.cut()
	n.leave()
	<-n.done
}

// killed kills the gateway, has what was stopped go on, and starts the gateway again.
func (n *overseen) killed(t *testing.T, on chan struct{}) {
	t.Helper()
	n.gateway.kill(syscall.SIGKILL)
	n.w.cut()
	n.leave()
	close(on)
	<-n.done
	n.gateway.start()
	n.join(t)
}

// stopAt stops the first request that fits, before the gateway has it or when that has answered: reached is closed then, and it goes on when on
// is.
func (n *overseen) stopAt(is func(*http.Request) bool, behind bool) (reached, on chan struct{}) {
	reached, on = make(chan struct{}), make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meet = func(w http.ResponseWriter, r *http.Request, serve http.Handler) bool {
		if !is(r) {
			return false
		}
		n.mu.Lock()
		n.meet = nil
		n.mu.Unlock()
		if behind {
			answer := httptest.NewRecorder()
			serve.ServeHTTP(answer, r)
			defer func() {
				maps.Copy(w.Header(), answer.Header())
				w.WriteHeader(answer.Code)
				_, _ = w.Write(answer.Body.Bytes())
			}()
		}
		close(reached)
		<-on
		return behind
	}
	return reached, on
}

// Whoever takes part in a move is killed at each of its requests, before it comes or when it is done, and comes back: one node has the
// session, with all that was said, and it can be prompted by who had it open and by others, and moved on.
func TestMove_KilledAtEachStep(t *testing.T) {
	for _, victim := range []string{"the hub", "the node that has it", "the node to which it goes"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			f := startHub(t)
			nodes := map[string]*overseen{"one": f.oversee(t, "one"), "two": f.oversee(t, "two")}
			for _, at := range stops {
				t.Log("before", at.name)
				f.killedAt(t, nodes, victim, at, false)
				if at.ends {
					t.Log("behind", at.name)
					f.killedAt(t, nodes, victim, at, true)
				}
			}
		})
	}
}

// A node was killed, and is there again before the way of an editor's connection to it is: what is prompted then waits for that, and is run
// once.
func TestPrompt_NodeIsThereBeforeItsConnection(t *testing.T) {
	f := startHub(t)
	n := f.oversee(t, "one")
	e := startEditor(t, f.url, f.admin)
	id := e.session()
	e.prompt(id, "echo first")
	e.must()
	n.gateway.kill(syscall.SIGKILL)
	n.gone()
	reached, on := n.stopAt(func(r *http.Request) bool { return r.URL.Path == "/v2/rpc" }, false)
	goOn := sync.OnceFunc(func() { close(on) })
	defer goOn()
	n.gateway.start()
	n.join(t)
	<-reached
	f.await("the node is there", func() bool { return f.answers("/nodes/one/v2/health") })
	e.prompt(id, "echo second")
	prompt := fmt.Sprint(e.id)
	e.request("session/list", `{}`) // the hub itself answers it, when it has the prompt
	answered := func() string {
		for {
			if m := e.next(); m.Method == "" {
				return fmt.Sprint(m.ID, " ", m.Result.StopReason, string(m.Error))
			}
		}
	}
	if got := answered(); got != fmt.Sprint(e.id, " ") {
		t.Fatalf("while there is no connection, it is answered %s", got)
	}
	goOn()
	if got := answered(); got != prompt+" end_turn" {
		t.Errorf("it is answered %s", got)
	}
	if all := f.transcript(id, "second"); strings.Count(all, "\nsecond") != 1 {
		t.Errorf("it was not run once:\n%s", all)
	}
}

var other = map[string]string{"one": "two", "two": "one"}

func (f *fleet) killedAt(t *testing.T, nodes map[string]*overseen, victim string, at stop, behind bool) {
	t.Helper()
	e := startEditor(t, f.url, f.admin)
	defer e.end()
	id := e.session()
	e.prompt(id, "echo first")
	e.must()
	f.await("what the agent keeps is there", func() bool {
		s := f.session(id)
		return s.EventCount > 0 && s.Replica.Bundle == s.EventCount && s.Replica.Missing == 0
	})
	from := f.session(id).Node
	to := other[from]
	asked := nodes[from]
	if at.there {
		asked = nodes[to]
	}
	reached, on := asked.stopAt(func(r *http.Request) bool { return at.is(r, id) }, behind)
	moved := make(chan string, 1)
	move := f.runs("session", "move", id, "--to", to)
	go func() {
		out, err := move.CombinedOutput()
		moved <- fmt.Sprintf("%s (%v)", bytes.TrimSpace(out), err)
	}()
	select {
	case <-reached:
	case out := <-moved:
		t.Fatalf("the move has not come to it: %s", out)
	}
	switch victim {
	case "the hub":
		f.kill(syscall.SIGKILL)
		close(on)
		for _, n := range nodes {
			n.gone()
		}
		f.start()
		for _, n := range nodes {
			n.join(t)
		}
	case "the node that has it":
		nodes[from].killed(t, on)
	default:
		nodes[to].killed(t, on)
	}
	t.Logf("the move: %s", <-moved)
	f.await("the nodes are there", func() bool { return f.answers("/nodes/one/v2/health") && f.answers("/nodes/two/v2/health") })
	e.prompt(id, "echo second")
	if end := e.response(func() {}); end.Result.StopReason != "end_turn" {
		t.Errorf("who had it open got %s %s", end.Result.StopReason, end.Error)
	}
	f.hubPrompt(id, "echo third")
	next := other[f.owned(t, id, "first", "second", "third")]
	f.await("it can be moved", func() bool {
		_, code := f.try("session", "move", id, "--to", next)
		return code == 0
	})
	f.hubPrompt(id, "echo fourth")
	if got := f.owned(t, id, "first", "second", "third", "fourth"); got != next {
		t.Errorf("it is at %s", got)
	}
}

// owned returns the one node that has a session open. No move of it goes on, and all that was said is there once, in its order.
func (f *fleet) owned(t *testing.T, id string, said ...string) (node string) {
	t.Helper()
	f.await("one node has it", func() bool {
		s := f.session(id)
		open := []string{}
		for _, name := range []string{"one", "two"} {
			var there struct{ State string }
			if f.find("/nodes/"+name+"/v2/sessions/"+id, &there) && there.State != "closed" {
				open = append(open, name)
			}
		}
		node = s.Node
		return slices.Equal(open, []string{node}) && (s.Moves == nil || s.Moves.To == "")
	})
	all := f.transcript(id, said[len(said)-1])
	at := -1
	for _, text := range said {
		next := strings.Index(all, "\n"+text)
		if next <= at || strings.Count(all, "\n"+text) != 1 {
			t.Errorf("%q stands at %d and %d times:\n%s", text, next, strings.Count(all, "\n"+text), all)
		}
		at = next
	}
	return node
}
