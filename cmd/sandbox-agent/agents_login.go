package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func agentsLoginCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "login",
		Usage:     "log in to an agent's provider, on the gateway's machine",
		ArgsUsage: "AGENT",
		Description: `An agent with a login of its own, such as Claude Code, shows it here, in a terminal at the gateway.
Others say what to open in a browser, and the command waits until that is done. Agents keep their
logins in their own files in the gateway's home directory; nothing of it is stored by the gateway.

An agent that is not installed is installed first. Ctrl-C ends the login.`,
		Flags: targetFlags(&cli.StringFlag{Name: "method", Usage: "way to log in, if the agent has several"}),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "AGENT")
			if err != nil {
				return err
			}
			t, err := targetOf(c)
			if err != nil {
				return err
			}
			l := &login{target: t, agent: args[0], std: std, news: &installing{std: std}, ended: make(chan acp.Message, 1)}
			return l.run(c)
		},
	}
}

// loginMethod is a way to log in that an agent offers.
type loginMethod struct {
	ID, Name, Description string
	Meta                  map[string]struct{ Command []string } `json:"_meta"`
}

// command is the agent's own login, for a terminal; empty if the agent logs in by itself.
func (m *loginMethod) command() []string { return m.Meta[acp.MetaKey].Command }

// login is one run of the command.
type login struct {
	target target
	agent  string
	std    stdio
	news   *installing
	ended  chan acp.Message // gets how a login ended that goes on in a browser
}

func (l *login) run(c *cli.Context) error {
	ctx, stop := signal.NotifyContext(c.Context, leaving...)
	defer stop()
	defer context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })() // a second Ctrl-C ends the program at once
	link, err := dialLink(ctx, l.target, l.receive)
	if err != nil {
		return l.interrupted(ctx, err)
	}
	defer link.closeWithin(goodbye)
	defer l.news.end()
	opened, err := link.initialize(ctx, l.agent, object{"installProgress": true})
	if err != nil {
		return l.interrupted(ctx, err)
	}
	var offered struct {
		Methods []loginMethod `json:"authMethods"`
	}
	if err := json.Unmarshal(opened, &offered); err != nil {
		return fmt.Errorf("read the agent's ways to log in: %w", err)
	}
	m, err := l.choose(c, offered.Methods)
	if err != nil {
		return err
	}
	if words := m.command(); len(words) > 0 {
		c.Context = ctx
		return l.interrupted(ctx, l.atTerminal(c, words))
	}
	return l.interrupted(ctx, l.inBrowser(ctx, link, m.ID))
}

// interrupted is the error of a command whose user may have ended it.
func (l *login) interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		if unanswered, ok := errors.AsType[*cmdline.UnansweredError](err); ok {
			return &leftError{unanswered.What, errInterrupted}
		}
		if _, refused := errors.AsType[*cmdline.RefusedError](err); refused {
			return err
		}
		return errInterrupted
	}
	return err
}

// receive takes every message of the link, in order.
func (l *login) receive(_ *link, m acp.Message) {
	if l.news.receive(m) || m.Method() != acp.MethodAuthStatusUpdate {
		return
	}
	if _, ok := rawjson.Member(m.Params(), "_meta", acp.MetaKey, "login"); ok {
		select {
		case l.ended <- m.Clone():
		default: // one login is waited for
		}
	}
}

// choose returns the way that the user has named, else the only one, else the only one
// with a command.
func (l *login) choose(c *cli.Context, all []loginMethod) (*loginMethod, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("agent %s offers no login: it needs none, or takes a key from the gateway's environment", l.agent)
	}
	var byCommand []*loginMethod
	var text strings.Builder
	for i := range all {
		m := &all[i]
		if m.ID == c.String("method") {
			return m, nil
		}
		if len(m.command()) > 0 {
			byCommand = append(byCommand, m)
		}
		fmt.Fprintf(&text, "\n  --method %s: %s. %s", m.ID, m.Name, m.Description)
	}
	switch {
	case c.IsSet("method"):
		return nil, cmdline.Usagef(c, "agent %s has no login %q, but:%s", l.agent, c.String("method"), text.String())
	case len(all) == 1:
		return &all[0], nil
	case len(byCommand) == 1:
		return byCommand[0], nil
	}
	return nil, cmdline.Usagef(c, "agent %s has several ways to log in, name one:%s", l.agent, text.String())
}

// atTerminal runs the agent's own login at the gateway and shows it here.
func (l *login) atTerminal(c *cli.Context, words []string) error {
	api, err := l.target.client()
	if err != nil {
		return cmdline.Usagef(c, "%s", err)
	}
	starting, started := context.WithTimeout(c.Context, standardTimeout)
	defer started()
	p, err := cmdline.Made(starting, notesOf(c, l.std), "the gateway has not answered: the login may begin there, and would be in sandbox-agent process list",
		func(ctx context.Context) (process.Info, error) {
			return api.Start(ctx, client.ProcessStart{Command: words[0], Args: words[1:], Env: map[string]string{"TERM": "xterm-256color"}, TTY: true})
		})
	if err != nil {
		return fmt.Errorf("start the login of %s: %w", l.agent, err)
	}
	err = attachTo(c, l.std, p.ID, 0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), standardTimeout)
	defer cancel()
	if gone := api.DeleteProcess(ctx, p.ID); gone != nil && err == nil {
		err = fmt.Errorf("end the login: %w", gone)
	}
	return err
}

// inBrowser has the agent log in by itself, and waits for what a person does meanwhile.
func (l *login) inBrowser(ctx context.Context, link *link, method string) error {
	res, err := link.call(ctx, acp.MethodAuthenticate, object{"methodId": method})
	if err != nil {
		return err
	}
	var told struct {
		Meta map[string]struct{ Login map[string]any } `json:"_meta"`
	}
	if err := json.Unmarshal(res, &told); err != nil {
		return fmt.Errorf("read what the agent says of its login: %w", err)
	}
	address, code := "", ""
	for name, value := range told.Meta[acp.MetaKey].Login {
		text, _ := value.(string)
		if strings.HasPrefix(text, "https://") || strings.HasPrefix(text, "http://") {
			address = text
		} else if strings.HasSuffix(strings.ToLower(name), "code") {
			code = text
		}
	}
	if address != "" {
		note(l.std, "open "+cmdline.Printable(address))
		if code != "" {
			note(l.std, "and enter the code "+cmdline.Printable(code))
		}
		select {
		case m := <-l.ended:
			if why := rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, "login", "error"); why != "" {
				return errors.New("the login failed: " + why)
			}
		case <-link.ended:
			return link.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Fprintf(l.std.out, "%s is logged in\n", l.agent)
	return nil
}
