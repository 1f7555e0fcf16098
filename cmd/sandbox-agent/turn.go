package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// turn is one run of the prompt command.
type turn struct {
	o     promptOptions
	std   stdio
	view  *view
	asker *asker
	link  *link
	ends  *turnEnds // of version 2
	news  *installing
	ctx   context.Context // ends with the turn; for answers to the agent

	work  sync.WaitGroup // questions being asked
	kinds kindsSeen
	// opening says that the connection is there, and that what comes belongs to
	// the session.
	opening  atomic.Bool
	attached bool          // the session is open; of receive
	early    []acp.Message // requests that came before, of whose turn is not known; likewise
	sent     chan struct{} // closed once the prompt was sent
	dear     chan error    // gets one error when the session has cost too much
	left     chan error    // gets one error when the turn is not waited for any longer

	mu       sync.Mutex
	session  string // "" until there is one
	making   bool   // the gateway is told, or about to be, to begin a session, whose id only its answer, which has not come, tells
	running  bool   // the prompt is sent, or about to be
	request  acp.ID // the prompt's, once it was sent
	begun    bool   // its turn is known to have begun; of version 2
	foreign  bool   // the turn that goes on is another client's
	turnAt   turnAt
	away     bool   // there is no connection
	stopped  error  // why the turn was cancelled: Ctrl-C, --timeout or --max-cost
	hungUp   bool   // the terminal is gone
	atOnce   bool   // a second Ctrl-C came
	spent    *cost  // by the session; nil as long as the agent tells none
	declined string // what was declined because there is nobody to ask: a permission or a question
	rejected bool   // a rule has rejected a request
	open     map[acp.ID]context.CancelFunc
}

// runTurn runs the prompt, and then does with the session what was asked for. A turn that
// was given up is left behind when it does not end at once, because nobody reads what it
// writes: the end of the process ends it as well.
func runTurn(ctx context.Context, o promptOptions, signals <-chan os.Signal, std stdio) error {
	t := &turn{o: o, std: std, view: newView(std, o.colours, o.json), ends: newTurnEnds(), sent: make(chan struct{}), dear: make(chan error, 1), left: make(chan error, 1), open: map[acp.ID]context.CancelFunc{}}
	t.asker = newAsker(std.in, t.view)
	t.news = &installing{std: std, quiet: o.json}
	ended := make(chan error, 1)
	go func() { ended <- t.run(ctx, signals) }()
	var err error
	select {
	case err = <-ended:
	case why := <-t.left:
		select {
		case err = <-ended:
		case <-time.After(2 * goodbye):
			err = why
		}
	}
	return t.finish(ctx, signals, err)
}

// finish ends the session if that was asked for. err is the turn's. After a signal it does
// not wait long, and after a second one not at all.
func (t *turn) finish(ctx context.Context, signals <-chan os.Signal, err error) error {
	t.mu.Lock()
	id, stopped, atOnce := t.session, t.stopped, t.atOnce
	t.mu.Unlock()
	if id == "" || t.o.ending == (ending{}) {
		return t.leaves(err)
	}
	if atOnce {
		return &leftError{fmt.Sprintf("session %s was not ended", id), err}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var late <-chan time.Time
	if stopped != nil {
		late = time.After(endPatience)
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case s := <-signals:
				if t.repeats(s) {
					continue
				}
				cancel(errInterrupted)
			case <-late:
				cancel(errors.New("the gateway does not answer"))
			case <-done:
			}
			return
		}
	})
	defer watcher.Wait()
	defer close(done)
	return t.o.ending.of(ctx, t.o.target, id, t.o.agent, err)
}

// leaves adds to the error of a command that was stopped before its prompt was sent what it leaves behind.
func (t *turn) leaves(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil || t.stopped == nil || t.running || t.o.session != "":
	case t.making:
		return &leftError{sessionUnanswered, t.stopped}
	case t.session != "" && errors.Is(err, t.stopped):
		return &leftError{"session " + t.session + " is there", t.stopped}
	}
	return err
}

