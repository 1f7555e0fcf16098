package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func rpcCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "rpc",
		Usage: "send single protocol messages",
		Subcommands: []*cli.Command{
			rpcCallCommand(std),
			rpcNotifyCommand(std),
			rpcStreamCommand(std),
		},
	}
}

func rpcFlags(more ...cli.Flag) []cli.Flag {
	return targetFlags(append([]cli.Flag{
		&cli.StringFlag{Name: "agent", Usage: "agent to connect to, if not that of the session, or the gateway's default"},
		&cli.StringFlag{Name: "session", Usage: "resume this session first, and send its id as params.sessionId"},
		versionFlag(),
	}, more...)...)
}

// readParams returns the params that an argument means: JSON, @ and the name of
// a file with it, or - for the standard input. "" is an empty object.
func readParams(c *cli.Context, std stdio, arg string) (json.RawMessage, error) {
	b := []byte(arg)
	var err error
	switch {
	case arg == "":
		return json.RawMessage("{}"), nil
	case arg == "-":
		b, err = io.ReadAll(std.in)
	case strings.HasPrefix(arg, "@"):
		if wrong := refusedFile(arg[1:]); wrong != "" {
			return nil, cmdline.Usagef(c, "%s: %s", arg, wrong)
		}
		b, err = os.ReadFile(arg[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("read params: %w", err)
	}
	b = bytes.TrimSpace(b)
	frame := append(append([]byte(`{"jsonrpc":"2.0","method":"x","params":`), b...), '}')
	m, err := acp.Parse(frame)
	if err != nil || !json.Valid(b) {
		return nil, cmdline.Usagef(c, "the params are not a JSON object or array")
	}
	return m.Params(), nil
}

// rpcArgs returns the method and its params.
func rpcArgs(c *cli.Context, std stdio) (method string, params json.RawMessage, err error) {
	switch c.NArg() {
	case 0:
		return "", nil, cmdline.Usagef(c, "METHOD is missing")
	case 1, 2:
	default:
		return "", nil, cmdline.Usagef(c, "unexpected argument %q", c.Args().Get(2))
	}
	if c.Args().First() == "" {
		return "", nil, cmdline.Usagef(c, "METHOD is empty")
	}
	params, err = readParams(c, std, c.Args().Get(1))
	return c.Args().First(), params, err
}

// openRPC connects to the agent of the session that --session or params name, if not to
// another that is named, initializes, and resumes the session of --session, whose id is
// then put into params.
func openRPC(ctx context.Context, c *cli.Context, params json.RawMessage, receive func(*link, acp.Message)) (*link, json.RawMessage, error) {
	t, err := targetOf(c)
	if err != nil {
		return nil, nil, err
	}
	speaks, err := versionOf(c)
	if err != nil {
		return nil, nil, err
	}
	agent, session := c.String("agent"), c.String("session")
	if session != "" && params[0] != '{' {
		return nil, nil, cmdline.Usagef(c, "--session needs params that are an object")
	}
	var cwd string
	if about := cmp.Or(session, rawjson.MemberString(params, "sessionId")); about != "" {
		if cwd, agent, err = sessionCwd(ctx, t, about, agent); err != nil {
			return nil, nil, err
		}
	}
	l, err := dialLink(ctx, t, receive)
	if err != nil {
		return nil, nil, err
	}
	if _, err := l.initializeAs(ctx, speaks, agent, object{"requestQuestion": true}); err != nil {
		l.close()
		return nil, nil, err
	}
	if session != "" {
		if _, err := l.resume(ctx, session, cwd, nil); err != nil {
			l.close()
			return nil, nil, err
		}
		params = rawjson.SetMember(params, rawjson.AppendQuoted(nil, session), "sessionId")
	}
	return l, params, nil
}

// interruptible returns a context that Ctrl-C and SIGTERM end. The second one ends the program at once.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, leaving...)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
