package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func chatCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "chat",
		Usage: "talk with an agent in the terminal",
		Description: `A conversation in the terminal, with an agent of the gateway or in a session that is
there, also one that somebody else is using. The session lives on when the chat ends.

Enter sends, Alt-Enter and Ctrl-J begin a new line. What is sent while the agent works
waits for its turn. Escape cancels what the agent does. Permissions and questions are
answered with their numbers when nothing is being written, else with Alt and the number.
Shift-Tab takes the next mode, Ctrl-O offers models, Ctrl-S sessions to go to, Ctrl-G what
is always allowed, to take it back, Ctrl-T shows and hides thoughts and the details of tools,
PgUp and PgDn scroll, Ctrl-C leaves.
For scripts there is prompt.

With --acp 2 the gateway is spoken to in version 2 of the protocol, which also tells what
commands print while they run, what subagents do, and what goes on in the background.`,
		Flags: targetFlags(
			&cli.StringFlag{Name: "agent", Usage: "agent for the new session, if not the gateway's default"},
			&cli.StringFlag{Name: "session", Usage: "go on with this session"},
			&cli.StringFlag{Name: "cwd", Usage: "directory of the new session", Value: "."},
			&cli.StringFlag{Name: "model", Usage: "model of the new session"},
			&cli.StringFlag{Name: "mode", Usage: "mode of the new session"},
			versionFlag(),
			retryFlag(10*time.Minute),
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			if c.Bool("json") {
				return cmdline.Usagef(c, "--json has no meaning for a chat: use prompt --json")
			}
			in, out := file(std.in), file(std.out)
			if in == nil || out == nil || !terminal(in) || !terminal(out) {
				return cmdline.Usagef(c, "a chat needs a terminal: use prompt for scripts")
			}
			t, err := targetOf(c)
			if err != nil {
				return err
			}
			speaks, err := versionOf(c)
			if err != nil {
				return err
			}
			session := c.String("session")
			if session != "" && (c.IsSet("agent") || c.IsSet("cwd") || c.IsSet("model") || c.IsSet("mode")) {
				return cmdline.Usagef(c, "--session goes on with a session: its agent, directory, model and mode cannot be chosen")
			}
			cwd, err := workDir(c.String("cwd"))
			if err != nil {
				return err
			}
			o := chatOptions{target: t, acp: speaks, session: session, agent: c.String("agent"), cwd: cwd, retry: max(c.Duration("retry"), 1), model: c.String("model"), mode: c.String("mode")}
			return runChat(c.Context, o, std, in, out)
		},
	}
}

func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

type chatOptions struct {
	target              target
	acp                 int // version of the protocol
	session, agent, cwd string
	model, mode         string // of a new session
	retry               time.Duration
}

// chatEvents is how many messages may wait for the screen; beyond, the connection
// is not read.
const chatEvents = 4096

// runChat opens the session and shows it until the person leaves.
func runChat(ctx context.Context, o chatOptions, std stdio, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := &installing{std: std}
	defer news.end()
	events := make(chan tea.Msg, chatEvents)
	send := func(m tea.Msg) {
		select {
		case events <- m:
		case <-ctx.Done():
		}
	}
	if o.session == "" && o.agent == "" {
		t := &turn{o: promptOptions{target: o.target, interactive: true}, std: std, view: newView(std, false, false)}
		t.asker = newAsker(in, t.view)
		agent, err := t.pickAgent(ctx)
		if use, ok := errors.AsType[*cmdline.Usage](err); ok {
			use.Command = "sandbox-agent chat"
		}
		if err != nil {
			return err
		}
		o.agent = agent
	}
	if o.session != "" {
		var err error
		if _, o.agent, err = sessionCwd(ctx, o.target, o.session, ""); err != nil {
			return err
		}
	}
	var began atomic.Bool // the screen shows what comes; what comes before are answers to requests of this function
	ends := newTurnEnds() // of version 2
	receive := func(_ *link, m acp.Message) {
		if began.Load() || !news.receive(m) {
			send(m.Clone())
		}
		ends.note(m) // who waits for the end of a turn goes on when the screen has it
	}
	defer cmdline.NoticeSleep()()
	l, err := dialLastingLink(ctx, o.target, o.retry, linkNews{func(l lasting.Link) { send(l) }, ends.fail}, receive)
	if err != nil {
		return err
	}
	defer l.closeWithin(goodbye)
	defer cancel() // first: the reader may wait for the screen
	go func() {
		select {
		case <-l.ended:
			send(chatGone{l.err})
		case <-ctx.Done():
		}
	}()
	c := &chatSession{link: l, ends: ends, target: o.target, fresh: &chatNew{answered: make(chan chatOpened, 1)}, ctx: ctx, tell: send, id: o.session, acp: o.acp}
	if _, err := l.initializeAs(ctx, o.acp, o.agent, object{"requestQuestion": true, "installProgress": true, "turns": true}); err != nil {
		return err
	}
	news.end()
	began.Store(true)
	model := newChatModel(c, o, events)
	env := os.Environ()
	if os.Getenv("NO_COLOR") != "" {
		env = append(env, "NO_COLOR=1") // whatever it is; the library wants a word for true
	}
	screen := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env), tea.WithoutSignalHandler())
	told, stop := signal.NotifyContext(ctx, leaving...)
	defer stop()
	interrupted := context.AfterFunc(told, screen.Quit)
	_, err = screen.Run()
	if text := model.unsent(); text != "" {
		fmt.Fprintf(std.err, "not sent:\n%s\n", text)
	}
	if text := model.doubtful(); text != "" {
		fmt.Fprintf(std.err, "sent, and perhaps lost with the connection:\n%s\n", text)
	}
	if err != nil {
		return fmt.Errorf("show the chat: %w", err)
	}
	if !interrupted() && model.failed == nil {
		model.failed = errInterrupted
	}
	if !model.made {
		model.failed = cmp.Or(c.leavesNew(ctx, model, std), model.failed)
	}
	if !model.over && model.begun {
		fmt.Fprintf(std.err, "the session lives on: %s chat --session %s\n", programName(), c.id)
	}
	return model.failed
}

