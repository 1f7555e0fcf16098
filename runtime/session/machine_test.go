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

// world is a machine with what the effects have led to: what was asked of it, and
// whether it was answered.
type world struct {
	m       machine
	turns   []*turn // given to the machine and not answered
	waiters []*waiter
	stops   int     // asked for and not answered
	links   []*link // that the machine was told of and that live
	leaving *link   // being released
	leaves  bool    // a release is in progress
	begun   bool    // a start is in progress
	given   bool    // that start was given up
	fault   string
	copies  []*copying // under way
	pauses  int        // asked for and not done, or refused
	paused  *pause     // being done
	sets    *link      // is being set to its mode
	behind  []event    // come when the one in hand was dealt with
	shut    bool       // somebody has stopped it for more than a copy, and nobody has opened it since

	recorded map[*turn]bool // whose prompts are written down
}

// moves are the events that can come, by name. Each reports whether it can come now.
var moves = []struct {
	name string
	do   func(w *world) bool
}{
	{"prompt", func(w *world) bool {
		t := &turn{req: &viewer.Request{}}
		w.turns = append(w.turns, t)
		return w.on(event{kind: prompted, turn: t})
	}},
	{"prompt behind a terminal's", func(w *world) bool {
		t := &turn{req: &viewer.Request{}, stale: true}
		w.turns = append(w.turns, t)
		return w.on(event{kind: prompted, turn: t})
	}},
	{"prompt with a name", func(w *world) bool { // it is the same one each time
		t := &turn{req: &viewer.Request{}}
		t.named = &named{name: []byte(`"a"`), turn: t}
		w.turns = append(w.turns, t)
		return w.on(event{kind: prompted, turn: t})
	}},
	{"request", func(w *world) bool {
		r := &waiter{}
		w.waiters = append(w.waiters, r)
		return w.on(event{kind: requested, req: r})
	}},
	{"cancel", func(w *world) bool { return w.on(event{kind: cancelled}) }},
	{"withdraw", func(w *world) bool {
		return len(w.turns) > 0 && w.on(event{kind: withdrawn, turn: w.turns[len(w.turns)-1]})
	}},
	{"bound", func(w *world) bool {
		if !w.begun || w.m.link != nil {
			return false
		}
		l := &link{}
		w.links = append(w.links, l)
		return w.on(event{kind: bound, attempt: w.m.attempt, link: l})
	}},
	{"started", func(w *world) bool {
		if !w.begun || len(w.links) == 0 {
			return false
		}
		w.begun = false
		return w.on(event{kind: started, attempt: w.m.attempt, link: w.links[len(w.links)-1], err: errGivenUp})
	}},
	{"failed", func(w *world) bool {
		if !w.begun {
			return false
		}
		w.begun = false
		return w.on(event{kind: startFailed, attempt: w.m.attempt, err: errGivenUp})
	}},
	{"failed untaken", func(w *world) bool {
		if !w.begun {
			return false
		}
		w.begun = false
		return w.on(event{kind: startFailed, attempt: w.m.attempt, err: &agents.UntakenError{Cause: errGivenUp}})
	}},
	{"late start", func(w *world) bool { // of an earlier attempt
		return w.m.attempt > 1 && w.on(event{kind: started, attempt: w.m.attempt - 1, link: &link{}, err: errGivenUp})
	}},
	{"answered", func(w *world) bool {
		t := w.m.turn
		return t != nil && t.phase >= running && w.on(event{kind: answered, turn: t, res: new(acp.Message)})
	}},
	{"untaken", func(w *world) bool {
		t := w.m.turn
		return t != nil && t.phase >= running && w.on(event{kind: answered, turn: t, err: &agents.UntakenError{Cause: errGivenUp}})
	}},
	{"gone", func(w *world) bool { // behind a prompt that it did not take
		return w.m.hosting == failing && w.on(event{kind: lost, link: w.m.link, err: errors.New("crash")})
	}},
	{"answered again", func(w *world) bool {
		return w.on(event{kind: answered, turn: &turn{phase: over}, res: new(acp.Message)})
	}},
	{"crash", func(w *world) bool {
		return w.m.link != nil && w.on(event{kind: lost, link: w.m.link, err: errors.New("crash")})
	}},
	{"crash of an earlier one", func(w *world) bool {
		return w.on(event{kind: lost, link: &link{}, err: errors.New("crash")})
	}},
	{"close", func(w *world) bool { return w.stop(closed) }},
	{"terminate", func(w *world) bool { return w.stop(ended) }},
	{"delete", func(w *world) bool { return w.stop(deleted) }},
	{"overdue", func(w *world) bool { return w.m.turn != nil && w.on(event{kind: overdue, turn: w.m.turn}) }},
	{"released", func(w *world) bool {
		if !w.leaves {
			return false
		}
		w.leaves = false
		return w.on(event{kind: released, link: w.leaving})
	}},
	{"refused", func(w *world) bool {
		if !w.leaves {
			return false
		}
		w.leaves = false
		return w.on(event{kind: released, link: w.leaving, err: errors.New("refused")})
	}},
	{"idle", func(w *world) bool { return w.on(event{kind: idle}) }},
	{"strays", func(w *world) bool {
		return w.m.link != nil && !w.m.setting && w.on(event{kind: strayed, link: w.m.link, err: errors.New("refused")})
	}},
	{"strays and stays", func(w *world) bool {
		return w.m.link != nil && !w.m.setting && w.on(event{kind: strayed, link: w.m.link, err: errors.New("refused"), stays: true})
	}},
	{"is set back", func(w *world) bool { return w.setTo(setBack) }},
	{"is not set back", func(w *world) bool { return w.setTo(strayed) }},
	{"begins something", func(w *world) bool {
		if w.m.link == nil || w.m.hosting != serving || w.m.calls > 0 {
			return false
		}
		w.m.calls, w.m.alone = 1, true
		return !w.m.worksAstray() || w.on(event{kind: works})
	}},
	{"ends that", func(w *world) bool {
		if w.m.calls == 0 {
			return false
		}
		w.m.calls, w.m.alone = 0, false
		w.m.rests()
		return true
	}},
	{"unheeded", func(w *world) bool {
		return w.m.watch != nil && w.on(event{kind: unheeded, watch: w.m.watch, still: true})
	}},
	{"change", func(w *world) bool {
		r := &waiter{}
		w.waiters = append(w.waiters, r)
		return w.on(event{kind: changed, req: r})
	}},
	{"pause", func(w *world) bool {
		w.pauses++
		return w.on(event{kind: paused, pause: &pause{done: func(error) { w.pauses-- }}})
	}},
	{"resumed", func(w *world) bool {
		p := w.paused
		if p == nil {
			return false
		}
		w.paused = nil
		p.done(nil)
		return w.on(event{kind: resumed})
	}},
	{"load", func(w *world) bool {
		w.shut = w.shut && w.m.life != closed
		return w.on(event{kind: loaded})
	}},
	{"waits for the stop", func(w *world) bool { // to load it then
		if w.m.life != stopping {
			return false
		}
		w.stops++
		return w.on(event{kind: stopped, done: func(bool, error) { w.stops-- }})
	}},
	{"copy", func(w *world) bool {
		if w.m.busy() || w.m.life == deleted || len(w.copies) > 3 {
			return false
		}
		w.copies = append(w.copies, new(copying))
		w.stops++
		return w.on(event{kind: stopped, goal: closed, copy: w.copies[len(w.copies)-1], done: func(bool, error) { w.stops-- }})
	}},
	{"copied", func(w *world) bool {
		if len(w.copies) == 0 {
			return false
		}
		c := w.copies[0]
		w.copies = w.copies[1:]
		if w.m.life == stopping && slices.Contains(w.m.copies, c) { // it was given up: behind the stop
			w.stops++
			return w.on(event{kind: stopped, goal: closed, copy: c, done: func(bool, error) {
				w.stops--
				w.behind = append(w.behind, event{kind: copied, copy: c})
			}})
		}
		return w.on(event{kind: copied, copy: c})
	}},
	{"shutdown", func(w *world) bool { return w.on(event{kind: shutdown}) }},
}

