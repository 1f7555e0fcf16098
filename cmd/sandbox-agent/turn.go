package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
)

// turn is one run of the prompt command.
type turn struct {
	o     promptOptions
	std   stdio
	view  *view
	asker *asker
	link  *link
	ctx   context.Context // ends with the turn; for answers to the agent

	work sync.WaitGroup // questions being asked

	mu       sync.Mutex
	session  string // "" until there is one
	running  bool   // the prompt was sent
	stopped  bool   // Ctrl-C cancelled the turn
	rejected bool   // a permission was rejected without asking a person
	open     map[acp.ID]context.CancelFunc
}

// runTurn connects, opens or resumes the session, and runs the prompt.
func runTurn(ctx context.Context, o promptOptions, signals <-chan os.Signal, std stdio) error {
	ctx, kill := context.WithCancelCause(ctx)
	t := &turn{o: o, std: std, view: newView(std, o.colours), ctx: ctx, open: map[acp.ID]context.CancelFunc{}}
	t.asker = newAsker(std.in, t.view)

	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { t.watch(signals, done, kill) })
	defer watcher.Wait()
	defer close(done)
	defer t.work.Wait()
	defer kill(nil)

	var agent string
	if o.session != "" {
		cwd, of, err := sessionCwd(ctx, o.target, o.session)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		t.o.cwd, agent = cwd, of
	} else {
		agent = o.agent
	}
	link, err := dialLink(ctx, o.target, t.receive)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer link.close()
	t.mu.Lock()
	t.link = link
	t.mu.Unlock()
	if _, err := link.initialize(ctx, agent, object{"requestQuestion": true}); err != nil {
		return err
	}
	if err := t.openSession(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	t.running = true
	t.mu.Unlock()
	res, err := link.call(ctx, "session/prompt", object{
		"sessionId": t.session, "prompt": []any{object{"type": "text", "text": o.text}},
	})
	t.view.end()
	if err != nil {
		return err
	}
	return t.outcome(acp.MemberString(res, "stopReason"))
}

// watch cancels the turn at the first signal and gives up at the second, or
// when there is no turn yet.
func (t *turn) watch(signals <-chan os.Signal, done <-chan struct{}, kill context.CancelCauseFunc) {
	for {
		select {
		case <-done:
			return
		case <-signals:
		}
		t.mu.Lock()
		first := t.running && !t.stopped
		t.stopped = true
		link, session := t.link, t.session
		t.mu.Unlock()
		if !first {
			kill(errInterrupted)
			return
		}
		t.view.note("cancelling, Ctrl-C again to leave at once")
		if link.notify(t.ctx, "session/cancel", object{"sessionId": session}) != nil {
			kill(errInterrupted)
			return
		}
	}
}

// openSession opens or resumes the session with what the flags ask for.
func (t *turn) openSession(ctx context.Context) error {
	var res json.RawMessage
	var err error
	id := t.o.session
	if id == "" {
		own := object{}
		for name, v := range map[string]string{"agent": t.o.agent, "model": t.o.model, "mode": t.o.mode} {
			if v != "" {
				own[name] = v
			}
		}
		res, err = t.link.call(ctx, "session/new", object{"cwd": t.o.cwd, "mcpServers": []any{}, "_meta": meta(own)})
		id = acp.MemberString(res, "sessionId")
		if err == nil && id == "" {
			err = errors.New("the gateway's answer to session/new has no session id")
		}
	} else {
		res, err = t.link.resume(ctx, id, t.o.cwd, nil)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.session = id
	t.mu.Unlock()
	if !t.o.json {
		t.view.note("session " + id)
	}
	unsupported, _ := acp.Member(res, "_meta", acp.MetaKey, "unsupported")
	for _, u := range acp.Elements(unsupported) {
		t.view.note(fmt.Sprintf("%s has no effect: %s", acp.MemberString(u, "field"), acp.MemberString(u, "reason")))
	}
	if err := t.choose(ctx, res, "mode", t.o.mode, "session/set_mode", "modeId"); err != nil {
		return err
	}
	return t.choose(ctx, res, "model", t.o.model, "session/set_model", "modelId")
}

// choose sets the session's mode or model when the session, as it was opened,
// does not have it already. A new session of an agent that offers no such choice
// was told with session/new; the gateway has reported if that had no effect.
func (t *turn) choose(ctx context.Context, opened json.RawMessage, what, value, method, param string) error {
	if value == "" {
		return nil
	}
	params := object{"sessionId": t.session, param: value}
	current := acp.MemberString(opened, what+"s", "current"+strings.ToUpper(what[:1])+what[1:]+"Id")
	offered := current != ""
	options, _ := acp.Member(opened, "configOptions")
	for _, opt := range acp.Elements(options) {
		if id := acp.MemberString(opt, "id"); id == what || acp.MemberString(opt, "category") == what {
			method, params = "session/set_config_option", object{"sessionId": t.session, "configId": id, "value": value}
			current, offered = acp.MemberString(opt, "currentValue"), true
			break
		}
	}
	if current == value || t.o.session == "" && !offered {
		return nil
	}
	if _, err := t.link.call(ctx, method, params); err != nil {
		return fmt.Errorf("set %s: %w", what, err)
	}
	return nil
}

// outcome turns the end of a turn into the command's error.
func (t *turn) outcome(stopReason string) error {
	t.mu.Lock()
	stopped, rejected := t.stopped, t.rejected
	t.mu.Unlock()
	switch {
	case stopped || stopReason == "cancelled":
		return errInterrupted
	case stopReason == "refusal":
		return fmt.Errorf("the agent %w the prompt", errRefused)
	case rejected:
		return fmt.Errorf("a request of the agent was %w without asking: run the command in a terminal, or with --permission allow", errRefused)
	case stopReason != "end_turn":
		t.view.note("the turn ended early: " + stopReason)
	}
	return nil
}

// receive handles what arrives, in order.
func (t *turn) receive(m acp.Message) {
	t.mu.Lock()
	session, link := t.session, t.link
	t.mu.Unlock()
	if t.o.json && session != "" {
		fmt.Fprintf(t.std.out, "%s\n", m.Frame())
	}
	switch {
	case m.IsRequest():
		m := m.Clone()
		ctx, cancel := context.WithCancel(t.ctx)
		t.mu.Lock()
		t.open[m.ID()] = cancel
		t.mu.Unlock()
		t.work.Go(func() {
			defer cancel()
			t.answer(ctx, link, m)
		})
	case m.Method() == acp.MethodCancelRequest:
		if id, ok := acp.Member(m.Params(), "requestId"); ok {
			t.mu.Lock()
			cancel := t.open[acp.ID(id)]
			t.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		}
	case m.IsNotification() && m.Session() == session && !t.o.json:
		if u := m.Update(); u != nil {
			t.view.update(u)
		}
	}
}
