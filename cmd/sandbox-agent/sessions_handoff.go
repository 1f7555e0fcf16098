package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsHandoffCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "handoff",
		Usage:     "begin a session of another agent that goes on with this one's conversation",
		ArgsUsage: "SESSION",
		Description: "The new session is in the same directory. With its first prompt its agent is given a summary\n" +
			"of the conversation, which no model has made: the files that were changed, what was decided,\n" +
			"the open plan, and the last turns in full. What looks like a key is taken out of it. The\n" +
			"old session stays as it is. At a hub the new one is at the same node, which must be there.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "agent", Usage: "the `AGENT` that goes on"},
			&cli.StringFlag{Name: "title", Usage: "title of the new session; that of the old one, if it is not given"},
			&cli.StringSliceFlag{Name: "redact", Usage: "take out what this regular expression matches, too; may be repeated"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			if c.String("agent") == "" {
				return cmdline.Usagef(c, "name the agent that goes on with --agent")
			}
			o := client.TranscriptOptions{Format: transcript.Handover, Redact: c.StringSlice("redact")}
			if _, err := transcript.Patterns(o.Redact); err != nil {
				return cmdline.Usagef(c, "--redact: %v", err)
			}
			t, err := targetOf(c)
			if err != nil {
				return err
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error { return handoff(ctx, c, std, t, api, args[0], o) })
		},
	}
}

// sessionUnanswered is what may be there when a gateway was told to begin a session.
const sessionUnanswered = "the gateway has not answered: the session may be there, and would be in sandbox-agent sessions list"

// handoff begins the session of another agent.
func handoff(ctx context.Context, c *cli.Context, std stdio, t target, api *client.Client, id string, o client.TranscriptOptions) error {
	old, err := client.SessionAs[struct {
		runtime.SessionInfo
		Node string // which has the directory; "" of a gateway
	}](ctx, api, id)
	if err != nil {
		return err
	}
	body, err := api.Transcript(ctx, old.ID, o)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("read the conversation: %w", err)
	}
	own := object{"agent": c.String("agent"), "handover": string(text)}
	if title := cmp.Or(c.String("title"), old.Title); title != "" {
		own["title"] = title
	}
	l, err := dialLink(ctx, t, func(*link, acp.Message) {})
	if err != nil {
		return err
	}
	defer l.close()
	l.node = old.Node
	if _, err := l.initialize(ctx, c.String("agent"), object{}); err != nil {
		return err
	}
	res, err := cmdline.Made(ctx, notesOf(c, std), sessionUnanswered, func(ctx context.Context) (json.RawMessage, error) {
		return l.call(ctx, acp.MethodSessionNew, object{"cwd": old.Cwd, "mcpServers": []any{}, "_meta": l.meta(own)})
	})
	if err != nil {
		return err
	}
	id = rawjson.MemberString(res, "sessionId")
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, object{"sessionId": id, "agent": c.String("agent"), "from": old.ID})
		return nil
	}
	fmt.Fprintf(std.out, "%s goes on in %s: sandbox-agent prompt --session %s\n", c.String("agent"), id, id)
	return nil
}