// setTo says how the setting of an agent ends that is under way.
func (w *world) setTo(kind eventKind) bool {
	l := w.sets
	w.sets = nil
	return l != nil && w.on(event{kind: kind, link: l, err: errors.New("refused"), stays: true})
}

func (w *world) stop(goal life) bool {
	w.stops++
	w.shut = true
	return w.on(event{kind: stopped, goal: goal, done: func(bool, error) { w.stops-- }})
}

// on lets the machine take an event and does what it says, as far as it matters here.
func (w *world) on(e event) bool {
	for _, eff := range w.m.on(e) {
		if what := missing(eff); what != "" {
			w.fault = what
		}
		if (eff.do == endTurn || eff.do == joinTurn) && eff.turn.phase != over {
			w.fault = "a turn is answered that is not over"
		}
		switch eff.do {
		case recordPrompt:
			if w.recorded[eff.turn] {
				w.fault = "a prompt was written down twice"
			}
			w.recorded[eff.turn] = true
		case endTurn:
			if eff.turn.recorded != w.recorded[eff.turn] {
				w.fault = "a turn ended whose prompt was to be written down"
			}
			if !drop(&w.turns, eff.turn) {
				w.fault = "a turn was answered twice"
			}
			if eff.turn.named != nil {
				eff.turn.named.turn = nil
			}
		case joinTurn:
			if first := eff.turn.same.turn; first != nil && !slices.Contains(w.turns, first) {
				w.fault = "a prompt waits for the answer of one that is over"
			}
			drop(&w.turns, eff.turn) // it is answered as the other one
		case failCalls:
			w.m.calls = 0
			w.m.rests()
		case givePrompt:
			if eff.link == nil || eff.turn.phase != running {
				w.fault = "a prompt was given to nobody"
			}
			if w.m.astray {
				w.fault = "a prompt was given to an agent that is not in its mode"
			}
			if !w.recorded[eff.turn] {
				w.fault = "a prompt was given that nobody can read"
			}
			if len(w.waiters) > 0 && w.waiters[0].place < eff.turn.place {
				w.fault = "a prompt has overtaken a request"
			}
			if n := eff.turn.named; n != nil && w.m.named[0] != n {
				w.fault = "a prompt was given twice"
			}
		case runRequest:
			if eff.link == nil || !drop(&w.waiters, eff.req) {
				w.fault = "a request was run twice or without a process"
			}
			if eff.req.place > 0 && len(w.turns) > 0 && !w.recorded[w.turns[0]] && w.turns[0].place < eff.req.place {
				w.fault = "a request has overtaken a prompt"
			}
		case refuseRequest:
			if !drop(&w.waiters, eff.req) {
				w.fault = "a request was refused twice"
			}
		case tellCancel, tellWithdrawn:
			if eff.link == nil {
				w.fault = "nobody was told"
			}
		case startProcess:
			if w.begun {
				w.fault = "two starts at a time"
			}
			if (eff.turn == nil) == (eff.req == nil) {
				w.fault = "a start is for one turn, or for one request"
			}
			if eff.attempt != w.m.attempt {
				w.fault = "a start does not know which it is"
			}
			w.begun, w.given = true, false
		case giveUpStart:
			w.given = true
		case setToMode:
			if w.sets == eff.link {
				w.fault = "an agent is set to its mode twice at a time"
			}
			w.sets = eff.link
		case release:
			if w.leaves && w.leaving != nil && w.m.link == w.leaving {
				w.fault = "two releases at a time"
			}
			w.leaving, w.leaves = eff.link, true
		case tellStopped:
			eff.done(eff.already, nil)
		case runPause:
			if w.paused != nil || w.m.link != nil || w.begun {
				w.fault = "what no process may meet is begun beside something"
			}
			w.paused = eff.pause
		case refusePause:
			eff.pause.done(eff.err)
		}
	}
	for len(w.behind) > 0 {
		next := w.behind[0]
		w.behind = w.behind[1:]
		w.on(next)
	}
	return true
}

