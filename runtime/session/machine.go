package session

import (
	"cmp"
	"errors"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
)

// This file is the life of a session: its states, what can happen, and what follows.
// machine.on is the only function that changes the state. It does nothing else: what
// has to be done is returned as effects, which the session carries out (effects.go).
//
// A session is in one state of each of three kinds.
//
//	life: who may use it
//
//	          load                          stopped
//	      ┌────────── closed ◀──────┐    (goal closed)
//	      ▼                         │
//	     open ──close, terminate, delete──▶ stopping ──▶ ended ──delete──▶ stopping
//	                                │   (goal ended)
//	                                └──▶ deleted (goal deleted)
//
//	hosting: who works for it
//
//	     dormant ──a prompt or request──▶ starting ──started──▶ serving
//	        ▲ ▲───────────failed───────────┘  │                   │
//	        │                                 └──stopping─▶       │ idle, overdue, stopping
//	        ├───────released, lost──────────── releasing ◀────────┤
//	        ├───────lost────────────────────── failing ◀─untaken──┤
//	        ├───────lost──────────────────────────────────────────┘
//	        └─────paused─────▶ pausing ──resumed──▶ dormant
//
//	turn: what is done with a prompt
//
//	     queued ──▶ waiting (for a process) ──▶ running ──cancel──▶ cancelling
//	        └───────────┴─────────────────────────┴──────────────────┴──▶ over
//
// What each event does, by the state it meets; what is not said changes nothing.
//
//	event     open                              stopping         closed, ended, deleted
//	prompt    begun, or queued behind a turn;   refused          refused
//	          stale: idle, it is released first
//	repeated  answered as the prompt that it    the same         the same
//	          repeats, which has its name
//	request   run, or waits for a process       refused          refused
//	cancel    queue and waiting turn over;      the same         -
//	          running: the agent is told, what
//	          it asks people is answered; with
//	          names: of these prompts alone
//	bound     link is the one being opened      the same         -
//	started   turn and requests go on;          releasing        -
//	          lost meanwhile: as untaken
//	failed    turn and requests get the error;  dormant; done    -
//	          untaken: they wait once more
//	answered  turn over, the next begun; untaken  turn over; on  -
//	          waits once more, for a new process
//	lost      requests of the agent, calls and  the same; done;  -
//	          the turn are ended; next begun    - if the agent
//	                                            was to delete it
//	stop      stopping: all is cancelled, the   the higher goal  stopping, if its goal
//	          start is given up                 of the two       is higher; else done
//	overdue   cancelling: turn over, releasing  turn over; on    -
//	released  dormant; started anew if it is    done; closed if  -
//	          needed by then                    the agent, or the
//	                                            disk, would not
//	                                            delete it
//	idle      releasing, if nothing is open     -                -
//	strayed   turn over, releasing; stays:      -                -
//	          cancelling, or over if it waits;
//	          the next prompt waits until the
//	          agent is set back
//	works     the agent is told to end what it  -                -
//	          does in the wrong mode; not once
//	          more before that has ended
//	unheeded  turn over, releasing; releasing,  -                -
//	          if the agent works by itself
//	setBack   turn and requests go on           -                -
//	changed   releasing, and started anew with  request refused  request refused
//	          the settings of a load; request
//	          runs then
//	paused    pausing; serving: releasing       refused          closed: pausing;
//	          first; refused while something                     else refused
//	          goes on
//	resumed   dormant; started anew if it is    done             dormant
//	          needed by then
//	load      -                                 waits            closed: open
//	copied    -                                 -                closed by copies alone, of which
//	                                                             this was the last: open
//	discarded deleted: it was never opened      -                -
//	shutdown  refuses from now on, cancels all, gives starts up, in every state
//
// Stopping goes on (on) as soon as its turn is over: a serving session is released,
// a dormant one has reached its goal (done), and those who asked are told.
//
// A session that is copied is stopped, with goal closed, for as long as that takes: copies has
// those that are under way, as long as nobody else has stopped it. Whoever does means it to stay so.

// life is who may use a session. A later one is a higher goal.
type life uint8

