package turn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

const bound = 20 * time.Second

var errGone = acp.Errorf(acp.CodeInternal, "it is gone")

// agent is one whose turns do what a test says, on its one session.
type agent struct {
	conn  *bridge.Conn
	turns *turn.Turns[string]
	gone  chan struct{}
	stop  context.CancelFunc

	begin func(w *turn.Waiting, t *turn.Turn[string]) error
	halt  func(ctx context.Context, t *turn.Turn[string])
	kill  func(t *turn.Turn[string])
	end   func(t *turn.Turn[string], v turn.Verdict) turn.Verdict

	mu  sync.Mutex
	log []string
}

func (a *agent) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, fmt.Sprintf(format, args...))
}

func (a *agent) noted() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

func (a *agent) Initialize(context.Context, *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	return &schema.InitializeResponse{ProtocolVersion: 1}, nil
}

func (a *agent) NewSession(context.Context, *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	return &schema.NewSessionResponse{SessionID: "S"}, nil
}

func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	return a.turns.Prompt(ctx, turn.Script[string]{
		Gone: a.gone, Exit: func() error { return errGone }, Log: slog.New(slog.DiscardHandler),
		Begin: func(w *turn.Waiting, t *turn.Turn[string]) error {
			t.Work = r.Prompt[0].Text.Text
			a.note("begin %s", t.Work)
			return a.begin(w, t)
		},
		Stop: func(ctx context.Context, t *turn.Turn[string]) {
			a.note("stop %s", t.Work)
			a.halt(ctx, t)
		},
		Bound: bound, Kill: a.kill, End: a.end,
	})
}
func (a *agent) Cancel(context.Context, *schema.CancelNotification) error { return nil }
func (a *agent) Close() error                                             { a.stop(); return nil }