// chatSession is the session of a chat, as its connection sees it. Its fields are
// changed by the screen's loop only.
type chatSession struct {
	link   *link
	ends   *turnEnds // of version 2
	acp    int       // version of the protocol
	target target
	fresh  *chatNew
	ctx    context.Context // ends with the chat
	tell   func(tea.Msg)   // puts what a request has led to behind the messages that came before
	id     string
	agent  string
	cwd    string
}

// open makes the session, or opens the one that o names, whose conversation comes before the answer, or
// with again the present one, which was closed. sends is given the request's id before it is sent. It changes
// nothing here: it runs beside the screen's loop.
func (c *chatSession) open(o chatOptions, again bool, sends func(acp.ID)) chatOpened {
	request := c.link.number()
	opened := chatOpened{id: o.session, agent: c.agent, cwd: c.cwd}
	if o.session != "" {
		if !again {
			if opened.cwd, opened.agent, opened.err = sessionCwd(c.ctx, c.target, o.session, o.agent); opened.err != nil {
				return opened
			}
		}
		method, params := acp.MethodSessionLoad, object{"sessionId": o.session, "cwd": opened.cwd, "mcpServers": []any{}, "_meta": c.link.meta(nil)}
		switch {
		case again:
			method = acp.MethodSessionResume
		case c.acp == acpversion.Two:
			method, params["replayFrom"] = acp.MethodSessionResume, object{"type": "start"}
		}
		sends(request)
		opened.result, opened.err = c.link.callAs(c.ctx, request, method, params)
		return opened
	}
	own := object{}
	for name, v := range map[string]string{"agent": o.agent, "model": o.model, "mode": o.mode} {
		if v != "" {
			own[name] = v
		}
	}
	if !c.fresh.ask() {
		opened.err = errInterrupted
		return opened
	}
	sends(request)
	res, err := c.link.callAs(c.ctx, request, acp.MethodSessionNew, object{"cwd": o.cwd, "mcpServers": []any{}, "_meta": c.link.meta(own)})
	opened.id, opened.agent, opened.cwd = rawjson.MemberString(res, "sessionId"), rawjson.MemberString(res, "_meta", acp.MetaKey, "agent"), o.cwd
	opened.result, opened.err = res, err
	c.fresh.answered <- opened
	if err == nil {
		err = c.choose(choosing{c.link, c.acp, opened.id, true, res}, o)
	}
	opened.err = err
	return opened
}

// choose gives a new session the mode and model of the flags. One that cannot have them is not left
// behind.
func (c *chatSession) choose(s choosing, o chatOptions) error {
	err := errors.Join(s.choose(c.ctx, "mode", o.mode), s.choose(c.ctx, "model", o.model))
	use, wrong := errors.AsType[*cmdline.Usage](err)
	if !wrong {
		return err
	}
	use.Command = "sandbox-agent chat"
	return ending{delete: true}.of(c.ctx, c.target, s.id, o.agent, err)
}

// chatDone tells how a request ended.
type (
	chatDone struct {
		what   string
		id     string // of the session that it was about
		result json.RawMessage
		err    error
		choice int      // which choice it was,
		of     string   // and of what
		own    *chatOwn // of a prompt: which it was
		text   string   // what was sent, or chosen
	}
)

// request sends a request; its end comes as a chatDone.
func (c *chatSession) request(what, method string, params object) tea.Cmd {
	id := c.id
	params["sessionId"] = id
	return func() tea.Msg {
		res, err := c.link.call(c.ctx, method, params)
		return chatDone{what: what, id: id, result: res, err: err}
	}
}

// prompt sends a prompt; the end of its turn comes as a chatDone, in its place among the messages of
// the gateway. It is waited for within ctx.
func (c *chatSession) prompt(ctx context.Context, own *chatOwn, text string) tea.Cmd {
	id, forget := c.id, own.forget
	params := object{"sessionId": id, "prompt": []any{object{"type": "text", "text": text}}}
	return func() tea.Msg {
		defer forget()
		done := chatDone{what: "prompt", id: id, own: own, text: text}
		request := c.link.number()
		c.tell(chatSent{own, request})
		if c.acp == acpversion.Two {
			var reason string
			reason, done.err = c.link.promptTwo(ctx, c.ends, id, request, params, func() {})
			done.result = rawjson.Object{}.String("stopReason", reason).End()
		} else {
			done.result, done.err = c.link.callAs(ctx, request, acp.MethodSessionPrompt, params)
		}
		c.tell(done)
		return nil
	}
}

func (c *chatSession) cancel() tea.Cmd {
	id := c.id
	return func() tea.Msg {
		return chatDone{what: "cancel", id: id, err: c.link.notify(c.ctx, acp.MethodSessionCancel, object{"sessionId": id})}
	}
}

func (c *chatSession) reply(id acp.ID, result any) tea.Cmd {
	session := c.id
	return func() tea.Msg {
		return chatDone{what: "answer", id: session, err: c.link.reply(c.ctx, id, result)}
	}
}