const (
	open     life = iota
	stopping      // on its way to one of those below, its goal
	closed
	ended
	deleted
)

// hosting is which process works for a session.
type hosting uint8

const (
	dormant   hosting = iota
	starting          // it is being given a process, and opened there
	serving           // link works for it
	releasing         // the agent is being told to close its side, or to delete it
	failing           // the process did not take a prompt, and is about to be lost
	pausing           // something is done that no process may meet: the first of pauses
)

// phase is how far a turn has come.
type phase uint8

const (
	queued     phase = iota
	waiting          // for a process
	running          // the agent has the prompt, or it is queued for the agent
	cancelling       // the agent was told to end it
	over
)

// eventKind says what has happened; the table above says what follows.
type eventKind uint8

const (
	prompted eventKind = iota
	requested
	cancelled
	withdrawn
	bound
	started
	startFailed
	answered
	lost
	stopped
	overdue
	released
	idle
	strayed
	setBack
	works
	unheeded
	changed
	paused
	resumed
	loaded
	copied
	discarded
	shutdown
)

// event is something that has happened.
type event struct {
	kind    eventKind
	turn    *turn        // prompted, withdrawn, answered, overdue
	req     *waiter      // requested, changed
	link    *link        // bound, started, lost, released, strayed, setBack
	attempt uint64       // bound, started, startFailed: which start it was
	res     *acp.Message // answered
	err     error        // startFailed, answered, lost; overdue, strayed: what the turn ends with; released: why it is not deleted
	goal    life         // stopped
	by      string       // stopped, with goal ended: who wanted it; idle: why
	done    stopDone     // stopped
	copy    *copying     // stopped, by a copy that is made; copied
	pause   *pause       // paused, resumed
	names   []string     // cancelled: the prompts that it is for alone; nil for all that goes on
	now     bool         // cancelled: the running turn only; idle: whatever goes on in the background
	stays   bool         // strayed: the agent cannot open the session again
	watch   *straying    // unheeded
	still   bool         // unheeded: nobody has set the agent back, or allowed what it does
}

// copying is a copy of a session that is being made.
type copying struct{ _ byte } // each has an address of its own

// straying is what an agent goes on with in the wrong mode.
type straying struct{ _ byte } // as copying

// pause is what is done while no process has the session open.
type pause struct {
	run  func() error // may wait for files, not for agents
	done func(error)  // of run, or why it is not called
	took bool         // a process is given back for it; set before run
}

// stopDone is called when the goal of a stop is reached. already says that it had been
// before, err what could not be done about it.
type stopDone func(already bool, err error)

// machine is the state of a session. Its zero value is an open, dormant session.
type machine struct {
	id      string       // of the session, for errors
	away    func() error // says of one that is closed where it went; nil, and nil from it, for nowhere
	life    life
	goal    life // of stopping
	by      string
	hosting hosting
	attempt uint64 // counts starts
	link    *link  // starting (once bound), serving, releasing
	turn    *turn
	queue   []*turn    // at most maxQueued
	named   []*named   // prompts whose repetition is noticed, oldest first; at most maxNamed
	waiters []*waiter  // requests that wait for a process; at most maxQueued
	asked   uint64     // counts prompts and requests
	stops   []stopDone // who waits for the goal
	copies  []*copying // closed, or stopping to be: nobody else has stopped it
	pauses  []*pause   // releasing, pausing: what no process may meet, in its order; at most maxQueued
	down    bool       // the gateway ends
	told    bool       // stopping, to be deleted: the agent was told to delete its own record; the files go then
	lesser  life       // stopping, to be deleted: the goal if the agent, or the disk, refuses that
	refused error      // stopping: why it did
	asks    int        // open requests of the agent
	calls   int        // open tool calls
	quiet   int        // those of them with which a turn has ended that was cancelled; they may go on in the background, or be forgotten
	alone   bool       // the agent says that it works, though nobody has prompted it
	working bool       // the agent has shown something since the last turn, or cancel
	astray  bool       // serving: the agent is not in the mode that holds the session, and gets no prompt before it is
	setting bool       // astray: it is being set to that
	watch   *straying  // astray: unheeded comes for it; nil when all has ended that the agent was told to end
	ending  bool       // alone: the agent was told to end it
	effects []effect   // of the event in hand
}