// missing says what carrying out an effect needs and the effect has not.
func missing(e effect) string {
	switch e.do {
	case recordPrompt, endTurn, joinTurn, watchStop:
		if e.turn == nil {
			return "an effect on a turn has none"
		}
	case givePrompt, tellWithdrawn:
		if e.turn == nil || e.link == nil {
			return "a prompt or its link is missing"
		}
	case tellCancel, answerPeople, setToMode:
		if e.link == nil {
			return "nobody can be told"
		}
	case watchStray:
		if e.watch == nil {
			return "nothing is watched"
		}
	case startProcess:
		if e.turn == nil && e.req == nil {
			return "a process is started for nobody"
		}
	case runRequest:
		if e.req == nil || e.link == nil {
			return "a request or its link is missing"
		}
	case refuseRequest:
		if e.req == nil || e.err == nil {
			return "a request is refused without a reason"
		}
	case release:
		if e.link == nil && e.goal != deleted {
			return "a process is released that is none"
		}
	case runPause, refusePause:
		if e.pause == nil || e.do == refusePause && e.err == nil {
			return "a pause is none, or refused without a reason"
		}
	case tellStopped:
		if e.done == nil {
			return "nobody waits for the stop"
		}
	}
	return ""
}

func drop[T comparable](list *[]T, one T) bool {
	for i, x := range *list {
		if x == one {
			*list = append((*list)[:i:i], (*list)[i+1:]...)
			return true
		}
	}
	return false
}

