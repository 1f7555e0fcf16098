package session

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Close ends the session's work and gives its process back. Open opens it again. Went is where the session went before,
// "" where it is still here: then only what was left of it was closed.
func (s *Session) Close(ctx context.Context) (went string, err error) { return s.BeginClose()(ctx) }

// BeginClose begins to close the session: what a client asks for next meets a session that
// stops. The function returned waits until it is closed.
func (s *Session) BeginClose() (await func(ctx context.Context) (went string, err error)) {
	went, stopped := s.beginStop(closed, "")
	return func(ctx context.Context) (string, error) {
		_, err := stopped(ctx)
		return went, err
	}
}

// BeginTerminate begins to end the session for good; its events stay readable. already says
// that it had ended before. Went is as for Close.
func (s *Session) BeginTerminate(by string) (went string, await func(ctx context.Context) (already bool, end EndInfo, err error)) {
	went, stopped := s.beginStop(ended, by)
	return went, func(ctx context.Context) (already bool, end EndInfo, err error) {
		already, err = stopped(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.Ended != nil {
			end = *s.rec.Ended
		}
		return already, end, err
	}
}

// Delete ends the session and removes everything of it. Went is as for Close.
func (s *Session) Delete(ctx context.Context) (went string, err error) { return s.BeginDelete()(ctx) }

// BeginDelete is to Delete as BeginClose is to Close.
func (s *Session) BeginDelete() (await func(ctx context.Context) (went string, err error)) {
	went, stopped := s.beginStop(deleted, "")
	return func(ctx context.Context) (string, error) {
		already, err := stopped(ctx)
		if already {
			return "", notFound(s.id)
		}
		return went, err
	}
}

func (s *Session) beginStop(goal life, by string) (went string, await func(ctx context.Context) (already bool, err error)) {
	s.EndLostCalls()
	type result struct {
		already bool
		err     error
	}
	ch := make(chan result, 1)
	s.Log() // is opened without the lock
	s.mu.Lock()
	went = s.wentLocked()
	s.handleLocked(event{kind: stopped, goal: goal, by: by, done: func(already bool, err error) { ch <- result{already, err} }})
	return went, func(ctx context.Context) (already bool, err error) {
		select {
		case r := <-ch:
			return r.already, r.err
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// reachGoalLocked is what follows when a session has stopped: a closed or ended one is
// written down, a deleted one removed.
func (s *Session) reachGoalLocked(e effect, x *after) {
	x.slow = true
	switch e.goal {
	case closed:
		copied, end := len(s.m.copies) > 0, EndInfo{Reason: "closed"}
		if s.departing != "" {
			end = EndInfo{Reason: "moved", Message: "it goes on at " + placeOf(s.departing)}
		}
		if !copied && !s.rec.Closed && s.departing == "" {
			s.rec.Edits++ // no event tells of it, and who takes the session along would open it again
		}
		s.rec.Closed, s.unsaved = !copied, true
		s.noteDepartureLocked()
		x.then(func() {
			x.err = s.persist(true)
			s.Log().Release(0)
			if !copied { // else it is open again in a moment
				s.tellEnd(s.Clients(), end)
			}
		})
	case ended:
		if s.rec.Ended != nil {
			return // it had ended, and its agent would not delete it
		}
		end := EndInfo{Reason: "terminated", TerminatedBy: e.by, At: time.Now().UTC()}
		s.rec.Ended, s.unsaved = &end, true
		x.then(func() {
			_ = s.save() // who is told of it finds it so, also when the gateway is killed then
			s.Log().Append(journal.Notice, journal.Everyone, s.endFrame(end))
			s.Flush()
			x.err = s.persist(true)
		})
	case deleted:
		x.then(s.remove)
	}
}

// persist writes down what is known of the session.
func (s *Session) persist(durably bool) error {
	err := s.Unwritten(s.noteEnd())
	l := s.openedLog()
	switch {
	case l == nil: // nobody has opened it: it has nothing new
		return err
	case durably:
		return errors.Join(err, s.syncLog())
	}
	return errors.Join(err, l.Flush())
}

// A session is deleted in three steps. Its agent deletes its own record (release). The gateway puts the session's
// files away (putAway): if that fails, the session is closed, as one is that its agent would not delete, and can be
// deleted later. Only then is it gone (remove): nobody finds it, those who have it open are told, and what was put
// away is removed.

// putAway gives the session's files another name in one step, under which no start finds them. On an error they are
// where they were. What readers have not read yet they read at the new place.
func (s *Session) putAway() error {
	s.saving.Lock() // what is being written there ends first, and nothing is begun
	defer s.saving.Unlock()
	s.stopRaw()
	s.set.noteDeleted(s.id)
	err := s.moveFiles()
	if err != nil && s.born.Load() == nil { // else it is not a session yet, of which nobody knows
		s.set.unnoteDeleted(s.id)
		return problem.Wrap(problem.Unavailable, err, "the files of session %s cannot be removed now: try again", s.id)
	}
	return nil
}

// noFilesLocked reports whether the session is deleted, or about to be: a folder of its name is none of its own. saving
// is held, too.
func (s *Session) noFilesLocked() bool { return s.m.life == deleted || s.away != "" }

// inFolder has use read or write the session's folder. Whoever deletes the session waits for it, and has all that come
// later refused: another session may have the same id by then, and a folder of that name.
func (s *Session) inFolder(use func() error) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	over := s.noFilesLocked()
	s.mu.Unlock()
	if over {
		return notFound(s.id)
	}
	if err := s.set.store.place(); err != nil {
		return err
	}
	return use()
}

// moveFiles is putAway for who holds saving.
func (s *Session) moveFiles() (err error) {
	if s.set.store.dir == "" {
		return nil
	}
	s.opening.Lock() // who opens the log meanwhile would make the folder again
	defer s.opening.Unlock()
	if l := s.logp.Load(); l == nil {
		if s.away, err = s.set.store.putAway(s.id); err == nil {
			s.logp.Store(journal.Unavailable(notFound(s.id)))
		}
	} else {
		err = l.Move(func() (_ string, err error) {
			s.away, err = s.set.store.putAway(s.id)
			return filepath.Join(s.away, logFile), err
		})
	}
	if err == nil && s.set.o.Fsync != "never" {
		if err := journal.SyncFolder(s.set.store.dir); err != nil {
			s.logger().Warn("make the end of a session durable", "err", err)
		}
	}
	return err
}

// remove is the end of a session whose files were put away. Its log goes with it, so that those who were attached
// are told beside it, when nobody finds it any more.
func (s *Session) remove() {
	left := s.retire()
	s.tellEnd(left, EndInfo{Reason: "deleted"})
	s.set.removeAway(s.away)
}

// tellEnd tells clients that one of them has ended the session, where that is no event of its log.
func (s *Session) tellEnd(to []*viewer.Client, end EndInfo) {
	end.TerminatedBy, end.At = "client", time.Now().UTC()
	frame := s.endFrame(end)
	for _, c := range to {
		c.Post(journal.Notice, frame)
	}
}

// retire takes a deleted session out of the set, and from those who are attached to it,
// which it returns. Its files stay.
func (s *Session) retire() []*viewer.Client {
	s.set.forget(s)
	s.entered.Lock() // who is about to attach has done so, or will not
	close(s.gone)
	s.entered.Unlock()
	left := s.Clients()
	for _, c := range left {
		c.Detach(s)
	}
	s.closeLog()
	return left
}

// Open opens a closed session again, unless it goes on at another gateway. wait is not nil
// when it is about to stop, or was opened and its record does not say so yet: try again when
// it is closed.
func (s *Session) Open() (wait <-chan struct{}, err error) {
	s.mu.Lock()
	if err := s.overLocked(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if s.m.life == stopping {
		done := make(chan struct{})
		s.handleLocked(event{kind: stopped, done: func(bool, error) { close(done) }})
		return done, nil
	}
	var opened chan struct{}
	if s.m.life == closed { // a gateway that is killed would begin with it closed
		opened = make(chan struct{})
		s.editedLocked(edit{undo: func(*record) {}, told: func(error) { close(opened) }})
	}
	s.handleLocked(event{kind: loaded})
	return opened, nil
}

// Over says why a session cannot be opened, nil when it can. One that is closed stays so.
func (s *Session) Over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overLocked()
}

func (s *Session) overLocked() error {
	switch s.m.life {
	case ended:
		return acp.Errorf(acp.CodeResourceNotFound, "session %s has ended (%s): start a new one", s.id, s.rec.Ended.Reason)
	case deleted:
		return notFound(s.id)
	}
	return s.departedLocked()
}

// Shutdown makes the session take no more work, and cancels what it does. A log that was not
// opened yet stays so, when there is nothing to be said in it.
func (s *Session) Shutdown() {
	s.mu.Lock()
	s.handleLocked(event{kind: shutdown})
}

// AwaitIdle waits until no turn is under way, or ctx ends.
func (s *Session) AwaitIdle(ctx context.Context) {
	s.mu.Lock()
	if s.m.turn == nil {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

const logIdle = 30 * time.Second // a log silent for this long gives memory and file back

// silent is how long nothing has happened in the session.
func (s *Session) silent() time.Duration { return awake.Moment(s.stirred.Load()).Ago() }

// Bounds say how long a silent session keeps its process; 0 is for ever.
type Bounds struct {
	Idle       time.Duration // without a turn, requests of the agent, open tool calls and commands that were left running
	Unattached time.Duration // likewise, without a client, where the agent can open it again
	Background time.Duration // with any of them but a turn and requests
}

// Idle returns the process of a session in which nothing goes on and that its agent can
// open again, and since when nothing has happened. busy is true when something goes on.
func (s *Session) Idle() (p *agents.Process, since awake.Moment, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.hosting != serving {
		return nil, since, false
	}
	p = s.m.link.p
	caps := p.Capabilities()
	busy = s.choosing > 0 || s.m.life != open || s.m.turn != nil || s.m.asks > 0 || s.m.calls > 0 || s.m.alone || !caps.Resume && !caps.Load
	return p, awake.Moment(s.stirred.Load()), busy
}

// Why sessions give their processes back by themselves, as their clients are told.
const (
	ReleasedIdle       = "idle"               // for longer than --idle-timeout
	ReleasedUnattached = "unattached"         // for longer than --unattached-timeout
	ReleasedBackground = "background_timeout" // something went on for longer than that
	ReleasedCount      = "max_idle_processes" // more processes were idle
	ReleasedMemory     = "max_idle_memory"    // idle processes took more
)

// GiveBack gives the process of an idle session back, for one of the reasons.
func (s *Session) GiveBack(reason string) { s.giveBack(event{kind: idle, by: reason}) }

// giveBack is handle for the event idle. While the agent is being set to something, which has a time limit, nothing is done, unless the event
// is for whatever goes on: an agent may not know any more what it is asked for behind the end of its side.
func (s *Session) giveBack(e event) {
	s.Log() // is opened without the lock
	s.mu.Lock()
	if s.choosing > 0 && !e.now {
		s.mu.Unlock()
		return
	}
	s.handleLocked(e)
}

// tellReleased tells the clients that the session gives its process back. It is no event
// of the session: with the next prompt there is another one.
func (s *Session) tellReleased(reason string) {
	n := acp.NewNotification("_sandboxagent/session/released", rawjson.Object{}.String("sessionId", s.id).String("reason", reason).End())
	s.post(n.Frame())
}

// tellServers tells the clients how the session's MCP servers are now that no process has them.
// It is no event of the session, as the end of an idle process is none.
func (s *Session) tellServers() {
	s.mu.Lock()
	frame := s.serversFrame()
	s.mu.Unlock()
	s.post(frame)
}

// post gives the clients that are attached a notification that is no event of the session.
func (s *Session) post(frame []byte) {
	for _, c := range s.Clients() {
		c.Post(journal.Notice, frame)
	}
}

// Tidy gives back what an idle session holds: its process, and its log's memory sooner.
func (s *Session) Tidy(b Bounds) {
	s.announceActivity()
	s.tellStore()
	silent := s.silent()
	passed := func(bound time.Duration) bool { return bound > 0 && silent > bound }
	s.mu.Lock()
	busy := s.m.turn != nil || s.m.hosting == starting || s.m.hosting == releasing || s.m.hosting == failing
	reason := ""
	var p *agents.Process
	if s.m.hosting == serving && !busy {
		p = s.m.link.p
		caps := p.Capabilities()
		alone := !s.attendedLocked() && (caps.Resume || caps.Load)
		switch {
		case passed(b.Background):
			reason = ReleasedBackground
		case passed(b.Idle):
			reason = ReleasedIdle
		case alone && passed(b.Unattached):
			reason = ReleasedUnattached
		}
	}
	s.mu.Unlock()
	if reason == ReleasedBackground || reason != "" && !p.LeftRunning() {
		s.giveBack(event{kind: idle, by: reason, now: reason == ReleasedBackground})
	}
	if l := s.logp.Load(); l != nil && !busy && silent > logIdle {
		l.Release(logIdle)
		_ = s.noteEnd()
	}
}

func notFound(id string) error {
	return problem.New(problem.SessionNotFound, "session %q was not found", id)
}