// run connects, opens or resumes the session, and runs the prompt.
func (t *turn) run(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(ctx)
	t.ctx = ctx
	o := t.o
	kill := func(why error) {
		cancel(why)
		select {
		case t.left <- why:
		default: // it was given up before
		}
	}
	defer t.news.end()

	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { t.watch(signals, after(t.o.timeout), done, kill) })
	defer watcher.Wait()
	defer close(done)
	defer t.work.Wait()
	defer cancel(nil)

	var agent string
	if o.session != "" {
		cwd, of, err := sessionCwd(ctx, o.target, o.session, "")
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		t.o.cwd, agent = cwd, of
	} else if agent = o.agent; agent == "" {
		var err error
		if agent, err = t.pickAgent(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		t.o.agent = agent
	}
	defer cmdline.NoticeSleep()()
	link, err := dialLastingLink(ctx, o.target, o.retry, linkNews{t.linked, t.ends.fail}, t.receive)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer link.closeWithin(goodbye)
	t.mu.Lock()
	t.link = link
	t.mu.Unlock()
	opened, err := link.initializeAs(ctx, o.acp, agent, object{"requestQuestion": true, "installProgress": true, "turns": true})
	if err != nil {
		return err
	}
	prompt, err := o.prompt(promptTakes(opened))
	if err != nil {
		return err
	}
	if err := t.unlessStopped(func() { t.making = o.session == "" }); err != nil {
		return err
	}
	t.opening.Store(true)
	if opened, err = t.openSession(ctx); err != nil {
		return err
	}
	if agent, ok := rawjson.Member(opened, "_meta", acp.MetaKey, "agentCapabilities"); ok { // of a hub, which says it with the session
		if prompt, err = o.prompt(capable(agent)); err != nil {
			t.forgetFresh()
			return err
		}
	}
	if err := t.unlessStopped(func() { t.running = true }); err != nil {
		return err
	}
	reason, err := t.prompted(ctx, object{"sessionId": t.session, "prompt": prompt})
	t.view.end()
	if why := t.takenBack(reason, err); why != nil {
		return &leftError{"the prompt was taken back before its turn began", why}
	}
	if err != nil {
		return err
	}
	return t.outcome(reason)
}

// unlessStopped begins a step, unless the command was told to end before.
func (t *turn) unlessStopped(begin func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped == nil {
		begin()
	}
	return t.stopped
}

// takenBack is why this command has taken its prompt back; nil when its turn has begun.
func (t *turn) takenBack(reason string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	failure, ok := errors.AsType[*acp.Error](err)
	if ok && failure.Code == acp.CodeCancelled || t.o.acp == acpversion.Two && !t.begun && schema.StopReason(reason) == schema.StopReasonCancelled {
		return t.stopped
	}
	return nil
}

// linked says how the connection is.
func (t *turn) linked(l lasting.Link) {
	t.mu.Lock()
	session, running := t.session, t.running
	t.away = l.Lost != nil
	if on, ok := l.Turns[session]; ok && !on {
		t.foreign = false // nobody tells of another client's turn whose gateway was killed
	}
	t.mu.Unlock()
	t.view.note(linkLine(l, session, running))
}

// prompted sends the prompt, waits for the end of its turn, and returns the stop reason.
func (t *turn) prompted(ctx context.Context, params object) (string, error) {
	id := t.link.number()
	sent := func() {
		t.mu.Lock()
		t.request = id
		t.mu.Unlock()
		close(t.sent)
	}
	if t.o.acp == acpversion.Two {
		return t.link.promptTwo(ctx, t.ends, t.session, id, params, sent)
	}
	wait, err := t.link.send(ctx, id, acp.MethodSessionPrompt, params)
	sent()
	if err != nil {
		return "", err
	}
	res, err := wait(ctx)
	return rawjson.MemberString(res, "stopReason"), err
}

const (
	cancelPatience = 3 * time.Second        // for a turn that was cancelled to end by itself
	goodbye        = 500 * time.Millisecond // for the connection to be closed in good order
	endPatience    = 8 * time.Second        // for a session to end after a signal; a stubborn agent takes five
)

// after is time.After, and never for 0.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// repeats reports whether a signal says what one has said before: a terminal hangs up once, and is heard of by its signal and
// by what is read of it. Another Ctrl-C is another one.
func (t *turn) repeats(s os.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := s == syscall.SIGHUP && t.hungUp
	t.hungUp = t.hungUp || s == syscall.SIGHUP
	return again
}