func (m *machine) do(e effect) { m.effects = append(m.effects, e) }

// on changes the state for the event and returns what has to be done, until the next
// call.
func (m *machine) on(e event) []effect {
	clear(m.effects)
	m.effects = m.effects[:0]
	switch e.kind {
	case prompted:
		m.prompt(e.turn)
	case requested:
		m.request(e.req)
	case cancelled:
		switch {
		case e.names != nil:
			m.cancelNamed(e.names)
		case e.now:
			m.cancel()
		default:
			m.emptyQueue()
			m.cancel()
		}
	case withdrawn:
		m.withdraw(e.turn)
	case bound:
		if m.hosting == starting && m.attempt == e.attempt {
			m.unlink("the agent did not open the session")
			m.link = e.link
		}
	case started:
		switch {
		case m.hosting != starting || m.attempt != e.attempt:
		case m.link != e.link: // it was lost in the last moment
			m.failStart(e.err, true)
		default:
			m.hosting, m.working = serving, false
			m.proceed()
		}
	case startFailed:
		if m.hosting == starting && m.attempt == e.attempt {
			m.failStart(e.err, untaken(e.err))
		}
	case answered:
		if t := e.turn; m.turn == t && t.phase >= running && !m.again(t, e.err) {
			if t.strayed != nil {
				t.used, e.res, e.err = e.res, nil, t.strayed
			}
			m.end(t, e.res, e.err)
			m.proceed()
		}
	case lost:
		m.lose(e.link, e.err)
	case stopped:
		m.stop(e)
	case overdue:
		if t := m.turn; t != nil && e.turn == t && (m.life == stopping || t.phase == cancelling && m.hosting == serving) {
			m.endUnheeded(e.err)
		}
	case released:
		if m.hosting == releasing && m.link == e.link {
			m.unlink("the session gave its process back")
			m.leave()
			if e.err != nil && m.life == stopping && m.goal == deleted { // it is not for us to say that it is gone
				m.goal, m.refused = m.lesser, e.err
			}
			m.proceed()
		}
	case idle:
		if m.life == open && m.hosting == serving && m.turn == nil && m.asks == 0 && (m.calls == 0 && !m.alone || e.now) {
			m.release()
			m.do(effect{do: tellReleased, by: e.by})
		}
	case strayed:
		if m.life == open && m.hosting == serving && m.link == e.link {
			m.stray(e)
		}
	case setBack:
		if m.link == e.link && m.hosting == serving {
			m.astray, m.setting, m.watch = false, false, nil
			m.proceed()
		}
	case works:
		if m.life == open && m.mayNotWork() && m.watch == nil {
			m.cancelAlone()
			m.watchStray()
		}
	case unheeded:
		if m.watch == e.watch {
			m.unheeded(e.still)
		}
	case changed:
		if m.refusal() == nil && m.hosting == serving && !m.busy() {
			m.wait(e.req)
			m.release()
		} else {
			m.request(e.req)
		}
	case paused:
		m.pause(e.pause)
	case resumed:
		if m.hosting == pausing {
			m.pauses = m.pauses[1:]
			m.leave()
			m.proceed()
		}
	case loaded:
		if m.life == closed {
			m.reopen()
		}
	case copied:
		if m.life == closed && slices.Contains(m.copies, e.copy) {
			m.copies = slices.DeleteFunc(m.copies, func(c *copying) bool { return c == e.copy })
			if len(m.copies) == 0 {
				m.reopen()
			}
		}
	case discarded:
		m.life, m.copies = deleted, nil
	case shutdown:
		m.down = true
		m.emptyQueue()
		m.failWaiters(agents.ErrShutdown)
		if m.turn != nil {
			m.cancel()
		}
		if m.hosting == starting {
			m.do(effect{do: giveUpStart})
		}
	}
	return m.effects
}

