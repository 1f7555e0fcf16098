package codex

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// work is what is known of a prompt that codex works on. The session's mu guards
// it.
type work struct {
	ids   map[string]bool // of its turn: a review has several
	begun bool            // started is closed
	// Which turn is the prompt's codex says in its answer. One that begins before codex is given the prompt is its own, and one that
	// begins before the answer may be: begins are those, with their roots, and early their ends.
	given    bool
	answered bool
	begins   map[string]string
	early    []ended
	// compacts says that the prompt is a compaction, of which codex does not tell the turn; compacted is one that is such.
	compacts  bool
	compacted string
	brokenOff string // the newest turn that a compaction, or nothing, takes the place of
	started   chan struct{}
	over      bool   // its turn has ended
	aborted   bool   // it was broken off
	refused   int    // attempts with bad credentials
	auth      string // why credentials are bad
}

// begin notes that the turn has begun.
func (t *work) begin() {
	if !t.begun {
		t.begun = true
		close(t.started)
	}
}

// ended is the end of a turn.
type ended struct {
	*turnInfo
	used *schema.Usage
}

// known notes the id of the prompt's turn, as codex has answered it; "" for one that it does not tell. Of what began before that,
// codex began by itself what has another.
func (s *session) known(t *turn.Turn[work], id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Work.answered = true
	if id != "" {
		t.Work.ids[id] = true
		if s.turns.Owns(id) { // it was put into that
			s.turns.OwnOver(id)
			t.Work.begin()
		}
		for one, root := range t.Work.begins {
			if one == id || root == id {
				continue
			}
			s.ownLocked(t, one)
		}
	}
	for _, one := range t.Work.early {
		if t.Work.compacts && t.Work.compacted != one.ID && (t.Work.compacted != "" || one.Status == "completed") {
			delete(t.Work.ids, one.ID) // one that fails, or is broken off, may have come to no compaction
		}
		s.settleLocked(t, one)
	}
	if t.Work.over { // what has begun behind its end is not of it
		for one := range t.Work.begins {
			s.ownLocked(t, one)
		}
	}
	t.Work.early = nil
}

// ownLocked makes a turn codex's own that has begun as codex was given a prompt; mu is held.
func (s *session) ownLocked(t *turn.Turn[work], id string) {
	delete(t.Work.ids, id)
	if !slices.ContainsFunc(t.Work.early, func(e ended) bool { return e.ID == id }) {
		s.turns.Own(id)
	}
}

// untaken makes codex's own what has begun as codex was given a prompt that it has not taken.
func (s *session) untaken(t *turn.Turn[work]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Settle(turn.Verdict{})
	for id := range t.Work.begins {
		s.ownLocked(t, id)
	}
}

// owns reports whether a turn is of the session's newest prompt, or runs without
// one.
func (s *session) owns(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest[id] || s.turns.Owns(id)
}