func open() *agent {
	a := &agent{
		gone:  make(chan struct{}),
		begin: func(*turn.Waiting, *turn.Turn[string]) error { return nil },
		halt:  func(context.Context, *turn.Turn[string]) {},
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	a.turns = turn.New[string](ctx)
	a.conn = bridge.New(func(acp.Peer, *bridge.Conn) acp.Agent { return a })
	return a
}

// prompt sends a prompt and waits until nothing moves.
func (a *agent) prompt(t *testing.T, id int64, text string) {
	t.Helper()
	params, err := schema.Encode(&schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock(text)}})
	if err == nil {
		err = a.conn.Write(t.Context(), acp.NewRequest(acp.IntID(id), acp.MethodSessionPrompt, params))
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (a *agent) cancel(t *testing.T) {
	t.Helper()
	n := acp.NewNotification(acp.MethodSessionCancel, rawjson.Object{}.String("sessionId", "S").End())
	if err := a.conn.Write(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// answer reads the next response: its id, and the stop reason or the error.
func (a *agent) answer(t *testing.T) (id, how string) {
	t.Helper()
	m, err := a.conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := m.Err(); e != nil {
		return string(m.ID()), e.Message
	}
	return string(m.ID()), rawjson.MemberString(m.Result(), "stopReason")
}

func (a *agent) wantAnswer(t *testing.T, id, how string) {
	t.Helper()
	if gotID, got := a.answer(t); gotID != id || got != how {
		t.Errorf("prompt %s ended with %q, want %s with %q", gotID, got, id, how)
	}
}

// TestPrompt_WhatEndsATurn has a row for each event in each state of a turn.
func TestPrompt_WhatEndsATurn(t *testing.T) {
	done := turn.Verdict{Reason: schema.StopReasonEndTurn}
	fails := turn.Verdict{Err: errors.New("it failed")}
	settle := func(v turn.Verdict) func(*testing.T, *agent) {
		return func(_ *testing.T, a *agent) { a.turns.Current().Settle(v) }
	}
	cancel := func(t *testing.T, a *agent) { a.cancel(t) }
	die := func(_ *testing.T, a *agent) { close(a.gone) }
	wanted := func(_ *testing.T, a *agent) { a.turns.Current().Stop() }
	pass := func(*testing.T, *agent) { time.Sleep(2 * bound) }
	for _, tt := range []struct {
		name    string
		events  []func(*testing.T, *agent)
		kill    bool // the agent can be ended
		want    string
		stopped bool // the agent was told to stop
	}{
		{name: "settled", events: []func(*testing.T, *agent){settle(done)}, want: "end_turn"},
		{name: "settled as failed", events: []func(*testing.T, *agent){settle(fails)}, want: "it failed"},
		{name: "settled twice", events: []func(*testing.T, *agent){func(_ *testing.T, a *agent) {
			one := a.turns.Current()
			one.Settle(done)
			if one.Settle(fails) || a.turns.Current() != nil {
				t.Error("the second verdict counts")
			}
		}}, want: "end_turn"},
		{name: "gone", events: []func(*testing.T, *agent){die}, want: errGone.Message},
		{name: "settled and gone", events: []func(*testing.T, *agent){settle(done), die}, want: "end_turn"},
		{name: "a long turn", events: []func(*testing.T, *agent){pass, pass, settle(done)}, want: "end_turn"},
		{name: "cancelled, settled", events: []func(*testing.T, *agent){cancel, settle(done)}, want: "cancelled", stopped: true},
		{name: "cancelled, settled as failed", events: []func(*testing.T, *agent){cancel, settle(fails)}, want: "cancelled", stopped: true},
		{name: "cancelled twice", events: []func(*testing.T, *agent){cancel, cancel, settle(done)}, want: "cancelled", stopped: true},
		{name: "cancelled, gone", events: []func(*testing.T, *agent){cancel, die}, want: "cancelled", stopped: true},
		{name: "its end wanted, settled", events: []func(*testing.T, *agent){wanted, settle(fails)}, want: "cancelled", stopped: true},
		{name: "its end wanted, cancelled", events: []func(*testing.T, *agent){wanted, cancel, settle(done)}, want: "cancelled", stopped: true},
		{name: "settled, then its end wanted", events: []func(*testing.T, *agent){func(_ *testing.T, a *agent) {
			one := a.turns.Current()
			one.Settle(done)
			one.Stop()
		}}, want: "end_turn"},
		{name: "cancelled and left", events: []func(*testing.T, *agent){cancel, pass}, want: "cancelled", stopped: true},
		{name: "cancelled and killed", events: []func(*testing.T, *agent){cancel, pass}, kill: true, want: "cancelled", stopped: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := open()
				defer func() { _ = a.conn.Close() }()
				var ended []turn.Verdict
				a.end = func(_ *turn.Turn[string], v turn.Verdict) turn.Verdict {
					ended = append(ended, v)
					return v
				}
				if tt.kill {
					a.kill = func(*turn.Turn[string]) { close(a.gone) }
				}
				a.prompt(t, 1, "one")
				for _, event := range tt.events {
					event(t, a)
					synctest.Wait()
				}
				a.wantAnswer(t, "1", tt.want)
				synctest.Wait()
				if len(ended) != 1 || ended[0].Left != (tt.name == "cancelled and left") {
					t.Errorf("ended as %+v", ended)
				}
				if stopped := slices.Contains(a.noted(), "stop one"); stopped != tt.stopped {
					t.Errorf("told to stop: %v", stopped)
				}
				if a.turns.Busy() || a.turns.Current() != nil {
					t.Error("something is left of the turn")
				}
			})
		})
	}
}