// watch cancels the turn at the first signal, when its time is over, or when it costs too
// much. After the
// patience, at a second signal, or when there is no turn yet, it gives up.
func (t *turn) watch(signals <-chan os.Signal, timeUp <-chan time.Time, done <-chan struct{}, kill func(why error)) {
	var why error
	select {
	case <-done:
		return
	case s := <-signals:
		t.repeats(s)
		why = errInterrupted
	case <-timeUp:
		why = errTimeUp
	case why = <-t.dear:
	}
	patience := time.After(cancelPatience)
	t.mu.Lock()
	t.stopped = why
	link, session, making, running := t.link, t.session, t.making, t.running
	t.mu.Unlock()
	if !running {
		if making {
			t.awaitMade(signals, patience, done)
		}
		kill(why)
		return
	}
	note := why.Error() + ", cancelling"
	switch why {
	case errInterrupted:
		note = "cancelling, Ctrl-C again to leave at once"
	case errTimeUp:
		note = "the time is over, cancelling"
	}
	// Neither an output that nobody reads nor a gateway that takes nothing holds this up.
	t.work.Go(func() { t.view.note(note) })
	cancelled := make(chan error, 2)
	var behind atomic.Bool // the prompt waited behind another client's turn
	cancel := func() {
		select {
		case <-t.sent: // a cancel that comes before its prompt cancels nothing
		case <-t.ctx.Done():
			return
		}
		t.mu.Lock()
		waits, request := t.foreign, t.request
		t.mu.Unlock()
		behind.Store(waits)
		if waits { // session/cancel would end that turn
			cancelled <- link.notify(t.ctx, acp.MethodCancelRequest, object{"requestId": json.RawMessage(request)})
			return
		}
		cancelled <- link.notify(t.ctx, acp.MethodSessionCancel, object{"sessionId": session})
	}
	t.work.Go(cancel)
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			if t.repeats(s) {
				continue
			}
			t.mu.Lock()
			t.atOnce = true
			t.mu.Unlock()
			kill(errInterrupted)
			return
		case err := <-cancelled:
			if err != nil {
				kill(why)
				return
			}
		case <-patience:
			t.mu.Lock()
			foreign, away := t.foreign, t.away
			t.mu.Unlock()
			switch {
			case away:
				kill(&leftError{"there is no connection to the gateway, and the turn may go on", why})
			case behind.Load() && !foreign: // it began while it was taken back
				patience = time.After(cancelPatience)
				t.work.Go(cancel)
				continue
			default:
				kill(&leftError{"the turn was cancelled, but the agent goes on", why})
			}
			return
		}
	}
}

// refuses reports whether an error is the gateway's answer, by which nothing was made. Where none came, because the connection is lost
// for good, the error is made here.
func refuses(err error) bool {
	e, is := errors.AsType[*acp.Error](err)
	return is && rawjson.MemberString(e.Data, "done") != problem.Unknown && problem.From(e).Kind != problem.Unavailable
}

// awaitMade waits until it is known which session was made, with whose id the command ends by itself, or until that is not
// waited for any longer.
func (t *turn) awaitMade(signals <-chan os.Signal, patience <-chan time.Time, done <-chan struct{}) {
	t.work.Go(func() { t.view.note("waiting for the id of the session, Ctrl-C again to leave at once") })
	for {
		select {
		case <-done:
		case s := <-signals:
			if t.repeats(s) {
				continue
			}
			t.mu.Lock()
			t.atOnce = true
			t.mu.Unlock()
		case <-patience:
		}
		return
	}
}

