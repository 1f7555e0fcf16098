package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// actionNames are the actions as the table below names them, in the order of their values.
var actionNames = []string{
	"record", "give", "take back", "tell cancel", "tell withdrawn", "end", "join", "answer people", "answer all", "fail calls", "note loss",
	"start", "give up start", "retire process", "set to mode", "release", "run", "refuse", "watch stop", "watch stray", "goal", "stopped", "reopen", "idle told", "released told", "end host work", "run pause", "refuse pause",
}

// said is an effect as the table names it.
func (e effect) said() string {
	how := ""
	switch e.do {
	case endTurn:
		switch {
		case e.err != nil:
			how = ": " + why(e.err)
		case e.res == nil:
			how = " as cancelled"
		}
	case refuseRequest, refusePause:
		how = ": " + why(e.err)
	case startProcess:
		how = " for a request"
		if e.turn != nil {
			how = " for the turn"
		}
	case release, reachGoal:
		how = " " + lifeNames[e.goal]
		if e.by != "" {
			how += " by " + e.by
		}
		if e.do == release && e.link == nil {
			how += " without a process"
		}
	case tellStopped:
		switch {
		case e.already:
			how = " before"
		case e.err != nil:
			how = ": " + why(e.err)
		}
	case failCalls:
		how = ": " + e.reason
	case tellReleased:
		how = " " + e.by
	}
	return actionNames[e.do] + how
}

// why is an error by the words that tell it from the others.
func why(err error) string {
	for _, words := range []string{"was deleted", "has ended", "is closed", "shutting down", "waiting already", "wait for the session", "before it began", "crash", "refused", "is working"} {
		if strings.Contains(err.Error(), words) {
			return words
		}
	}
	return "given up"
}

var (
	lifeNames    = []string{"open", "stopping", "closed", "ended", "deleted"}
	hostingNames = []string{"dormant", "starting", "serving", "releasing", "failing", "pausing"}
	phaseNames   = []string{"queued", "waiting", "running", "cancelling", "over"}
)

// state is the state of a machine as the table names it.
func (m *machine) state() string {
	out := lifeNames[m.life]
	if m.life == stopping {
		out += " to be " + lifeNames[m.goal]
	}
	out += ", " + hostingNames[m.hosting]
	if m.astray {
		out += ", astray"
	}
	if m.turn != nil {
		out += ", turn " + phaseNames[m.turn.phase]
	}
	if n := len(m.queue); n > 0 {
		out += fmt.Sprintf(", %d queued", n)
	}
	if n := len(m.waiters); n > 0 {
		out += fmt.Sprintf(", %d wait", n)
	}
	return out
}

// more are what only the table does: what the agent is doing, and events in detail.
var more = map[string]func(w *world){
	"asks":                func(w *world) { w.m.asks++ },
	"calls":               func(w *world) { w.m.calls++ },
	"asks no more":        func(w *world) { w.m.asks--; w.m.rests() },
	"calls no more":       func(w *world) { w.m.calls--; w.m.rests() },
	"works alone":         func(w *world) { w.m.alone = true },
	"has shown":           func(w *world) { w.m.working = true },
	"idle at any rate":    func(w *world) { w.on(event{kind: idle, now: true, by: "user"}) },
	"a former one strays": func(w *world) { w.on(event{kind: strayed, link: &link{}, err: errors.New("refused")}) },
	"unheeded, it may":    func(w *world) { w.on(event{kind: unheeded, watch: w.m.watch}) },
	"unheeded of before":  func(w *world) { w.on(event{kind: unheeded, watch: new(straying), still: true}) },
	"works":               func(w *world) { w.on(event{kind: works}) },
	"cancel the turn":     func(w *world) { w.on(event{kind: cancelled, now: true}) },
	"terminate by Ada": func(w *world) {
		w.stops++
		w.on(event{kind: stopped, goal: ended, by: "Ada", done: func(bool, error) { w.stops-- }})
	},
	"discarded":     func(w *world) { w.on(event{kind: discarded}) },
	"a late answer": func(w *world) { w.on(event{kind: answered, turn: &turn{phase: running}, res: new(acp.Message)}) },
	"overdue of another": func(w *world) {
		w.on(event{kind: overdue, turn: &turn{phase: cancelling}, err: errGivenUp})
	},
	"prompts and requests to the bound": func(w *world) {
		for range maxQueued {
			w.prompt()
			r := &waiter{}
			w.waiters = append(w.waiters, r)
			w.on(event{kind: requested, req: r})
		}
	},
	"withdraw the first": func(w *world) { w.on(event{kind: withdrawn, turn: w.turns[0]}) },
	"answered with an error": func(w *world) {
		w.on(event{kind: answered, turn: w.m.turn, err: errGivenUp})
	},
	"untaken": func(w *world) {
		w.on(event{kind: answered, turn: w.m.turn, err: &agents.UntakenError{Cause: errGivenUp}})
	},
}