// refusal says why the session takes no work, nil when it does.
func (m *machine) refusal() error {
	switch {
	case m.life == deleted || m.life == stopping && m.goal == deleted:
		return problem.New(problem.SessionNotFound, "session %s was deleted", m.id)
	case m.life == ended || m.life == stopping && m.goal == ended:
		return acp.Errorf(acp.CodeResourceNotFound, "session %s has ended (terminated): start a new one", m.id).
			WithData(map[string]string{"type": problem.Conflict.Type()})
	case m.life == closed || m.life == stopping:
		if m.away != nil {
			if err := m.away(); err != nil {
				return err
			}
		}
		return acp.Errorf(acp.CodeResourceNotFound, "session %s is closed: open it with session/load or session/resume", m.id).
			WithData(map[string]string{"type": problem.Conflict.Type()})
	case m.down:
		return agents.ErrShutdown
	}
	return nil
}

func (m *machine) prompt(t *turn) {
	m.asked++
	t.place = m.asked
	err := m.refusal()
	if n := m.before(t); n != nil {
		if t.same = n; n.sum != t.named.sum {
			t.same, err = nil, errOtherPrompt(n.name)
		}
	}
	switch {
	case t.same != nil:
		t.phase = over
		m.do(effect{do: joinTurn, turn: t})
	case err != nil:
		m.refuse(t, err)
	case m.turn == nil:
		m.remember(t)
		m.begin(t)
	case len(m.queue) >= maxQueued:
		m.refuse(t, acp.Errorf(acp.CodeInternal, "the session has %d prompts waiting already: wait for one to end, or send session/cancel", maxQueued))
	default:
		m.remember(t)
		t.phase = queued
		m.queue = append(m.queue, t)
	}
}

// refuse answers a prompt that is not taken. Nobody else has heard of it, and its client may ask once more.
func (m *machine) refuse(t *turn, err error) {
	t.phase, t.refused = over, true
	m.do(effect{do: endTurn, turn: t, err: err})
}

// begin makes t the turn. Its prompt is part of the history from now on, or when the
// session has a process: an agent that opens it again may know what was said elsewhere
// meanwhile, and that goes before the prompt.
func (m *machine) begin(t *turn) {
	m.turn, t.phase = t, waiting
	if t.stale && m.hosting == serving && m.asks == 0 && m.calls == 0 && !m.alone {
		m.release()
	}
	m.serve()
}

// record has a turn's prompt written down, once.
func (m *machine) record(t *turn) {
	if !t.recorded {
		t.recorded = true
		m.do(effect{do: recordPrompt, turn: t})
	}
}

// serve gives the turn to the process, or sees to it that there is one for the turn
// or for the requests that wait.
func (m *machine) serve() {
	switch t := m.turn; {
	case m.hosting == serving && t != nil && t.phase == waiting && m.astray:
		if !m.setting {
			m.setting = true
			m.do(effect{do: setToMode, link: m.link})
		}
	case m.hosting == serving && t != nil && t.phase == waiting:
		m.record(t)
		t.phase, m.ending = running, false
		m.do(effect{do: givePrompt, turn: t, link: m.link})
	case m.hosting == dormant && t != nil:
		m.start(effect{do: startProcess, turn: t})
	case m.hosting == dormant && len(m.waiters) > 0:
		m.start(effect{do: startProcess, req: m.waiters[0]})
	}
}

// pause has something done while no process has the session open. A process that serves it is given back for that.
func (m *machine) pause(p *pause) {
	err := m.refusal()
	if m.life == closed && len(m.copies) == 0 && !m.down && (m.away == nil || m.away() == nil) {
		err = nil
	}
	switch {
	case err != nil:
	case len(m.pauses) >= maxQueued:
		err = acp.Errorf(acp.CodeInternal, "%d changes wait for the session already", maxQueued)
	case m.busy() && len(m.pauses) == 0, m.hosting == failing: // what waits behind a pause has not begun
		err = problem.New(problem.Conflict, "session %s is working: cancel what it does, or wait for its end, and try again", m.id)
	}
	if err != nil {
		m.do(effect{do: refusePause, pause: p, err: err})
		return
	}
	m.pauses = append(m.pauses, p)
	switch m.hosting {
	case serving:
		p.took = true
		m.release()
	case dormant:
		m.leave()
	}
}