// openSession opens or resumes the session with what the flags ask for.
func (t *turn) openSession(ctx context.Context) (res json.RawMessage, err error) {
	id := t.o.session
	if id == "" {
		own := maps.Clone(t.o.opened.own)
		if own == nil {
			own = object{}
		}
		for name, v := range map[string]string{"agent": t.o.agent, "model": t.o.model, "mode": t.o.mode} {
			if v != "" {
				own[name] = v
			}
		}
		if t.o.agent == claude && t.o.maxCost > 0 { // it tells of its cost when the turn is over
			own["agentSpecific"] = object{claude: object{"maxBudgetUsd": t.o.maxCost}}
		}
		res, err = t.link.call(ctx, acp.MethodSessionNew, object{"cwd": t.o.cwd, "mcpServers": t.o.mcpServers(), "_meta": t.link.meta(own)})
		id = rawjson.MemberString(res, "sessionId")
		if err == nil && id == "" {
			err = errors.New("the gateway's answer to session/new has no session id")
		}
	} else {
		res, err = t.link.resume(ctx, id, t.o.cwd, nil)
	}
	t.mu.Lock()
	if err == nil {
		t.session = id
	}
	t.making = t.making && err != nil && !refuses(err)
	stopped := t.stopped
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	t.view.opened(res)
	t.view.note("session " + id)
	if stopped != nil { // what is chosen next is for a prompt that is not sent
		return nil, stopped
	}
	c := choosing{t.link, t.o.acp, id, t.o.session == "", res}
	err = errors.Join(c.choose(ctx, "mode", t.o.mode), c.choose(ctx, "model", t.o.model))
	_, wrong := errors.AsType[*cmdline.Usage](err)
	if _, refused := errors.AsType[*acp.Error](err); refused || wrong {
		t.forgetFresh()
		return nil, err
	}
	unsupported, _ := rawjson.Member(res, "_meta", acp.MetaKey, "unsupported")
	for _, u := range rawjson.Elements(unsupported) {
		t.view.note(fmt.Sprintf("%s has no effect: %s", rawjson.MemberString(u, "field"), rawjson.MemberString(u, "reason")))
	}
	return res, err
}

// forgetFresh has a session deleted that was made for this prompt only, which is not sent.
func (t *turn) forgetFresh() {
	if t.o.session == "" {
		t.o.ending = ending{delete: true}
	}
}

// choosing is a session for which flags choose.
type choosing struct {
	link   *link
	acp    int // version of the protocol
	id     string
	fresh  bool            // it is a new one
	opened json.RawMessage // what the gateway said when it was opened
}

// choose sets the session's mode or model when the session, as it was opened,
// does not have it already. A new session of an agent that offers no such choice
// was told with session/new; the gateway has reported if that had no effect.
func (o choosing) choose(ctx context.Context, what, value string) error {
	if value == "" {
		return nil
	}
	method, param := acp.MethodSessionSetMode, "modeId"
	if what == "model" {
		method, param = acp.MethodSessionSetModel, "modelId"
	}
	opened, params := o.opened, object{"sessionId": o.id, param: value}
	current := rawjson.MemberString(opened, what+"s", "current"+strings.ToUpper(what[:1])+what[1:]+"Id")
	offered := current != ""
	options, _ := rawjson.Member(opened, "configOptions")
	name := "id"
	if o.acp == acpversion.Two { // all that can be chosen is an option there
		name, method, params = "configId", acp.MethodSessionSetConfigOption, object{"sessionId": o.id, "configId": what, "type": "id", "value": value}
	}
	var values []string
	offers, _ := rawjson.Member(opened, what+"s", "available"+strings.ToUpper(what[:1])+what[1:]+"s")
	for _, one := range rawjson.Elements(offers) {
		values = append(values, cmp.Or(rawjson.MemberString(one, what+"Id"), rawjson.MemberString(one, "id")))
	}
	for _, opt := range rawjson.Elements(options) {
		if id := rawjson.MemberString(opt, name); id == what || rawjson.MemberString(opt, "category") == what {
			method, params = acp.MethodSessionSetConfigOption, object{"sessionId": o.id, "configId": id, "type": "id", "value": value}
			if o.acp != acpversion.Two {
				delete(params, "type")
			}
			current, offered = rawjson.MemberString(opt, "currentValue"), true
			values = nil
			for _, c := range choicesOf(opt) {
				values = append(values, c.ID)
			}
			break
		}
	}
	if current == value || o.fresh && !offered {
		return nil
	}
	_, err := o.link.call(ctx, method, params)
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[*acp.Error](err); refused && len(values) > 0 && !slices.Contains(values, value) {
		return unknownValue(what, value, values)
	}
	return fmt.Errorf("set %s: %w", what, err)
}