// check says what is wrong with the state.
func (m *machine) check() error {
	switch {
	case (m.hosting == dormant || m.hosting == pausing) && m.link != nil:
		return errors.New("a dormant session has a process")
	case (m.hosting == pausing) != (len(m.pauses) > 0) && m.hosting != releasing:
		return errors.New("what no process may meet waits for nothing")
	case (m.hosting == serving || m.hosting == failing) && m.link == nil:
		return errors.New("a session that is served has no process")
	case m.life > stopping && (m.hosting != dormant && (m.life != closed || m.hosting != pausing) || m.turn != nil):
		return errors.New("a session that has ended has work or a process")
	case m.life != open && len(m.queue)+len(m.waiters) > 0:
		return errors.New("something waits for a session that is not open")
	case len(m.copies) > 0 && m.life != closed && (m.life != stopping || m.goal != closed):
		return errors.New("a session that is not closed is to be opened behind a copy")
	case m.life != stopping && len(m.stops) > 0:
		return errors.New("somebody waits for a session to stop that does not")
	case m.turn == nil && len(m.queue) > 0:
		return errors.New("a prompt waits for no other")
	case m.turn != nil && m.turn.phase >= running && m.hosting != serving:
		return errors.New("a turn runs without a process")
	case m.turn != nil && m.turn.phase == waiting && !m.setting && m.hosting != starting && m.hosting != releasing && m.hosting != failing && m.hosting != pausing:
		return errors.New("a turn waits for a process that nobody starts")
	case m.astray && m.hosting != serving || m.setting && !m.astray:
		return errors.New("an agent is set to a mode in which it is, or that is none")
	case m.watch != nil && !m.astray:
		return errors.New("an agent is watched that is in its mode")
	case m.astray && m.watch == nil && m.life == open && m.turn != nil && m.turn.phase >= running:
		return errors.New("nothing bounds what an agent does in the wrong mode")
	case m.astray && m.watch == nil && m.life == open && m.hasOpen():
		return errors.New("nothing bounds what an agent does by itself in the wrong mode")
	case m.watch != nil && !m.runs() && !m.hasOpen() || m.ending && !m.alone:
		return errors.New("an agent is watched that has ended all")
	case m.hosting == dormant && m.hasOpen():
		return errors.New("a call goes on that nobody works on")
	case len(m.waiters) > 0 && (!m.setting || m.turn == nil) && m.hosting != starting && m.hosting != releasing && m.hosting != failing && m.hosting != pausing:
		return errors.New("a request waits for a process that nobody starts")
	case m.turn != nil && (m.turn.phase == queued || m.turn.phase == over):
		return errors.New("the turn is none")
	}
	return nil
}

