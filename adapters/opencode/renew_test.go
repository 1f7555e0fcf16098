package opencode

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// listener is an OpenCode that keeps what it is asked for.
type listener struct {
	mu    sync.Mutex
	asked []string
	then  func(what string) // does something before the answer; may be nil
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	l.mu.Lock()
	l.asked = append(l.asked, what)
	l.mu.Unlock()
	if l.then != nil {
		l.then(what)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (l *listener) was(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.asked, what)
}

// OpenCode reads credentials again before a prompt that comes when they were refused. That waits for who opens a session in the same
// directory. Who cancels the prompt meanwhile has it over at once, and OpenCode is not given it later.
func TestRenew_CancelledWhileItWaits(t *testing.T) {
	l := &listener{}
	s := beside(t, latecomer{}, l)
	box := s.a.tools.at(s.srv, s.cwd)
	box.stale.Store(true)
	if err := box.open.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := make(chan *turn.Turn[work], 1)
	script := s.script(&call{path: "/message", body: map[string]any{}, turn: true})
	begin := script.Begin
	script.Begin = func(w *turn.Waiting, one *turn.Turn[work]) error {
		defer func() { begun <- one }()
		return begin(w, one)
	}
	over := make(chan *schema.PromptResponse, 1)
	go func() {
		r, err := s.turns.Prompt(context.Background(), script)
		if err != nil {
			t.Error(err)
		}
		over <- r
	}()
	(<-begun).Stop()
	if r := <-over; r == nil || r.StopReason != schema.StopReasonCancelled {
		t.Errorf("it ended with %v", r)
	}
	box.open.leave()
	s.work.Wait()
	if l.was("POST /session/S/message") || l.was("POST /instance/dispose") {
		t.Errorf("OpenCode is asked for %q", l.asked)
	}
}

// Two prompts of one directory may both come before OpenCode has read credentials again. One of them has it do so: neither leaves that to
// the other.
func TestRenew_TwoPromptsAtOnce(t *testing.T) {
	l := &listener{}
	one := beside(t, latecomer{}, l)
	two := one.a.newSession(one.srv, "T", &setup{Setup: &bridge.Setup{Cwd: one.cwd}}, &catalog{})
	if err := one.a.register(two); err != nil {
		t.Fatal(err)
	}
	defer two.quit()
	box := one.a.tools.at(one.srv, one.cwd)
	box.stale.Store(true)
	if err := box.open.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	var turns []*turn.Turn[work]
	var prompts sync.WaitGroup
	for _, s := range []*session{one, two} {
		begun := make(chan *turn.Turn[work], 1)
		script := s.script(&call{path: "/message", body: map[string]any{}, turn: true})
		begin := script.Begin
		script.Begin = func(w *turn.Waiting, one *turn.Turn[work]) error {
			defer func() { begun <- one }()
			return begin(w, one)
		}
		prompts.Go(func() { _, _ = s.turns.Prompt(context.Background(), script) })
		turns = append(turns, <-begun)
	}
	box.open.leave()
	for _, one := range turns {
		<-one.Work.posted
		one.Stop()
	}
	prompts.Wait()
	if !l.was("POST /instance/dispose") || box.stale.Load() {
		t.Errorf("OpenCode is asked for %q", l.asked)
	}
}

// What OpenCode has begun to read again goes on when the prompt is cancelled for which it does so: the MCP servers of the
// directory, which end with that, are others' as well.
func TestRenew_CancelledWhileServersStart(t *testing.T) {
	starts, may := make(chan struct{}), make(chan struct{})
	l := &listener{then: func(what string) {
		if what == "POST /mcp" {
			close(starts)
			<-may
		}
	}}
	s := beside(t, latecomer{}, l)
	box := s.a.tools.at(s.srv, s.cwd)
	box.all["files"] = &tool{config: []byte(`{}`), users: map[schema.SessionID]bool{"S": true, "another": true}}
	box.stale.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan struct{})
	go func() {
		defer close(given)
		s.renew(ctx, func() {})
	}()
	<-starts
	cancel()
	<-given
	if box.open.tryAlone() {
		t.Error("others go on before the servers have started")
	}
	close(may)
	s.work.Wait()
	if got := box.all["files"].failed; got != "opencode does not say why" { // its answer to the start
		t.Errorf("the server: %s", got)
	}
	if box.stale.Load() || !box.open.tryAlone() {
		t.Error("it is not done")
	}
}

// A session that is opened may have an MCP server that takes long to start. Another one of the same directory is closed meanwhile, and
// OpenCode forgets the directory when nobody is in it any more.
func TestClose_BesideAnOpeningThatTakesLong(t *testing.T) {
	starts, may := make(chan struct{}), make(chan struct{})
	l := &listener{then: func(what string) {
		if what == "POST /mcp" {
			close(starts)
			<-may
		}
	}}
	s := beside(t, latecomer{}, l)
	up := &setup{Setup: &bridge.Setup{Cwd: s.cwd}, servers: []mcpServer{{"files", []byte(`{}`)}}}
	o := &opening{up: up, srv: s.srv, box: s.a.tools.at(s.srv, s.cwd), free: func() {}}
	if err := o.box.open.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		o.own, _ = o.box.start(t.Context(), s.srv, up)
		o.done(t.Context()) // it could not be opened
	}()
	<-starts
	if _, err := s.a.CloseSession(t.Context(), &schema.CloseSessionRequest{SessionID: s.id}); err != nil {
		t.Error(err)
	}
	if l.was("POST /instance/dispose") {
		t.Error("OpenCode forgets a directory in which a session is opened")
	}
	close(may)
	<-over
	if !l.was("POST /instance/dispose") {
		t.Error("OpenCode does not forget the directory")
	}
}

// Who waits before a door may give up, and keeps nobody out then.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		givesUp, giveUp := context.WithCancel(t.Context())
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		must(d.enter(t.Context()))
		gone := make(chan error, 1)
		go func() { gone <- d.enterAlone(givesUp) }()
		synctest.Wait()
		must(d.enter(t.Context()))
		giveUp()
		if err := <-gone; err == nil {
			t.Error("it is alone with two others")
		}
		entered := make(chan error, 2)
		go func() { entered <- d.enterAlone(t.Context()) }()
		d.leave()
		synctest.Wait()
		if d.tryAlone() || len(entered) > 0 {
			t.Error("it is alone with another")
		}
		d.leave()
		must(<-entered)
		go func() { entered <- d.enter(t.Context()) }()
		synctest.Wait()
		if d.tryAlone() || len(entered) > 0 {
			t.Error("somebody has entered beside who is alone")
		}
		d.leave()
		must(<-entered)
		d.leave()
		if !d.tryAlone() {
			t.Error("nobody is there, and it cannot be entered")
		}
	})
}
