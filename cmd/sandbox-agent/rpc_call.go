package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func rpcCallCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "call",
		Usage:     "send one request and print its result",
		ArgsUsage: "METHOD [PARAMS|@FILE|-]",
		Description: `Connects, initializes and sends the request. What arrives meanwhile is written to
the standard error, one message per line, and the result to the standard output.
With --json the result is one line and nothing else is written; with --raw every
message that arrives is written as it came, the response last.

Requests of the agent are shown, not answered: they stay open for other clients,
and the call waits for them; the standard error says so.
With --permission allow or reject, or KIND=ANSWER for a kind of tool, permission
requests are answered so. --close and --delete end the session that was made or
named when the answer is there. The exit code of session/prompt says how the turn ended.

With --acp 2 the message is one of version 2 of the protocol. There session/prompt is
answered when the turn begins; the command waits for its end all the same.`,
		Flags: rpcFlags(
			&cli.BoolFlag{Name: "raw", Usage: "write every message as it came"},
			permissionFlag("answer permission requests: allow, reject or KIND=ANSWER; may be repeated"),
			closeFlag(), deleteFlag(),
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			method, params, err := rpcArgs(c, std)
			if err != nil {
				return err
			}
			return rpcCall(c, std, method, params)
		},
	}
}

func rpcCall(c *cli.Context, std stdio, method string, params json.RawMessage) error {
	ctx, stop := interruptible(c.Context)
	defer stop()
	ctx, cancel := withTimeout(ctx, c.Duration("timeout"))
	defer cancel()

	raw, quiet := c.Bool("raw"), c.Bool("json")
	rules, err := permissionRulesOf(c, "", allow, reject)
	if err != nil {
		return err
	}
	ending, err := endingOf(c)
	if err != nil {
		return err
	}
	speaks, err := versionOf(c)
	if err != nil {
		return err
	}
	answers := ruledAnswers{rules: rules}
	ends := newTurnEnds() // of version 2
	var ours atomic.Bool  // what arrives before is the answer to our own requests
	session := c.String("session")
	if session == "" {
		session = rawjson.MemberString(params, "sessionId")
	}
	receive := func(l *link, m acp.Message) {
		answered := answers.receive(ctx, l, m)
		ends.note(m)
		switch {
		case raw:
			if ours.Load() || !m.IsResponse() {
				fmt.Fprintf(std.out, "%s\n", m.Frame())
			}
		case !quiet && !m.IsResponse():
			fmt.Fprintln(std.err, summary(m))
		}
		switch {
		case !m.IsRequest() || answered:
		case m.Method() == acp.MethodSessionRequestPermission:
			note(std, "the agent waits until this permission is answered: by another client of the session, or here with --permission allow or reject")
		default:
			note(std, "the agent waits until "+m.Method()+" is answered by another client of the session")
		}
	}
	var l *link
	var res json.RawMessage
	if method == acp.MethodInitialize {
		res, l, err = rpcInitialize(ctx, c, params, func(l *link, m acp.Message) { ours.Store(true); receive(l, m) })
	} else if l, params, err = openRPC(ctx, c, params, receive); err == nil {
		ours.Store(true)
		done := ends.expect(session)
		defer done()
		res, err = l.call(ctx, method, params)
	}
	stopReason := rawjson.MemberString(res, "stopReason")
	if err == nil && speaks == acpversion.Two && method == acp.MethodSessionPrompt {
		stopReason, err = ends.of(ctx, l, session, rawjson.MemberString(res, "messageId"))
	}
	if l != nil {
		l.closeWithin(goodbye)
	}
	id := rawjson.MemberString(res, "sessionId")
	if id == "" {
		id = session
	}
	if ending.close || ending.delete {
		t, terr := targetOf(c)
		if terr != nil {
			return terr
		}
		err = ending.of(context.WithoutCancel(ctx), t, id, c.String("agent"), err)
	}
	if err != nil {
		return err
	}
	var ended error
	if method == acp.MethodSessionPrompt {
		ended = stopError(stopReason)
	}
	if raw {
		return ended
	}
	var out bytes.Buffer
	if quiet {
		err = json.Compact(&out, res)
	} else {
		err = json.Indent(&out, res, "", "  ")
	}
	if err != nil {
		return fmt.Errorf("read result: %w", err)
	}
	fmt.Fprintln(std.out, out.String())
	return ended
}

// rpcInitialize sends the user's own initialize as the connection's first
// message. Its members win over the standard ones.
func rpcInitialize(ctx context.Context, c *cli.Context, params json.RawMessage, receive func(*link, acp.Message)) (json.RawMessage, *link, error) {
	if c.String("session") != "" {
		return nil, nil, cmdline.Usagef(c, "--session has no meaning for initialize")
	}
	var own object
	if err := json.Unmarshal(params, &own); err != nil {
		return nil, nil, cmdline.Usagef(c, "the params of initialize are not a JSON object")
	}
	speaks, err := versionOf(c)
	if err != nil {
		return nil, nil, err
	}
	all := initializeParams(c.String("agent"), object{})
	if speaks == acpversion.Two {
		all = initializeTwo(c.String("agent"), object{})
	}
	maps.Copy(all, own)
	t, err := targetOf(c)
	if err != nil {
		return nil, nil, err
	}
	l, err := dialLink(ctx, t, receive)
	if err != nil {
		return nil, nil, err
	}
	res, err := l.call(ctx, acp.MethodInitialize, all)
	return res, l, err
}