// check says what is wrong after an event.
func (w *world) check() error {
	if w.fault != "" {
		return errors.New(w.fault)
	}
	m := &w.m
	if err := m.check(); err != nil {
		return err
	}
	asked := len(m.queue)
	if m.turn != nil {
		asked++
	}
	switch {
	case w.shut && m.life == open:
		return errors.New("a session that somebody has stopped is open")
	case !w.shut && m.life == closed && !slices.ContainsFunc(w.copies, func(c *copying) bool { return slices.Contains(m.copies, c) }):
		return errors.New("a session that nobody has stopped stays closed")
	case asked != len(w.turns):
		return fmt.Errorf("%d prompts are not answered, the session knows %d", len(w.turns), asked)
	case len(m.waiters) != len(w.waiters):
		return fmt.Errorf("%d requests are not answered, the session knows %d", len(w.waiters), len(m.waiters))
	case len(m.stops) != w.stops:
		return fmt.Errorf("%d wait for the end, the session knows %d", w.stops, len(m.stops))
	case len(m.pauses) != w.pauses || (m.hosting == pausing) != (w.paused != nil):
		return fmt.Errorf("%d wait for a pause, the session knows %d", w.pauses, len(m.pauses))
	case (m.hosting == starting) != w.begun:
		return fmt.Errorf("hosting is %d, a start in progress: %t", m.hosting, w.begun)
	case m.hosting == starting && (m.life == stopping || m.down) && !w.given:
		return errors.New("the start of a session that stops was not given up")
	case m.setting && m.life == open && w.sets != m.link:
		return errors.New("an agent is set to its mode by nobody")
	case m.hosting == releasing && w.leaving != m.link:
		return errors.New("the process that is released is another one")
	}
	return nil
}

// finish lets all that was begun come to its end: nothing may be left.
func (w *world) finish() error {
	for range 100 {
		moved := false
		for _, mv := range moves {
			switch mv.name {
			case "failed", "released", "answered", "gone", "resumed", "is set back":
				moved = mv.do(w) || moved
			}
			if err := w.check(); err != nil {
				return err
			}
		}
		if !moved {
			break
		}
	}
	if len(w.turns)+len(w.waiters)+w.stops+w.pauses > 0 || w.begun || w.leaves && w.m.hosting == releasing {
		return fmt.Errorf("%d prompts, %d requests, %d stops, %d pauses are never answered", len(w.turns), len(w.waiters), w.stops, w.pauses)
	}
	return nil
}

// key is the state as far as it decides what follows.
func (w *world) key() string {
	m := &w.m
	p, t, missed, first := phase(99), m.turn, false, "none"
	if len(m.named) > 0 {
		first = fmt.Sprint(m.named[0].turn != nil)
	}
	if t != nil {
		p, missed = t.phase, t.missed
	}
	waits, ahead := 0, false // as long as they wait; which comes first
	if len(m.waiters) > 0 {
		waits, ahead = 1, t != nil && m.waiters[0].place < t.place
		if m.waiters[0].missed {
			waits = 2
		}
	}
	return fmt.Sprint(first, m.life, m.goal, m.hosting, p, missed, min(len(m.queue), 2), waits, ahead, min(len(m.stops), 2), m.down, m.told, m.link != nil, m.astray, m.setting, m.watch != nil, m.ending, m.calls > 0, w.given, min(len(m.copies), 2), min(len(w.copies), 2), min(w.pauses, 2), w.shut)
}

// Every event in every state that can be reached leaves a state that is sound, and
// from which everything that was asked is answered.
func TestMachine_EveryEventInEveryState(t *testing.T) {
	replay := func(path []int) *world {
		w := &world{recorded: map[*turn]bool{}}
		for _, i := range path {
			moves[i].do(w)
		}
		return w
	}
	name := func(path []int) string {
		var out []string
		for _, i := range path {
			out = append(out, moves[i].name)
		}
		return strings.Join(out, ", ")
	}
	seen := map[string]bool{new(world).key(): true}
	queue, tried := [][]int{nil}, 0
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		for i := range moves {
			next := append(path[:len(path):len(path)], i)
			w := replay(path)
			if !moves[i].do(w) {
				continue
			}
			tried++
			if err := w.check(); err != nil {
				t.Fatalf("%s: %v", name(next), err)
			}
			key := w.key()
			if err := w.finish(); err != nil {
				t.Fatalf("%s, and the end: %v", name(next), err)
			}
			if !seen[key] {
				seen[key] = true
				queue = append(queue, next)
			}
		}
	}
	t.Logf("%d states, %d events in them", len(seen), tried)
	if len(seen) < 50 {
		t.Errorf("only %d states were reached", len(seen))
	}
}