func TestPrompt_WaitsForThoseBeforeAndForWhatRunsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open()
		defer func() { _ = a.conn.Close() }()
		a.turns.Own("x")
		a.turns.Own("y")
		a.prompt(t, 1, "one")
		a.prompt(t, 2, "two")
		if !a.turns.Alone() || len(a.noted()) > 0 {
			t.Fatalf("%v has begun", a.noted())
		}
		a.turns.OwnOver("x", "unknown")
		synctest.Wait()
		if !a.turns.Owns("y") || len(a.noted()) > 0 {
			t.Fatalf("%v has begun", a.noted())
		}
		a.turns.OwnOver("y")
		synctest.Wait()
		first := a.turns.Current()
		if got := a.noted(); len(got) != 1 || first == nil || a.turns.Alone() {
			t.Fatalf("%v has begun", got)
		}
		if _, ok := a.turns.Hold(); ok {
			t.Error("it can be held while a turn runs")
		}
		first.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		synctest.Wait()
		second := a.turns.Current()
		if second == nil || second == first || first.Settle(turn.Verdict{}) {
			t.Fatal("the second prompt has no turn of its own")
		}
		first.Stop()
		second.Settle(turn.Verdict{Reason: schema.StopReasonRefusal})
		for _, want := range []string{"end_turn", "refusal"} {
			if _, got := a.answer(t); got != want {
				t.Errorf("it ended with %s, want %s", got, want)
			}
		}
		synctest.Wait()
		release, ok := a.turns.Hold()
		if !ok {
			t.Fatal("it cannot be held")
		}
		a.prompt(t, 3, "three")
		if a.turns.Current() != nil {
			t.Error("a turn has begun while they were held")
		}
		release()
		synctest.Wait()
		a.turns.Current().Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		a.wantAnswer(t, "3", "end_turn")
	})
}

// Who ends what the agent does by itself ends no prompt with it: the next one waits.
func TestTurns_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open()
		defer func() { _ = a.conn.Close() }()
		a.turns.Own("by itself")
		a.prompt(t, 1, "one")
		release, ok := a.turns.Pause()
		if !ok {
			t.Fatal("a prompt that waits is worked on")
		}
		a.turns.OwnOver("by itself")
		synctest.Wait()
		if a.turns.Current() != nil || a.turns.Alone() {
			t.Error("a turn has begun in the pause")
		}
		release()
		synctest.Wait()
		if _, ok := a.turns.Pause(); ok {
			t.Error("there is a pause while a turn runs")
		}
		a.turns.Current().Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		a.wantAnswer(t, "1", "end_turn")
	})
}

// The end of a session cancels the prompts that wait, and the one that runs: when its agent goes, or has stopped it.
func TestTurns_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open()
		defer func() { _ = a.conn.Close() }()
		a.prompt(t, 1, "one")
		a.prompt(t, 2, "two")
		a.turns.Close()
		a.turns.Close()
		a.wantAnswer(t, "2", "cancelled")
		close(a.gone)
		a.wantAnswer(t, "1", "cancelled")
		a.prompt(t, 3, "three")
		a.wantAnswer(t, "3", "cancelled")
		if got := a.noted(); !slices.Equal(got, []string{"begin one", "stop one"}) {
			t.Errorf("%v", got)
		}
	})
}

// Who ends a session at such an agent waits until the turn has ended, but not for ever.
func TestTurns_Drain(t *testing.T) {
	for name, ends := range map[string]bool{"the turn ends": true, "the turn does not end": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := open()
				defer func() { _ = a.conn.Close() }()
				a.halt = func(ctx context.Context, one *turn.Turn[string]) {
					<-time.After(time.Second)
					if ends {
						one.Settle(turn.Verdict{})
					}
				}
				a.prompt(t, 1, "one")
				a.prompt(t, 2, "two")
				began := time.Now()
				within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				a.turns.Drain(within)
				want := 3 * time.Second
				if ends {
					want = time.Second
				}
				if took := time.Since(began); took != want {
					t.Errorf("it took %s", took)
				}
				a.turns.Drain(within)
				if !ends {
					close(a.gone)
				}
				a.wantAnswer(t, "2", "cancelled")
				a.wantAnswer(t, "1", "cancelled")
			})
		})
	}
}

// An agent that serves other sessions goes on when one of them is closed, also while it takes a prompt.
func TestTurns_CloseWhileATurnBegins(t *testing.T) {
	there := make(chan struct{})
	close(there)
	for name, tt := range map[string]struct {
		begins func(w *turn.Waiting) error
		begun  bool
	}{
		"its prompt is given":                {func(*turn.Waiting) error { return nil }, true},
		"what it waits for is there already": {func(w *turn.Waiting) error { return w.For(there) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // of two channels that are closed either may be taken
				synctest.Test(t, func(t *testing.T) {
					a := open()
					defer func() { _ = a.conn.Close() }()
					may := make(chan struct{})
					begun := false
					a.begin = func(w *turn.Waiting, _ *turn.Turn[string]) error {
						<-may
						err := tt.begins(w)
						begun = err == nil
						return err
					}
					a.halt = func(_ context.Context, one *turn.Turn[string]) { one.Settle(turn.Verdict{}) }
					a.prompt(t, 1, "one")
					a.turns.Close()
					close(may)
					a.wantAnswer(t, "1", "cancelled")
					if begun != tt.begun {
						t.Errorf("it has begun: %v", begun)
					}
				})
			}
		})
	}
}