// observe notes what a notification means for the turn, before it is shown.
func (s *session) observe(e *event) {
	if e.Thread != s.thread {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turns.Current()
	switch {
	case e.Method == "turn/started" && e.Turn != nil:
		// It may come before the response to the prompt, which it answers then.
		if t == nil || !t.Work.given && !t.Work.answered {
			s.turns.Own(e.Turn.ID)
			return
		}
		t.Work.ids[e.Turn.ID] = true
		if !t.Work.answered {
			t.Work.begins[e.Turn.ID] = e.Turn.Root
		} else if e.Turn.Root != "" {
			t.Work.ids[e.Turn.Root] = true
		}
		t.Work.begin()
	case e.Method == "item/started" && e.Item != nil && e.Item.Type == "contextCompaction" && t != nil:
		t.Work.compacted = e.TurnID
	case e.Method == "error" && e.Retry && t != nil:
		f := e.failure()
		if f == nil || !f.unauthorized() {
			return
		}
		if t.Work.refused++; t.Work.refused >= s.srv.attempts() && t.Work.auth == "" {
			t.Work.auth = bridge.FirstOf(f.Details, f.Message)
			s.nudge(t) // further attempts would fail as well
		}
	}
}

func (s *server) attempts() int {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.account.attempts()
}

// settle ends the turn that codex says is over.
func (s *session) settle(one *turnInfo) {
	s.out.Lock()
	used := s.tr.usage.ofTurn()
	s.out.Unlock()
	t := s.turns.Current() // a prompt that waits may begin as soon as what runs by itself is over
	swept := one.Status == "interrupted" && s.turns.Owns(one.ID)
	s.endAsksOf(one.ID)
	s.turns.OwnOver(one.ID, one.Root)
	s.mu.Lock()
	defer s.mu.Unlock()
	if swept && s.ctx.Err() == nil {
		s.work.Go(func() {
			if err := s.sweep(map[string]bool{one.ID: true}); err != nil {
				s.log.Warn("end the commands of a turn", "err", err)
			}
		})
	}
	s.turns.OwnOver(one.ID, one.Root) // ownLocked may have come in between
	switch {
	case t == nil:
	case t.Work.answered:
		s.settleLocked(t, ended{one, used})
	default:
		t.Work.early = append(t.Work.early, ended{one, used})
	}
}

// settleLocked ends a prompt with a turn, if that is its own; mu is held.
func (s *session) settleLocked(t *turn.Turn[work], one ended) {
	if !t.Work.ids[one.ID] {
		return
	}
	if t.Work.compacts && t.Work.compacted != one.ID && one.Status == "interrupted" && !t.Stopping() {
		delete(t.Work.ids, one.ID) // the compaction takes its place
		delete(t.Work.ids, one.Root)
		t.Work.brokenOff = one.ID
		t.Go(func(ctx context.Context) { s.awaitCompaction(ctx, t, one) })
		return
	}
	s.endLocked(t, one)
}

// compactionBound is how long codex may take to begin a compaction in the place of a turn that it has broken off for it, and
// cancelledBound when nobody wants it any more.
const (
	compactionBound = 30 * time.Second
	cancelledBound  = 2 * time.Second
)

// awaitCompaction ends a prompt that is a compaction with a turn that was broken off, when none begins behind it: that turn was the
// compaction, which codex had told nothing of.
func (s *session) awaitCompaction(ctx context.Context, t *turn.Turn[work], one ended) {
	late, stop := awake.After(compactionBound)
	defer stop()
	select {
	case <-late:
	case <-t.Stopped():
		soon, stop := awake.After(cancelledBound)
		defer stop()
		select {
		case <-soon:
		case <-ctx.Done():
			return
		}
	case <-ctx.Done():
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Work.compacted == "" && t.Work.brokenOff == one.ID && len(t.Work.ids) == 0 {
		s.endLocked(t, one)
	}
}

// endLocked ends a prompt with a turn; mu is held.
func (s *session) endLocked(t *turn.Turn[work], one ended) {
	t.Work.over, t.Work.aborted = true, one.Status == "interrupted"
	v := t.Work.judge(one.turnInfo)
	v.Usage = one.used
	t.Settle(v)
}

// judge turns the end of a turn into what the prompt's response says.
func (t *work) judge(one *turnInfo) turn.Verdict {
	if t.auth != "" {
		return turn.Verdict{Err: authRequired(t.auth)}
	}
	switch {
	case one.Status == "interrupted":
		return turn.Verdict{Reason: schema.StopReasonCancelled}
	case one.Status != "failed":
		return turn.Verdict{Reason: schema.StopReasonEndTurn}
	}
	f := one.Error
	if f == nil {
		f = &turnError{Message: "the turn failed"}
	}
	kind, status := f.kind()
	switch {
	case f.unauthorized():
		return turn.Verdict{Err: authRequired(f.Message)}
	case strings.Contains(f.Message, "max_output_tokens"):
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}
	case kind == "cyberPolicy" || kind == "misalignmentPolicyViolation" || strings.Contains(f.Message, "content_filter"):
		return turn.Verdict{Reason: schema.StopReasonRefusal}
	}
	data := map[string]any{"type": adapters.ErrorType("agent_error"), "kind": kind}
	if status != 0 {
		data["status"] = status
	}
	if f.Details != "" {
		data["details"] = f.Details
	}
	return turn.Verdict{Err: acp.Errorf(acp.CodeInternal, "%s", f.Message).WithData(data)}
}

// stopTurn ends a turn. Before it has begun there is nothing to interrupt.
func (s *session) stopTurn(ctx context.Context, t *turn.Turn[work]) {
	s.dropAsksOf(t)
	select {
	case <-t.Work.started:
	case <-ctx.Done():
		return
	}
	if err := s.interrupt(ctx, t); err != nil {
		s.log.Debug("interrupt a turn", "err", err)
	}
}

// interruptPauses are those between attempts to interrupt a turn, which codex
// refuses until it has really begun.
var interruptPauses = []time.Duration{
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
}

// interrupt breaks off turn t, or what codex does by itself if that is nil. It asks codex to
// break off whatever turn of the thread runs, so it ends when that is another one.
func (s *session) interrupt(ctx context.Context, t *turn.Turn[work]) error {
	for _, pause := range interruptPauses {
		if early, err := s.tryInterrupt(ctx, t); !early {
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
	return errors.New("codex says that there is no turn to interrupt")
}

// tryInterrupt is one attempt to interrupt. It reports whether there is no turn to interrupt yet.
func (s *session) tryInterrupt(ctx context.Context, t *turn.Turn[work]) (early bool, err error) {
	if t == nil {
		// What codex does by itself may end at any time. The next prompt waits for the attempt, which would
		// interrupt it, but not for a process that hangs: it finds that out itself.
		release, ok := s.turns.Pause()
		if !ok {
			return false, nil
		}
		defer release()
		if !s.turns.Alone() {
			return false, nil
		}
		var done context.CancelFunc
		ctx, done = bridge.Within(ctx, hangBound)
		defer done()
	} else if s.turns.Current() != t {
		return false, nil
	}
	err = s.srv.call(ctx, "turn/interrupt", map[string]string{"threadId": s.thread, "turnId": ""}, nil)
	return notBegun(err), err
}

// notBegun reports whether codex refused to break off a turn because there is none yet.
func notBegun(err error) bool { return strings.Contains(refused(err), "no active turn") }

// nudge interrupts turn t, or what codex does by itself if that is nil, without waiting for
// it. Behind the turn it would interrupt the next one.
func (s *session) nudge(t *turn.Turn[work]) {
	interrupt := func(ctx context.Context) {
		if err := s.interrupt(ctx, t); err != nil {
			s.log.Debug("interrupt a turn", "err", err)
		}
	}
	if t != nil {
		t.Go(interrupt)
		return
	}
	s.beside(func() { interrupt(s.ctx) })
}

// beside runs f beside everything else, unless the session has ended.
func (s *session) beside(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.work.Go(f)
	}
}

// hangBound is how long codex may leave unanswered that a turn is to end which did not end in
// time. Tests lower it.
var hangBound = 15 * time.Second

// hung ends the process when it does not even answer that a turn is to end: it hangs, for all
// its sessions. It reports whether that was so.
func (s *session) hung() bool {
	ctx, cancel := bridge.Within(s.ctx, hangBound)
	defer cancel()
	err := s.srv.call(ctx, "turn/interrupt", map[string]string{"threadId": s.thread, "turnId": ""}, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	s.log.Warn("codex does not answer, so its process is ended")
	s.srv.child.Stop(process.Ladder{Term: process.DefaultLadder.Term})
	<-s.srv.ended
	return true
}

// tidy ends what a turn left running when it was broken off, and closes what it
// left open. What earlier turns left in the background goes on, as does a turn
// that did not end: the next prompt waits for it.
func (s *session) tidy(t *turn.Turn[work], v turn.Verdict) turn.Verdict {
	s.asks.AwaitWithdrawn() // those of its subagents
	s.mu.Lock()
	ids, aborted := maps.Clone(t.Work.ids), t.Work.aborted
	left := v.Left && !t.Work.over
	if left { // before codex is asked: its end may come with the answer
		for id := range ids {
			s.turns.Own(id)
		}
	}
	s.mu.Unlock()
	switch {
	case left && s.hung():
		return turn.Verdict{Err: s.srv.exit}
	case !left && !aborted:
		return v
	}
	if err := s.sweep(ids); err != nil {
		s.log.Debug("end a command", "err", err)
		if err := s.srv.call(s.ctx, "thread/backgroundTerminals/clean", map[string]string{"threadId": s.thread}, nil); err != nil {
			s.log.Warn("end the commands of a turn", "err", err)
		}
	}
	return v
}

// sweep ends the subagents and the commands that turns left running when they were broken off, and closes what they left open. Codex
// would go on with a subagent. The error is that of a command.
func (s *session) sweep(turns map[string]bool) error {
	s.endSubagents(s.ctx, func(t *translator) map[string]bool { return t.ofTurns(func(turn string) bool { return turns[turn] }) })
	s.out.Lock()
	processes := s.tr.running(turns)
	s.out.Unlock()
	var err error
	for _, id := range processes {
		if err = s.srv.call(s.ctx, "thread/backgroundTerminals/terminate", map[string]string{"threadId": s.thread, "processId": id}, nil); err != nil {
			break
		}
	}
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandonTurns(turns) })
	return err
}

// endSubagents ends those of some subagents that work. Codex refuses it for one that has not begun, and would go on with that.
func (s *session) endSubagents(ctx context.Context, of func(t *translator) map[string]bool) {
	told := map[string]bool{}
	for _, pause := range interruptPauses {
		s.out.Lock()
		children := s.tr.working(of(s.tr))
		s.out.Unlock()
		early := false
		for _, child := range children {
			if told[child] {
				continue
			}
			err := s.endThread(ctx, child)
			if told[child] = !notBegun(err); !told[child] {
				early = true
			}
			if err != nil {
				s.log.Debug("end a subagent", "err", err)
			}
		}
		if !early {
			return
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}
