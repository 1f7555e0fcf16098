package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// keeper stores sessions as a hub does: what it is told of it asks for, until there is no more.
type keeper struct {
	t *testing.T
	r *Runtime

	mu     sync.Mutex
	away   bool // it stores nothing
	stored map[string]uint64
	events map[string][]Event
}

func openHeld(t *testing.T, a *fakeAgent) (*Runtime, *keeper) {
	t.Helper()
	a.id = "fake"
	r := openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake", Stored: true, Durability: session.Sync})
	k := &keeper{t: t, r: r, stored: map[string]uint64{}, events: map[string][]Event{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := range r.FollowSessions(t.Context(), 0) {
			if err == nil && c.Type == ChangeSession {
				k.store(c.Session.ID)
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return r, k
}

// store stores what there is of a session, unless it is away.
func (k *keeper) store(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.away {
		events, upTo, _, err := k.r.EventsToStore(k.t.Context(), id, k.stored[id], k.stored[id], "", 100, 0)
		if err != nil || upTo == k.stored[id] {
			return // deleted, or all of it is there
		}
		k.stored[id], k.events[id] = upTo, append(k.events[id], events...)
	}
}

// leave has it store nothing more: when it returns, it does.
func (k *keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = true
}

// back has it store again, beginning with a session.
func (k *keeper) back(id string) {
	k.mu.Lock()
	k.away = false
	k.mu.Unlock()
	k.store(id)
}

// answered has the agent answer a prompt while nothing is stored, and returns when the gateway has
// the answer.
func (k *keeper) answered(a *fakeAgent, s, text string) {
	k.t.Helper()
	m := a.conn().next(k.t, "session/prompt")
	a.conn().chunk("native-1", text)
	a.conn().result(m, `{"stopReason":"end_turn"}`)
	waitFor(k.t, k.r, s, func(i SessionInfo) bool { return i.State == StateIdle && i.Unstored > 1 })
}

func TestSync_InlineAnswer(t *testing.T) {
	a := &fakeAgent{}
	r, k := openHeld(t, a)
	c := inlineClient(t, r)
	made := acp.MustParse(inlineCall(t, c, "1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`).Frame)
	s := rawjson.MemberString(made.Result(), "sessionId")
	k.leave()
	ch, err := c.Call(t.Context(), acp.NewRequest("2", "session/prompt", []byte(prompt(s, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	k.answered(a, s, "hello")
	select {
	case rep := <-ch:
		t.Fatalf("answered with %s before it was stored", rep.Frame)
	default:
	}
	k.back(s)
	select {
	case rep := <-ch:
		if !strings.Contains(string(rep.Frame), "end_turn") {
			t.Errorf("answered with %s", rep.Frame)
		}
	case <-time.After(wait):
		t.Fatal("no answer came")
	}
}

// A client loads, or deletes, the session while the answer to its prompt is not stored: it gets the answer
// once.
func TestSync_AnswerAndOtherRequests(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, method := range []string{"load", "close", "delete"} {
			t.Run(fmt.Sprintf("%s/%d", method, version), func(t *testing.T) {
				a := &fakeAgent{caps: `{"loadSession":true,"sessionCapabilities":{"close":{},"delete":{}}}`}
				r, k := openHeld(t, a)
				connected := connect
				if version == 2 {
					connected = connectTwo
				}
				tc := connected(t, r, "")
				s := tc.session()
				k.leave()
				turn := tc.request("session/prompt", prompt(s, "x"))
				k.answered(a, s, "hello")
				params := fmt.Sprintf(`{"sessionId":%q}`, s)
				if method == "load" && version == 2 {
					method = "resume"
				}
				if method == "load" || method == "resume" {
					params = fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s)
				}
				other := tc.request("session/"+method, params)
				if method != "delete" { // what is of no use to anybody else is told at once
					k.back(s)
				}
				answers := map[acp.ID]int{}
				for answers[turn] == 0 || answers[other] == 0 {
					select {
					case m := <-a.conn().got:
						a.conn().result(m, `{}`)
					case m := <-tc.frames:
						if m.IsResponse() {
							if answers[m.ID()]++; m.Err() != nil {
								t.Errorf("%s", m.Frame())
							}
						}
					case <-time.After(wait):
						t.Fatalf("answers: %v", answers)
					}
				}
				if method == "load" || method == "resume" { // what comes next comes behind all of it
					tc.call("_sandboxagent/session/pending", params)
				}
				if answers[turn] != 1 || answers[other] != 1 {
					t.Errorf("answers: %v", answers)
				}
			})
		}
	}
}

// A gateway that is started again shows what was stored, takes who has seen more for right, and goes on
// when the rest is stored.
func TestSync_StartedAgain(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{}}}`}
	r, k := openHeld(t, a)
	tc := connect(t, r, "")
	s := tc.session()
	turn := tc.request("session/prompt", prompt(s, "x"))
	m := a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "shown")
	a.conn().result(m, `{"stopReason":"end_turn"}`)
	tc.until(turn)
	k.leave()
	tc.request("session/prompt", prompt(s, "y"))
	k.answered(a, s, "hidden")
	before, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	shown := before.EventCount
	dir := r.o.DataDir
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := openRuntime(t, Options{DataDir: dir, Version: "test", Adapters: []adapters.Adapter{&fakeAgent{id: "fake", caps: a.caps}}, DefaultAgent: "fake", Stored: true, Durability: session.Sync})
	info, err := again.Session(s)
	if err != nil || info.EventCount != shown || info.Unstored == 0 {
		t.Errorf("it shows %d events, want %d, and holds %d back: %v", info.EventCount, shown, info.Unstored, err)
	}
	events, _, err := again.Events(t.Context(), s, 0, 1000)
	if err != nil || uint64(len(events)) != shown || strings.Contains(string(events[len(events)-1].Message), "hidden") {
		t.Errorf("it gives %d events: %v", len(events), err)
	}
	k = &keeper{t: t, r: again, stored: k.stored, events: k.events}
	k.store(s)
	if events, _, err = again.Events(t.Context(), s, shown, 1000); err != nil || len(events) == 0 || uint64(len(k.events[s])) != shown+uint64(len(events)) {
		t.Errorf("when they are stored it gives %d more, and %d are stored: %v", len(events), len(k.events[s]), err)
	}
	// Without a hub nobody could wait for anything.
	ctx := t.Context()
	if err := again.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	alone := openRuntime(t, Options{DataDir: dir, Version: "test", Adapters: []adapters.Adapter{&fakeAgent{id: "fake"}}, DefaultAgent: "fake"})
	if info, err := alone.Session(s); err != nil || info.Durability != "" || info.Unstored != 0 {
		t.Errorf("without a hub: %+v, %v", info, err)
	}
}

// What a client says is given to who stores it with what is said to it, or by itself when that takes its time.
func TestSync_PromptIsStoredBeforeItsAnswer(t *testing.T) {
	a := &fakeAgent{}
	r, k := openHeld(t, a)
	tc := connect(t, r, "")
	s := tc.session()
	k.store(s)
	k.leave()
	k.mu.Lock()
	after := k.stored[s]
	k.mu.Unlock()
	type page struct {
		events []Event
		upTo   uint64
		err    error
	}
	pages := make(chan page, 1)
	ask := func() {
		events, upTo, _, err := r.EventsToStore(t.Context(), s, after, after, "", 100, time.Minute)
		pages <- page{events, upTo, err}
	}
	go ask()
	tc.request("session/prompt", prompt(s, "x"))
	m := a.conn().next(t, "session/prompt")
	for i, want := range []string{"session/prompt", "hello"} {
		if i > 0 {
			go ask()
			a.conn().chunk("native-1", "hello")
		}
		select {
		case p := <-pages:
			var all strings.Builder
			for _, e := range p.events {
				all.Write(e.Message)
			}
			if p.err != nil || p.upTo <= after || !strings.Contains(all.String(), want) {
				t.Fatalf("%s: %s up to %d, %v", want, all.String(), p.upTo, p.err)
			}
			after = p.upTo
		case <-time.After(wait):
			t.Fatalf("%s is not given", want)
		}
	}
	a.conn().result(m, `{"stopReason":"end_turn"}`)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateIdle })
	k.back(s)
}

// A gateway is killed when a fork is a session and has not got all of what goes before: that is told.
func TestFork_IsInterrupted(t *testing.T) {
	a := &fakeAgent{caps: `{"sessionCapabilities":{"fork":{}}}`}
	r, k := openHeld(t, a)
	tc := connect(t, r, "")
	s, killed := tc.session(), t.TempDir()
	k.leave()
	id := tc.request("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	a.conn().result(a.conn().next(t, "session/fork"), `{"sessionId":"fork"}`)
	var record []byte
	waitFor(t, r, "fork", func(SessionInfo) bool { // it is kept
		var err error
		record, err = os.ReadFile(filepath.Join(r.o.DataDir, "sessions", "fork", "session.json"))
		return err == nil
	})
	left := filepath.Join(killed, "sessions", "fork")
	if err := errors.Join(os.MkdirAll(left, 0o700), os.WriteFile(filepath.Join(left, "session.json"), record, 0o600)); err != nil {
		t.Fatal(err)
	}
	k.back("fork")
	if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "historyIncomplete") != "" {
		t.Errorf("%s", res.Frame())
	}
	if info, err := newRuntime(t, killed, &fakeAgent{}).Session("fork"); err != nil || !info.HistoryIncomplete {
		t.Errorf("%+v, %v", info, err)
	}
}
