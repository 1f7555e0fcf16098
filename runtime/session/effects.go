package session

import (
	"cmp"
	"context"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// stopBound is how long a cancelled turn may take to end before its session is
// stopped all the same, or given up by an agent that is not in the mode that it must be in.
const stopBound = 5 * time.Second

// waiter is a request of a client that needs the session's process.
type waiter struct {
	needs agents.Needs
	ctx   context.Context // of the client
	ask   func(at At) (agents.Request, error)
	ready func() // in place of ask, for who only wants the session to have the process
	fail  func(err error)

	place  uint64 // in the order of what was asked
	missed bool   // a process has ended that was to be given it
}

// action is one thing to be done.
type action uint8

const (
	recordPrompt  action = iota // the turn's prompt goes to the log
	givePrompt                  // the prompt is queued for the agent
	takeBack                    // the agent was not given the prompt
	tellCancel                  // the agent is told to stop working
	tellWithdrawn               // the agent is told that the prompt was withdrawn
	endTurn                     // the turn's client is answered: with res, err, or as cancelled
	joinTurn                    // who asked again is answered as the prompt that it repeats
	answerPeople                // what the agent asks people is answered as cancelled
	answerAll                   // all that the agent asks is answered, as far as it lives
	failCalls                   // open tool calls are ended, for the reason
	noteLoss                    // clients are told that the process has ended
	startProcess                // a process is looked for and the session opened there
	giveUpStart                 // the start in progress is ended
	retireProcess               // the process gets no more sessions
	setToMode                   // the agent is set to the mode that holds the session; setBack or strayed comes then
	release                     // the agent is told to close the session, or to delete it
	runRequest                  // the request goes to the process
	refuseRequest               // the request gets the error
	watchStop                   // overdue comes if the turn takes too long to end
	watchStray                  // unheeded comes when the agent should have ended what it does
	reachGoal                   // what follows from the goal outside the machine
	tellStopped                 // who asked for the stop is told
	reopen                      // the record is open again
	tellIdle                    // who waits for the turn's end is told
	tellReleased                // the clients are told that the process is given back
	endHostWork                 // what the agent has left running on the host is ended
	runPause                    // what no process may meet is done; resumed comes then
	refusePause                 // it is not done
)

// effect is an action with what it is about.
type effect struct {
	do      action
	turn    *turn
	req     *waiter
	link    *link
	attempt uint64
	res     *acp.Message
	err     error
	goal    life
	by      string
	done    stopDone
	already bool // tellStopped
	reason  string
	pause   *pause
	watch   *straying
}

// after is what an event leaves to be done when the lock is free: first the log is
// shown, then the rest in its order.
type after struct {
	flush  bool
	save   bool
	slow   bool            // the rest touches files or waits for the agent
	agent  *agents.Process // has something queued; nil for none
	rest   []func()
	err    error   // of the rest
	events []event // that follow at once
}

func (x *after) run() {
	for _, f := range x.rest {
		f()
	}
}

func (x *after) then(f func()) { x.rest = append(x.rest, f) }

// queued notes that something was queued for an agent.
func (x *after) queued(p *agents.Process) {
	if x.agent != nil && x.agent != p {
		x.then(x.agent.Flush)
	}
	x.agent = p
}

// handle lets the machine take an event and carries out what follows. It does not
// wait for an agent.
func (s *Session) handle(e event) {
	s.Log() // is opened without the lock
	s.mu.Lock()
	s.handleLocked(e)
}

// handleLocked is handle for who holds mu, which is let go of.
func (s *Session) handleLocked(e event) {
	var x after
	left := (e.kind == lost || e.kind == released) && e.link != nil && s.m.link == e.link
	if left {
		s.rec.LeftAt, s.unsaved, x.save = time.Now().UTC(), true, true
	}
	before := s.m.hosting
	for _, eff := range s.m.on(e) {
		s.carryOutLocked(eff, e, &x)
	}
	if e.kind == bound && s.m.link == e.link {
		s.openings++
		e.link.opening = s.openings
	}
	if before != serving && s.m.hosting == serving {
		s.carryLateLocked()
		x.then(s.askLate)
	}
	for len(x.events) > 0 { // before anything else comes: the end of a process would be taken for that of a turn it was not given
		e, x.events = x.events[0], x.events[1:]
		for _, eff := range s.m.on(e) {
			s.carryOutLocked(eff, e, &x)
		}
	}
	if before == starting && s.m.hosting != starting || s.m.refusal() != nil {
		s.lookAgainLocked()
	}
	if left && s.stopServersLocked() {
		x.then(s.tellServers)
	}
	x.flush = s.noteAloneLocked() || x.flush
	s.unlock(&x)
}

// unlock lets go of mu and does what was left for then.
func (s *Session) unlock(x *after) {
	s.announceLocked()
	s.mu.Unlock()
	if x.agent != nil {
		x.agent.Flush()
	}
	if x.flush {
		s.Flush()
	}
	if x.slow {
		s.set.o.Tasks.Go(x.run)
	} else {
		x.run()
	}
	if x.save {
		s.saveSoon()
	}
}

// carryOutLocked does what can be done under the lock, so that log and agent see
// things in the order in which the state changed, and leaves the rest to x.
func (s *Session) carryOutLocked(eff effect, e event, x *after) {
	switch eff.do {
	case recordPrompt:
		s.recordLocked(eff.turn, x)
		x.flush = true
	case givePrompt:
		if err := s.giveLocked(eff.turn, eff.link); err != nil {
			x.events = append(x.events, event{kind: answered, turn: eff.turn, err: err})
		}
		x.queued(eff.link.p)
	case takeBack:
		s.takeBackLocked(eff.turn)
	case tellCancel:
		s.m.working = false
		eff.link.p.Put(acp.NewNotification(acp.MethodSessionCancel, sessionParams(eff.link.native)))
	case tellWithdrawn:
		eff.link.p.Put(acp.NewNotification(acp.MethodCancelRequest, requestParams(eff.turn.agentID)))
	case endTurn:
		s.endTurnLocked(eff.turn, eff.res, eff.err, x)
	case joinTurn:
		s.joinLocked(eff.turn, x)
	case answerPeople:
		s.closeAsksLocked(eff.link, (*ask).ForPerson, observe.Cancelled, x)
	case answerAll:
		s.closeAsksLocked(eff.link, func(*ask) bool { return true }, observe.Dropped, x)
	case failCalls:
		s.failCallsLocked(eff.reason, x)
	case noteLoss:
		s.noteLossLocked(eff.err, x)
	case startProcess:
		s.startLocked(eff)
	case giveUpStart:
		s.giveUp()
	case retireProcess:
		if eff.link != nil {
			eff.link.p.Retire()
		}
	case setToMode:
		s.carryLateLocked()
	case release:
		x.then(func() { s.set.o.Tasks.Go(func() { s.release(eff.link, eff.goal) }) })
	case runRequest:
		s.runLocked(eff.req, eff.link, e.kind == requested, x)
	case refuseRequest:
		x.then(func() { eff.req.fail(eff.err) })
	case watchStop:
		awake.AfterFunc(stopBound, func() { s.handle(event{kind: overdue, turn: eff.turn}) })
	case watchStray:
		awake.AfterFunc(stopBound, func() { s.unheeded(eff.watch) })
	case reachGoal:
		s.awaitToolsLocked(x)
		s.reachGoalLocked(eff, x)
	case tellStopped:
		s.awaitToolsLocked(x)
		x.then(func() { eff.done(eff.already, cmp.Or(eff.err, x.err)) })
	case reopen:
		s.rec.Closed, s.rec.Arriving, s.unsaved, x.save = false, false, true, true
	case tellIdle:
		if s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	case tellReleased:
		x.then(func() { s.tellReleased(eff.by) })
	case runPause:
		x.then(func() {
			s.set.o.Tasks.Go(func() {
				err := eff.pause.run()
				s.handle(event{kind: resumed})
				eff.pause.done(err)
			})
		})
	case refusePause:
		x.then(func() { eff.pause.done(eff.err) })
	case endHostWork:
		if h := s.set.o.HostTools; h != nil {
			if s.tools != nil {
				s.endTools() // first: a call that has not begun yet leaves nothing
				s.tools, s.endTools = nil, nil
			}
			x.then(func() { h.End(s.id) })
		}
	}
}

// runLocked gives a request to the process. One that comes now may wait until the agent reads; those that have
// waited are queued in their order, as prompts are.
func (s *Session) runLocked(w *waiter, l *link, now bool, x *after) {
	at := At{l, s.said.n}
	switch {
	case w.ready != nil:
		x.slow = true
		x.then(w.ready)
	case now:
		x.then(func() {
			r, err := w.ask(at)
			if err != nil {
				w.fail(err)
				return
			}
			ctx := w.ctx
			if ctx.Err() != nil { // its client is gone, the request goes on
				ctx = observe.Within(s.set.o.Life, ctx)
			}
			l.p.Call(ctx, r)
		})
	default:
		r, err := w.ask(at)
		if err != nil {
			x.then(func() { w.fail(err) })
		} else if err = l.p.Post(r); err != nil {
			x.then(func() { r.Done(nil, err) })
		}
		x.queued(l.p)
	}
}

// sessionParams are params that name a session and nothing else.
func sessionParams(id string) []byte { return rawjson.Object{}.String("sessionId", id).End() }

// requestParams are the params of a $/cancel_request.
func requestParams(id int64) []byte {
	return rawjson.Object{}.Raw("requestId", []byte(acp.IntID(id))).End()
}