// What runs beside a turn has ended when it is closed: it opens nothing behind that.
func TestTurns_EndComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open()
		defer func() { _ = a.conn.Close() }()
		over := false
		a.begin = func(_ *turn.Waiting, t *turn.Turn[string]) error {
			t.Go(func(ctx context.Context) {
				<-ctx.Done()
				over = true
			})
			return nil
		}
		a.end = func(_ *turn.Turn[string], v turn.Verdict) turn.Verdict {
			if !over {
				t.Error("something runs beside a turn that is closed")
			}
			return v
		}
		a.prompt(t, 1, "one")
		a.turns.Current().Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		a.wantAnswer(t, "1", "end_turn")
	})
}

func TestPrompt_EndsWhileItWaits(t *testing.T) {
	var never chan struct{}
	for name, tt := range map[string]struct {
		begin func(w *turn.Waiting, _ *turn.Turn[string]) error // of the first
		end   func(*testing.T, *agent)
		want  string
	}{
		"cancelled": {
			func(w *turn.Waiting, _ *turn.Turn[string]) error { return w.For(never) },
			func(t *testing.T, a *agent) { a.cancel(t) }, "cancelled",
		},
		"cancelled in a bounded wait": {
			func(w *turn.Waiting, _ *turn.Turn[string]) error { return w.ForAtMost(time.Hour, never) },
			func(t *testing.T, a *agent) { a.cancel(t) }, "cancelled",
		},
		"gone": {
			func(w *turn.Waiting, _ *turn.Turn[string]) error { return w.For(never) },
			func(_ *testing.T, a *agent) { close(a.gone) }, errGone.Message,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := open()
				defer func() { _ = a.conn.Close() }()
				a.begin = tt.begin
				a.prompt(t, 1, "one")
				a.prompt(t, 2, "two")
				tt.end(t, a)
				for range 2 {
					if id, got := a.answer(t); got != tt.want {
						t.Errorf("prompt %s ended with %q, want %q", id, got, tt.want)
					}
				}
				if got := a.noted(); len(got) != 1 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// TestTurn_Go: what runs beside a turn has ended when its prompt is answered.
func TestTurn_Go(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open()
		defer func() { _ = a.conn.Close() }()
		ended := false
		a.begin = func(_ *turn.Waiting, one *turn.Turn[string]) error {
			one.Go(func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended = true
			})
			return nil
		}
		a.prompt(t, 1, "one")
		one := a.turns.Current()
		one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
		a.wantAnswer(t, "1", "end_turn")
		if !ended {
			t.Error("it goes on")
		}
		one.Go(func(context.Context) { t.Error("it runs behind its turn") })
		synctest.Wait()
	})
}

func TestAsks(t *testing.T) {
	var asks turn.Asks
	first, done, ok := asks.Begin(t.Context(), "1")
	if !ok {
		t.Fatal("no room for one")
	}
	second, _, _ := asks.Begin(t.Context(), "2")
	asks.Withdraw("1")
	asks.Withdraw("unknown")
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("withdrawn: %v, %v", first.Err(), second.Err())
	}
	for i := 3; i <= turn.MaxAsks; i++ {
		if _, _, ok := asks.Begin(t.Context(), fmt.Sprint(i)); !ok {
			t.Fatalf("no room for %d", i)
		}
	}
	if _, _, ok := asks.Begin(t.Context(), "more"); ok {
		t.Error("there is room beyond the bound")
	}
	done()
	if _, _, ok := asks.Begin(t.Context(), "again"); !ok {
		t.Error("no room was made")
	}
	asks.WithdrawAll()
	if second.Err() == nil {
		t.Error("one was not withdrawn")
	}
}