// leave is what follows when no process has the session open any more.
func (m *machine) leave() {
	m.hosting = dormant
	if len(m.pauses) > 0 {
		m.hosting = pausing
		m.do(effect{do: runPause, pause: m.pauses[0]})
	}
}

// busy reports whether something goes on in the session, or waits for its process.
func (m *machine) busy() bool {
	return m.life == stopping || m.turn != nil || m.asks > 0 || m.calls > 0 || m.alone || len(m.waiters) > 0 || m.hosting == starting
}

func (m *machine) start(e effect) {
	m.hosting = starting
	m.attempt++
	e.attempt = m.attempt
	m.do(e)
}

// failStart ends what waits for a process with the reason why there is none. Where the process has come to its end that was to
// open the session, all that waits may do so for another one, once.
func (m *machine) failStart(err error, ended bool) {
	m.unlink("the agent did not open the session")
	m.hosting = dormant
	again := func(missed *bool) bool {
		first := ended && !*missed && m.refusal() == nil
		*missed = true
		return first
	}
	waiters := m.waiters
	m.waiters = nil
	for _, w := range waiters {
		if again(&w.missed) {
			m.waiters = append(m.waiters, w)
		} else {
			m.do(effect{do: refuseRequest, req: w, err: err})
		}
	}
	if t := m.turn; t != nil && !again(&t.missed) {
		m.end(t, nil, err)
	}
	m.proceed()
}

func (m *machine) request(w *waiter) {
	switch err := m.refusal(); {
	case err != nil:
		m.do(effect{do: refuseRequest, req: w, err: err})
	case m.hosting == serving && (m.turn == nil || m.turn.phase != waiting):
		m.do(effect{do: runRequest, req: w, link: m.link})
	case len(m.waiters) >= maxQueued:
		m.do(effect{do: refuseRequest, req: w, err: acp.Errorf(acp.CodeInternal, "%d requests wait for the session's agent already", maxQueued)})
	default:
		m.wait(w)
		if m.hosting == dormant {
			m.start(effect{do: startProcess, req: w})
		}
	}
}

func (m *machine) wait(w *waiter) {
	m.asked++
	w.place = m.asked
	m.waiters = append(m.waiters, w)
}

func (m *machine) failWaiters(err error) {
	for _, w := range m.waiters {
		m.do(effect{do: refuseRequest, req: w, err: err})
	}
	m.waiters = nil
}

// end ends a turn with the agent's answer, with an error, or as cancelled. One that was
// cancelled is so if nobody got its prompt.
func (m *machine) end(t *turn, res *acp.Message, err error) {
	if t.phase == cancelling && untaken(err) {
		err = nil
	}
	if t.phase == waiting { // it had begun, and never got a process
		m.record(t)
	}
	t.cancelled, t.phase = t.phase == cancelling, over
	m.do(effect{do: endTurn, turn: t, res: res, err: err})
	if m.turn == t {
		m.turn = nil
		m.rests()
	}
}

// again has a turn wait for another process when the one that it was for has ended and
// certainly did not take the prompt: once, while the turn is wanted. When that agent has shown something since, the
// prompt is kept no longer.
func (m *machine) again(t *turn, err error) bool {
	if !untaken(err) || t.phase != running || t.missed || t.shown || m.refusal() != nil {
		return false
	}
	t.phase, t.missed, m.hosting = waiting, true, failing
	m.do(effect{do: takeBack, turn: t})
	return true
}

// untaken reports whether the agent has certainly not been given the prompt.
func untaken(err error) bool {
	_, ok := errors.AsType[*agents.UntakenError](err)
	return ok
}

// lose is the end of the process that works for the session.
func (m *machine) lose(l *link, cause error) {
	if m.link != l || m.life == stopping && m.told { // of one that is being deleted it is said when that is over
		return
	}
	m.do(effect{do: answerAll})
	m.do(effect{do: endHostWork})
	m.do(effect{do: failCalls, reason: "the agent's process ended"})
	m.left()
	if m.hosting == starting {
		return // who starts it learns of it, and says so
	}
	if m.hosting != releasing {
		m.do(effect{do: noteLoss, err: cause})
	}
	m.leave()
	if t := m.turn; t != nil && t.phase >= running { // one that waits is for the next process
		m.end(t, nil, cause)
	}
	m.proceed()
}