func (w *world) prompt() {
	t := &turn{req: &viewer.Request{}}
	w.turns = append(w.turns, t)
	w.on(event{kind: prompted, turn: t})
}

// step does what a name says, and returns what followed.
func (w *world) step(t *testing.T, name string) string {
	t.Helper()
	clear(w.m.effects)
	w.m.effects = w.m.effects[:0]
	if f := more[name]; f != nil {
		f(w)
	} else {
		i := slices.IndexFunc(moves, func(m struct {
			name string
			do   func(w *world) bool
		},
		) bool {
			return m.name == name
		})
		if i < 0 || !moves[i].do(w) {
			t.Fatalf("%s cannot come now", name)
		}
	}
	var out []string
	for _, e := range w.m.effects {
		out = append(out, e.said())
	}
	return strings.Join(out, ", ")
}

// What each event does in the state that others have led to: the table at the head of machine.go, as
// examples.
func TestMachine_WhatFollows(t *testing.T) {
	for _, tt := range []struct{ before, event, effects, state string }{
		{"", "prompt", "start for the turn", "open, starting, turn waiting"},
		{"", "request", "start for a request", "open, starting, 1 wait"},
		{"prompt", "bound", "", "open, starting, turn waiting"},
		{"prompt, bound", "started", "record, give", "open, serving, turn running"},
		{"prompt, bound, crash", "started", "start for the turn", "open, starting, turn waiting"},
		{"prompt, bound, crash, started, bound, crash", "started", "record, end: given up, idle told", "open, dormant"},
		{"prompt", "failed", "record, end: given up, idle told", "open, dormant"},
		{"prompt, bound", "failed", "answer all, end host work, fail calls: the agent did not open the session, record, end: given up, idle told", "open, dormant"},
		{"request, bound", "started", "run, idle told", "open, serving"},
		{"request, prompt, request, bound", "started", "run, record, give, run", "open, serving, turn running"},
		{"prompt, prompt, request, bound", "started", "record, give, run", "open, serving, turn running, 1 queued"},
		{"prompt, prompt, request, cancel the turn, bound", "started", "record, give, run", "open, serving, turn running"},
		{"prompt, request", "failed untaken", "start for the turn", "open, starting, turn waiting, 1 wait"},
		{"prompt, bound", "failed untaken", "answer all, end host work, fail calls: the agent did not open the session, start for the turn", "open, starting, turn waiting"},
		{"prompt, failed untaken", "failed untaken", "record, end: given up, idle told", "open, dormant"},
		{"request", "failed untaken", "start for a request, idle told", "open, starting, 1 wait"},
		{"request, failed untaken", "failed untaken", "refuse: given up, idle told", "open, dormant"},
		{"request, failed untaken, prompt, request", "failed untaken", "refuse: given up, start for the turn", "open, starting, turn waiting, 1 wait"},
		{"request, shutdown", "failed untaken", "idle told", "open, dormant"},
		{"prompt, close", "failed untaken", "goal closed, stopped, idle told", "closed, dormant"},
		{"request, bound", "failed", "answer all, end host work, fail calls: the agent did not open the session, refuse: given up, idle told", "open, dormant"},
		{"prompt, prompt, request", "failed", "refuse: given up, record, end: given up, start for the turn", "open, starting, turn waiting"},
		{"prompt, bound, started", "prompt", "", "open, serving, turn running, 1 queued"},
		{"prompt, bound, started, prompt", "answered", "end, record, give", "open, serving, turn running"},
		{"prompt, bound, started", "answered with an error", "end: given up, idle told", "open, serving"},
		{"prompt, bound, started", "a late answer", "", "open, serving, turn running"},
		{"prompt, bound, started", "untaken", "take back", "open, failing, turn waiting"},
		{"prompt, bound, started, untaken", "gone", "answer all, end host work, fail calls: the agent's process ended, note loss, start for the turn", "open, starting, turn waiting"},
		{"prompt, bound, started, untaken, gone, bound, started", "untaken", "end: given up, idle told", "open, serving"},
		{"prompt, bound, started, cancel", "untaken", "end as cancelled, idle told", "open, serving"},
		{"prompt, bound, started", "request", "run", "open, serving, turn running"},
		{"prompt, request", "cancel", "record, end as cancelled, idle told", "open, starting, 1 wait"},
		{"prompt, bound, started, prompt", "cancel", "end as cancelled, tell cancel, answer people", "open, serving, turn cancelling"},
		{"prompt, bound, started, prompt", "cancel the turn", "tell cancel, answer people", "open, serving, turn cancelling, 1 queued"},
		{"prompt, bound, started, answered", "cancel", "", "open, serving"},
		{"prompt, bound, started, answered, has shown", "cancel", "tell cancel, answer people", "open, serving"},
		{"prompt, bound, started, answered, asks", "cancel", "tell cancel, answer people", "open, serving"},
		{"prompt, bound, started, answered, calls", "cancel", "tell cancel, answer people", "open, serving"},
		{"prompt, bound, started, answered, works alone", "cancel", "tell cancel, answer people", "open, serving"},
		{"", "cancel", "", "open, dormant"},
		{"prompt, bound, started, prompt", "withdraw", "end: before it began", "open, serving, turn running"},
		{"prompt, bound, started, prompt", "withdraw the first", "tell withdrawn", "open, serving, turn running, 1 queued"},
		{"prompt", "withdraw", "record, end as cancelled, idle told", "open, starting"},
		{"prompt, prompt", "withdraw the first", "record, end as cancelled", "open, starting, turn waiting"},
		{"prompt, withdraw, bound", "started", "idle told", "open, serving"},
		{"prompt, bound, started, cancel", "overdue", "fail calls: the agent did not end it when it was cancelled, end as cancelled, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started", "overdue", "", "open, serving, turn running"},
		{"prompt, bound, started, cancel", "overdue of another", "", "open, serving, turn cancelling"},
		{"prompt, bound, started, prompt", "crash", "answer all, end host work, fail calls: the agent's process ended, note loss, end: crash, start for the turn", "open, starting, turn waiting"},
		{"prompt, bound", "crash", "answer all, end host work, fail calls: the agent's process ended", "open, starting, turn waiting"},
		{"prompt, bound, started, answered", "idle", "answer all, release closed, released told ", "open, releasing"},
		{"prompt, bound, started, answered", "idle at any rate", "answer all, release closed, released told user", "open, releasing"},
		{"prompt, bound, started, answered", "strays", "fail calls: the agent is not in the mode that it must be in, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started, answered, calls", "strays", "tell cancel, fail calls: the agent is not in the mode that it must be in, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started, prompt", "strays", "tell cancel, end: refused, fail calls: the agent is not in the mode that it must be in, retire process, answer all, release closed", "open, releasing, turn waiting"},
		{"prompt, bound, started, answered", "strays and stays", "idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, calls", "strays and stays", "tell cancel, answer people, watch stray, idle told", "open, serving, astray"},
		{"prompt, bound, started, prompt", "strays and stays", "tell cancel, answer people, watch stray", "open, serving, astray, turn cancelling, 1 queued"},
		{"prompt, bound, started, prompt, strays and stays", "unheeded", "fail calls: the agent did not end it when it was cancelled, end: refused, retire process, answer all, release closed", "open, releasing, turn waiting"},
		{"prompt, bound, started, cancel", "strays and stays", "watch stray", "open, serving, astray, turn cancelling"},
		{"prompt, bound, started, cancel, strays and stays", "unheeded", "fail calls: the agent did not end it when it was cancelled, end as cancelled, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started, strays and stays, close", "unheeded", "", "stopping to be closed, serving, astray, turn cancelling"},
		{"prompt, bound, started, strays and stays, close", "overdue", "fail calls: the agent did not end it when it was cancelled, end: refused, retire process, answer all, release closed, idle told", "stopping to be closed, releasing"},
		{"prompt, bound, started, strays and stays, answered, calls", "unheeded of before", "", "open, serving, astray"},
		{"prompt, bound, started, strays and stays, answered, calls", "works", "tell cancel, answer people, watch stray", "open, serving, astray"},
		{"prompt, bound, started, strays and stays, answered, calls, works", "unheeded", "fail calls: the agent did not end it when it was cancelled, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started, strays and stays, calls, answered", "works", "", "open, serving, astray"},
		{"prompt, bound, started, strays and stays, calls, answered", "unheeded", "fail calls: the agent did not end it when it was cancelled, retire process, answer all, release closed, idle told", "open, releasing"},
		{"prompt, bound, started, answered, calls, strays and stays, calls no more, calls", "unheeded of before", "", "open, serving, astray"},
		{"prompt, bound, started, answered, calls, strays and stays, calls no more, calls", "works", "tell cancel, answer people, watch stray", "open, serving, astray"},
		{"prompt, bound, started, answered, calls, asks, strays and stays, calls no more", "works", "", "open, serving, astray"},
		{"prompt, bound, started, answered, calls, asks, strays and stays, calls no more, asks no more, asks", "works", "tell cancel, answer people, watch stray", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays, prompt, works alone", "is not set back", "record, end: refused, tell cancel, answer people, watch stray, idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, works alone, strays and stays, prompt", "unheeded", "fail calls: the agent did not end it when it was cancelled, retire process, answer all, release closed", "open, releasing, turn waiting"},
		{"prompt, bound, started, answered, strays and stays, calls", "works", "tell cancel, answer people, watch stray", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays, prompt, calls", "works", "tell cancel, answer people, watch stray", "open, serving, astray, turn waiting"},
		{"prompt, bound, started, answered, calls, strays and stays", "works", "", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays", "works", "tell cancel, answer people", "open, serving, astray"},
		{"prompt, bound, started, strays and stays, calls", "works", "", "open, serving, astray, turn cancelling"},
		{"prompt, bound, started, answered, works alone, strays and stays", "unheeded, it may", "", "open, serving, astray"},
		{"prompt, bound, started, answered, has shown", "strays and stays", "tell cancel, answer people, idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, works alone, strays and stays, prompt, is set back", "unheeded of before", "", "open, serving, turn running"},
		{"prompt, bound, started, strays and stays", "answered", "end: refused, idle told", "open, serving, astray"},
		{"prompt, bound, started, cancel, strays and stays", "answered", "end, idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays", "prompt", "set to mode", "open, serving, astray, turn waiting"},
		{"prompt, bound, started, answered, strays and stays", "request", "run", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays, prompt", "request", "", "open, serving, astray, turn waiting, 1 wait"},
		{"prompt, bound, started, answered, strays and stays, prompt, request", "is set back", "record, give, run", "open, serving, turn running"},
		{"prompt, bound, started, answered, strays and stays, prompt, request", "is not set back", "record, end: refused, run, idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays, prompt, prompt", "is not set back", "record, end: refused, set to mode", "open, serving, astray, turn waiting"},
		{"prompt, bound, started, answered, strays and stays, prompt", "cancel", "record, end as cancelled, idle told", "open, serving, astray"},
		{"prompt, bound, started, answered, strays and stays, prompt", "crash", "answer all, end host work, fail calls: the agent's process ended, note loss, start for the turn", "open, starting, turn waiting"},
		{"prompt, bound, started, answered, strays and stays, prompt, crash, bound, started", "is set back", "", "open, serving, turn running"},
		{"prompt, bound, started, answered, strays and stays, prompt", "close", "record, end as cancelled, answer all, release closed, idle told, idle told", "stopping to be closed, releasing"},
		{"prompt, bound, started, close", "strays", "", "stopping to be closed, serving, turn cancelling"},
		{"prompt, bound, started", "a former one strays", "", "open, serving, turn running"},
		{"prompt, bound, started, answered, asks", "idle", "", "open, serving"},
		{"prompt, bound, started, answered, calls", "idle", "", "open, serving"},
		{"prompt, bound, started, answered, works alone", "idle", "", "open, serving"},
		{"prompt, bound, started, answered, calls", "idle at any rate", "answer all, release closed, released told user", "open, releasing"},
		{"prompt, bound, started, answered, asks", "idle at any rate", "", "open, serving"},
		{"prompt, bound, started", "idle", "", "open, serving, turn running"},
		{"prompt, bound, started, answered, idle", "released", "answer all, end host work, fail calls: the session gave its process back, idle told", "open, dormant"},
		{"prompt, bound, started, answered, idle, prompt", "released", "answer all, end host work, fail calls: the session gave its process back, start for the turn", "open, starting, turn waiting"},
		{"prompt, bound, started, answered, idle, request", "released", "answer all, end host work, fail calls: the session gave its process back, start for a request, idle told", "open, starting, 1 wait"},
		{"prompt, bound, started, answered, idle", "crash", "answer all, end host work, fail calls: the agent's process ended, idle told", "open, dormant"},
		{"prompt, bound, started, answered", "change", "answer all, release closed", "open, releasing, 1 wait"},
		{"prompt, bound, started, answered, calls", "change", "run", "open, serving"},
		{"prompt, bound, started, answered, works alone", "change", "run", "open, serving"},
		{"prompt, bound, started, answered, asks", "change", "run", "open, serving"},
		{"prompt, bound, started, answered, change", "change", "", "open, releasing, 2 wait"},
		{"prompt, bound, started, answered, change", "released", "answer all, end host work, fail calls: the session gave its process back, start for a request, idle told", "open, starting, 1 wait"},
		{"", "change", "start for a request", "open, starting, 1 wait"},
		{"prompt, bound, started, answered", "prompt behind a terminal's", "answer all, release closed", "open, releasing, turn waiting"},
		{"prompt, bound, started, answered, calls", "prompt behind a terminal's", "record, give", "open, serving, turn running"},
		{"prompt, bound, started, answered, asks", "prompt behind a terminal's", "record, give", "open, serving, turn running"},
		{"prompt, bound, started, answered, works alone", "prompt behind a terminal's", "record, give", "open, serving, turn running"},
		{"prompt with a name", "prompt with a name", "join", "open, starting, turn waiting"},
		{"", "close", "goal closed, stopped, idle told", "closed, dormant"},
		{"", "terminate", "goal ended, stopped, idle told", "ended, dormant"},
		{"", "delete", "release deleted without a process, idle told", "stopping to be deleted, releasing"},
		{"prompt, prompt, request", "close", "end as cancelled, refuse: is closed, record, end as cancelled, idle told, give up start, idle told", "stopping to be closed, starting"},
		{"prompt, bound, started", "close", "tell cancel, answer people, watch stop", "stopping to be closed, serving, turn cancelling"},
		{"prompt, bound, started, close", "answered", "end, answer all, release closed, idle told", "stopping to be closed, releasing"},
		{"prompt, bound, started, close, answered", "released", "answer all, end host work, fail calls: the session gave its process back, goal closed, stopped, idle told", "closed, dormant"},
		{"prompt, bound, started, close", "overdue", "fail calls: the agent did not end it when it was cancelled, end as cancelled, retire process, answer all, release closed, idle told", "stopping to be closed, releasing"},
		{"prompt, bound, started, close", "crash", "answer all, end host work, fail calls: the agent's process ended, note loss, end: crash, goal closed, stopped, idle told", "closed, dormant"},
		{"prompt, bound, started, close", "delete", "", "stopping to be deleted, serving, turn cancelling"},
		{"prompt, bound, started, close, delete", "answered", "end, answer all, release deleted, idle told", "stopping to be deleted, releasing"},
		{"prompt, bound, started, delete, terminate by Ada, close, answered", "refused", "answer all, end host work, fail calls: the session gave its process back, goal ended by Ada, stopped: refused, stopped: refused, stopped: refused, idle told", "ended, dormant"},
		{"prompt, bound, started, delete, answered", "refused", "answer all, end host work, fail calls: the session gave its process back, goal closed, stopped: refused, idle told", "closed, dormant"},
		{"prompt, bound, started, delete, answered", "released", "answer all, end host work, fail calls: the session gave its process back, goal deleted, stopped, idle told", "deleted, dormant"},
		{"prompt, bound, started, delete, answered", "crash", "", "stopping to be deleted, releasing"},
		{"prompt, bound, started, delete, answered, crash", "released", "answer all, end host work, fail calls: the session gave its process back, goal deleted, stopped, idle told", "deleted, dormant"},
		{"prompt, bound, started, terminate, delete", "close", "", "stopping to be deleted, serving, turn cancelling"},
		{"prompt, bound, started, terminate by Ada, answered", "released", "answer all, end host work, fail calls: the session gave its process back, goal ended by Ada, stopped, idle told", "ended, dormant"},
		{"close", "close", "stopped before", "closed, dormant"},
		{"", "copy", "goal closed, stopped, idle told", "closed, dormant"},
		{"copy", "copied", "reopen", "open, dormant"},
		{"copy", "load", "reopen", "open, dormant"},
		{"copy, load, close", "copied", "", "closed, dormant"},
		{"copy", "close", "goal closed, stopped before", "closed, dormant"},
		{"copy, close", "copied", "", "closed, dormant"},
		{"close, copy", "copied", "", "closed, dormant"},
		{"copy, copy", "copied", "", "closed, dormant"},
		{"copy, copy, copied", "copied", "reopen", "open, dormant"},
		{"copy, terminate by Ada", "copied", "", "ended, dormant"},
		{"prompt, bound, started, answered, copy, close, released", "copied", "", "closed, dormant"},
		{"prompt, bound, started, answered, copy, waits for the stop, released", "copied", "reopen", "open, dormant"},
		{"prompt, bound, started, answered, copy, copied", "released", "reopen", "open, dormant"}, // given up
		{"close", "terminate by Ada", "goal ended by Ada, stopped, idle told", "ended, dormant"},
		{"close", "load", "reopen", "open, dormant"},
		{"terminate", "load", "", "ended, dormant"},
		{"close, load", "prompt", "start for the turn", "open, starting, turn waiting"},
		{"close", "prompt", "end: is closed", "closed, dormant"},
		{"terminate", "request", "refuse: has ended", "ended, dormant"},
		{"delete, released", "request", "refuse: was deleted", "deleted, dormant"},
		{"prompt, close", "prompt", "end: is closed", "stopping to be closed, starting"},
		{"prompt, bound, started, delete", "prompt", "end: was deleted", "stopping to be deleted, serving, turn cancelling"},
		{"prompt, bound, started, terminate", "prompt", "end: has ended", "stopping to be ended, serving, turn cancelling"},
		{"terminate, delete", "refused", "goal ended, stopped: refused, idle told", "ended, dormant"},
		{"close, delete", "refused", "goal closed, stopped: refused, idle told", "closed, dormant"},
		{"prompt", "shutdown", "record, end as cancelled, idle told, give up start", "open, starting"},
		{"prompt, bound, started, prompt, prompt", "shutdown", "end as cancelled, end as cancelled, tell cancel, answer people", "open, serving, turn cancelling"},
		{"request", "shutdown", "refuse: shutting down, give up start", "open, starting"},
		{"shutdown", "prompt", "end: shutting down", "open, dormant"},
		{"shutdown", "request", "refuse: shutting down", "open, dormant"},
		{"", "pause", "run pause", "open, pausing"},
		{"prompt, bound, started, answered", "pause", "answer all, release closed", "open, releasing"},
		{"prompt, bound, started, answered, pause", "released", "answer all, end host work, fail calls: the session gave its process back, run pause, idle told", "open, pausing"},
		{"prompt, bound, started, answered, pause", "crash", "answer all, end host work, fail calls: the agent's process ended, run pause, idle told", "open, pausing"},
		{"prompt, bound, started, answered, idle", "pause", "", "open, releasing"},
		{"prompt, bound, started", "pause", "refuse pause: is working", "open, serving, turn running"},
		{"prompt, bound, started, answered, calls", "pause", "refuse pause: is working", "open, serving"},
		{"prompt, bound, started, answered, works alone", "pause", "refuse pause: is working", "open, serving"},
		{"prompt", "pause", "refuse pause: is working", "open, starting, turn waiting"},
		{"pause", "prompt", "", "open, pausing, turn waiting"},
		{"pause", "request", "", "open, pausing, 1 wait"},
		{"pause, prompt", "pause", "", "open, pausing, turn waiting"},
		{"pause, prompt", "resumed", "start for the turn", "open, starting, turn waiting"},
		{"pause, prompt, pause", "resumed", "run pause", "open, pausing, turn waiting"},
		{"pause", "resumed", "idle told", "open, dormant"},
		{"pause", "delete", "idle told", "stopping to be deleted, pausing"},
		{"pause, delete", "resumed", "release deleted without a process, idle told", "stopping to be deleted, releasing"},
		{"pause, delete", "pause", "refuse pause: was deleted", "stopping to be deleted, pausing"},
		{"close", "pause", "run pause", "closed, pausing"},
		{"close, pause, load, prompt", "resumed", "start for the turn", "open, starting, turn waiting"},
		{"copy", "pause", "refuse pause: is closed", "closed, dormant"},
		{"terminate", "pause", "refuse pause: has ended", "ended, dormant"},
		{"shutdown", "pause", "refuse pause: shutting down", "open, dormant"},
		{"", "discarded", "", "deleted, dormant"},
		{"prompts and requests to the bound, prompt", "prompt", "end: waiting already", "open, starting, turn waiting, 64 queued, 64 wait"},
		{"prompt, bound, started, cancel", "withdraw", "tell withdrawn", "open, serving, turn cancelling"},
		{"prompt, bound, started, terminate by Ada, delete, answered", "refused", "answer all, end host work, fail calls: the session gave its process back, goal ended by Ada, stopped: refused, stopped: refused, idle told", "ended, dormant"},
		{"delete, terminate by Ada", "refused", "goal ended by Ada, stopped: refused, stopped: refused, idle told", "ended, dormant"},
		{"prompt, bound, started, close", "change", "refuse: is closed", "stopping to be closed, serving, turn cancelling"},
		{"prompts and requests to the bound", "prompt", "", "open, starting, turn waiting, 64 queued, 64 wait"},
		{"prompts and requests to the bound", "request", "refuse: wait for the session", "open, starting, turn waiting, 63 queued, 64 wait"},
		{"prompt, failed, prompt", "late start", "", "open, starting, turn waiting"},
		{"prompt, bound, started", "crash of an earlier one", "", "open, serving, turn running"},
		{"prompt, bound, started, answered, idle, close", "released", "answer all, end host work, fail calls: the session gave its process back, goal closed, stopped, idle told", "closed, dormant"},
		{"prompt, bound, started, answered", "close", "answer all, release closed, idle told", "stopping to be closed, releasing"},
		{"prompt, bound, started, close, terminate by Ada", "answered", "end, answer all, release ended, idle told", "stopping to be ended, releasing"},
		{"prompt, bound, started, delete, close", "answered again", "", "stopping to be deleted, serving, turn cancelling"},
		{"delete", "delete", "", "stopping to be deleted, releasing"},
		{"delete, released", "close", "stopped before", "deleted, dormant"},
	} {
		t.Run(tt.before+" | "+tt.event, func(t *testing.T) {
			w := &world{recorded: map[*turn]bool{}}
			for name := range strings.SplitSeq(tt.before, ", ") {
				if name != "" {
					w.step(t, name)
				}
			}
			if got := w.step(t, tt.event); w.fault != "" {
				t.Error(w.fault)
			} else if got != tt.effects || w.m.state() != tt.state {
				t.Errorf("%s\n\tthen it is %s; want\n%s\n\tthen %s", got, w.m.state(), tt.effects, tt.state)
			}
		})
	}
}