// choicesOf are the values of a configuration option, also of one that has them in groups.
func choicesOf(option json.RawMessage) []runtime.Choice {
	var all []runtime.Choice
	list, _ := rawjson.Member(option, "options")
	for _, one := range rawjson.Elements(list) {
		if _, group := rawjson.Member(one, "options"); group {
			all = append(all, choicesOf(one)...)
			continue
		}
		all = append(all, runtime.Choice{ID: rawjson.MemberString(one, "value"), Name: rawjson.MemberString(one, "name")})
	}
	return all
}

// mostNamed bounds the values that an error names: some agents have hundreds of models.
const mostNamed = 20

// unknownValue is the error of a value that an option does not have.
func unknownValue(what, value string, values []string) error {
	text := fmt.Sprintf("--%s %s: the agent does not have it", what, value)
	if like := cmdline.Nearest(value, values); like != "" {
		text += ": did you mean " + like + "?"
	} else {
		text += "."
	}
	if len(values) <= mostNamed {
		text += " There are " + strings.Join(values, ", ")
	} else {
		text += fmt.Sprintf(" There are %s and %d more, which sandbox-agent completion %ss AGENT lists", strings.Join(values[:mostNamed], ", "), len(values)-mostNamed, what)
	}
	return &cmdline.Usage{Text: text, Command: "sandbox-agent prompt"}
}

// outcome turns the end of a turn into the command's error.
func (t *turn) outcome(stopReason string) error {
	t.mu.Lock()
	stopped, declined, rejected, spent := t.stopped, t.declined, t.rejected, t.spent
	t.mu.Unlock()
	if t.o.maxCost > 0 && spent == nil {
		t.view.note("the agent has told no cost: --max-cost could not hold it")
	}
	if err := t.o.tooDear(spent); err != nil && stopped == nil { // it was told with the turn's end
		stopped = err
	}
	switch {
	case stopped == errTimeUp:
		return fmt.Errorf("the turn was cancelled: %w", stopped)
	case stopped != nil:
		return stopped
	case schema.StopReason(stopReason) != schema.StopReasonEndTurn && schema.StopReason(stopReason) != schema.StopReasonCancelled:
	case declined == "question":
		return fmt.Errorf("a question of the agent was %w, because there was nobody to ask: run the command in a terminal", errRefused)
	case declined != "":
		return fmt.Errorf("a request of the agent was %w, because there was nobody to ask: run the command in a terminal, or say the answers with --permission", errRefused)
	case rejected && schema.StopReason(stopReason) == schema.StopReasonCancelled:
		return fmt.Errorf("a request of the agent was %w, and it ended the turn", errRefused)
	}
	return stopError(stopReason)
}

// stopError is the error that a turn's stop reason stands for; nil when the
// agent has done what it wanted to.
func stopError(reason string) error {
	switch schema.StopReason(reason) {
	case schema.StopReasonEndTurn:
		return nil
	case schema.StopReasonCancelled:
		return fmt.Errorf("%w, and not from here", errCancelled)
	case schema.StopReasonRefusal:
		return fmt.Errorf("the agent %w the prompt", errRefused)
	}
	return fmt.Errorf("%w: %s", errEndedEarly, reason)
}

// receive handles what arrives, in order.
func (t *turn) receive(link *link, m acp.Message) {
	t.mu.Lock()
	session := t.session
	t.mu.Unlock()
	if t.o.json && t.opening.Load() {
		fmt.Fprintf(t.std.out, "%s\n", m.Frame())
	}
	if t.news.receive(m) {
		return
	}
	u, own, foreign := m.Update(), m.Session() == session, t.follow(&m)
	if u != nil {
		t.kinds.update(m.Session(), u)
	}
	if u != nil && own {
		t.pay(u)
	}
	t.ends.note(m)
	switch {
	case m.Method() == "_sandboxagent/session/storage":
		t.view.note(storageLine(m.Params()))
	case m.Method() == methodEventsDamaged && own:
		t.view.note(damagedLine(m.Params()))
	case m.IsRequest() && !t.attached && t.o.session != "":
		t.early = append(t.early, m.Clone())
	case m.IsRequest():
		t.asked(link, m.Clone(), foreign)
	case m.IsResponse() && t.opening.Load():
		t.attached = true
		for _, a := range t.early {
			t.asked(link, a, foreign)
		}
		t.early = nil
	case m.Method() == acp.MethodCancelRequest:
		if id, ok := rawjson.Member(m.Params(), "requestId"); ok {
			t.mu.Lock()
			cancel := t.open[acp.ID(id)]
			t.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		}
	case u == nil || session == "" || foreign || t.o.json:
	case t.o.acp == acpversion.Two && own:
		t.view.updateTwo(u, "")
	case t.o.acp == acpversion.Two:
		t.view.updateTwo(u, m.Session())
	case own:
		t.view.update(u)
	}
}