// unlink ends what is open on the side of a process that lives on.
func (m *machine) unlink(reason string) {
	if m.link != nil {
		m.do(effect{do: answerAll, link: m.link})
		m.do(effect{do: endHostWork})
		m.do(effect{do: failCalls, reason: reason})
		m.left()
	}
}

// left notes that no process works for the session any more.
func (m *machine) left() {
	m.link, m.alone, m.astray, m.setting, m.watch, m.ending = nil, false, false, false, nil, false
}

// release has the agent close its side of the session, or delete it: a dormant one
// at a process that is looked for.
func (m *machine) release() {
	m.hosting, m.astray, m.setting, m.watch, m.ending = releasing, false, false, nil, false
	goal := closed
	if m.life == stopping {
		goal = m.goal
		m.told = goal == deleted
	}
	if m.link != nil {
		m.do(effect{do: answerAll, link: m.link})
	}
	m.do(effect{do: release, link: m.link, goal: goal})
}

func (m *machine) stop(e event) {
	forCopies := len(m.copies) > 0
	switch {
	case e.goal < closed: // who only waits
	case e.copy == nil:
		m.copies = nil
	case forCopies || m.life == open:
		m.copies = append(m.copies, e.copy)
	}
	switch {
	case m.life == stopping:
		if e.goal > m.goal {
			m.goal = e.goal
		}
		if e.goal != deleted {
			m.lesser, m.by = max(m.lesser, e.goal), cmp.Or(e.by, m.by)
		}
		m.stops = append(m.stops, e.done)
		return
	case m.life >= e.goal:
		if forCopies && e.copy == nil { // it stays closed now
			m.do(effect{do: reachGoal, goal: closed})
		}
		m.do(effect{do: tellStopped, done: e.done, already: true})
		return
	}
	m.lesser = max(m.life, closed)
	if e.goal != deleted {
		m.lesser = e.goal
	}
	m.life, m.goal, m.by, m.told, m.refused = stopping, e.goal, e.by, false, nil
	m.stops = append(m.stops, e.done)
	m.emptyQueue()
	m.failWaiters(m.refusal())
	m.cancel()
	if m.turn != nil {
		m.do(effect{do: watchStop, turn: m.turn})
	}
	if m.hosting == starting {
		m.do(effect{do: giveUpStart})
	}
	m.proceed()
}

func (m *machine) reopen() {
	m.life, m.copies = open, nil
	m.do(effect{do: reopen})
}

// proceed does what the state allows to be done next.
func (m *machine) proceed() {
	if m.life == stopping {
		m.proceedStop()
	} else {
		if m.turn == nil && len(m.queue) > 0 {
			t := m.queue[0]
			m.queue = m.queue[1:]
			m.begin(t)
		}
		m.pass()
		if m.turn != nil || len(m.waiters) > 0 {
			m.serve()
		}
		m.pass()
	}
	if m.turn == nil {
		m.do(effect{do: tellIdle})
	}
}

// pass has the process given the requests that have waited for it, but those that came behind a prompt it has not
// been given yet: what is asked in one order is done in that order.
func (m *machine) pass() {
	for m.hosting == serving && len(m.waiters) > 0 {
		w := m.waiters[0]
		if t := m.turn; t != nil && t.phase == waiting && t.place < w.place {
			return
		}
		m.waiters = m.waiters[1:]
		m.do(effect{do: runRequest, req: w, link: m.link})
	}
}

func (m *machine) proceedStop() {
	if m.turn != nil {
		return
	}
	switch m.hosting {
	case serving:
		m.release()
	case dormant:
		if m.goal == deleted && !m.told {
			m.release()
			return
		}
		m.life = m.goal
		m.do(effect{do: reachGoal, goal: m.goal, by: m.by})
		for _, done := range m.stops {
			m.do(effect{do: tellStopped, done: done, err: m.refused})
		}
		m.stops = nil
	}
}