// storageLine says whether the gateway can keep what happens in a session. While it cannot,
// the agent's messages wait, and so does who waits for them.
func storageLine(params json.RawMessage) string {
	if rawjson.MemberBool(params, "writable") {
		return "the session's log can be written again"
	}
	return "the session's log cannot be written, and the turn waits until it can: " + rawjson.MemberString(params, "reason")
}

const methodEventsDamaged = "_sandboxagent/session/events_damaged"

// damagedLine says which events of a session cannot be shown.
func damagedLine(params json.RawMessage) string {
	first, _ := rawjson.Member(params, "firstSeq")
	last, _ := rawjson.Member(params, "lastSeq")
	return fmt.Sprintf("the session's events %s to %s are lost, and not shown", first, last)
}

// asked has a request answered. One of another client's turn is left to it.
func (t *turn) asked(link *link, m acp.Message, foreign bool) {
	if foreign {
		t.view.note("not asked here, but in another client's turn: " + requestTitle(m.Params()))
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	t.mu.Lock()
	t.open[m.ID()] = cancel
	t.mu.Unlock()
	t.work.Go(func() {
		defer cancel()
		t.answer(ctx, link, m)
	})
}

// follow notes whose turn goes on, and reports whether it is another client's. The session
// tells in which order turns begin and end; a new session has none but this one.
func (t *turn) follow(m *acp.Message) (foreign bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	two := t.o.acp == acpversion.Two
	switch kind := string(m.UpdateKind()); {
	case m.IsResponse():
		_, begun := rawjson.Member(m.Result(), "messageId")
		t.begun = t.begun || two && begun
		t.foreign = !t.begun && (t.foreign || rawjson.MemberString(m.Result(), "_meta", acp.MetaKey, "turn") == "running" && !t.turnAt.newer(m.Result()))
	case t.begun || m.Session() != t.o.session:
	case m.Method() == "_sandboxagent/session/turn_ended":
		if !acp.TurnBegan(m.Params()) {
			break
		}
		t.foreign = false
		t.turnAt.note(m)
	case two && kind == "state_update":
		t.foreign = rawjson.MemberString(m.Update(), "state") != "idle"
	case two && kind == "user_message", kind == "user_message_chunk" && rawjson.MemberBool(m.Update(), "_meta", acp.MetaKey, "prompt"):
		t.foreign = true
	}
	return t.foreign
}

// cost is what an agent tells of it.
type cost struct {
	Amount   float64
	Currency string
}

// pay notes what the session has cost, and ends the turn when that is too much.
func (t *turn) pay(update json.RawMessage) {
	raw, ok := rawjson.Member(update, "cost")
	if !ok || rawjson.MemberString(update, "sessionUpdate") != "usage_update" {
		return
	}
	var c *cost
	if json.Unmarshal(raw, &c) != nil || c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent = c
	if err := t.o.tooDear(c); err != nil && t.running {
		select {
		case t.dear <- err:
		default: // it is known
		}
	}
}

// tooDear is the error of a session that has cost more than it may.
func (o *promptOptions) tooDear(c *cost) error {
	if o.maxCost == 0 || c == nil || c.Amount <= o.maxCost {
		return nil
	}
	return dearError(fmt.Sprintf("the session has cost %.4g %s, more than --max-cost %.4g", c.Amount, c.Currency, o.maxCost))
}

// claude is an agent that can hold its cost by itself, and must: nobody else knows it in time.
const claude = "claude"

type dearError string

func (e dearError) Error() string { return string(e) }
func (e dearError) Unwrap() error { return errEndedEarly }
