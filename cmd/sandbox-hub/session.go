package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	gateway "sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/client"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// windowsPath is how a whole path of a node on Windows begins.
var windowsPath = regexp.MustCompile(`^([A-Za-z]:|\\)[\\/]`)

func sessionCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "session",
		Usage: "list, show, move, export and remove sessions, and write transcripts of them",
		Subcommands: []*cli.Command{
			sessionListCommand(std), sessionShowCommand(std), sessionTranscriptCommand(std), sessionMoveCommand(std), sessionExportCommand(std), sessionRemoveCommand(std),
		},
	}
}

func sessionListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the sessions of the nodes that the token is for",
		Description: `Those of nodes that are away are listed as well: the hub has copies. MISSING is how many
events a node has told of that the hub has not copied. How the list changes is told by
sandbox-agent sessions watch, with the hub's address.`,
		Flags: targetFlags(
			&cli.StringFlag{Name: "node", Usage: "only those of this node"},
			&cli.StringSliceFlag{Name: "label", Usage: "only those of nodes with this label, as `NAME=VALUE`; may be repeated"},
			&cli.StringFlag{Name: "agent", Usage: "only those of this agent"},
			&cli.StringFlag{Name: "cwd", Usage: "only those in this working directory"},
			&cli.StringSliceFlag{Name: "state", Usage: "only those in this state, such as running, offline or gone; may be repeated"},
			&cli.StringFlag{Name: "query", Usage: "only those with these words in the title or in messages"},
			&cli.IntFlag{Name: "limit", Usage: "the most sessions to list, 0 is all", Value: 100},
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			limit := c.Int("limit")
			if limit < 0 {
				return cmdline.Usagef(c, "--limit cannot be negative")
			}
			if cwd := c.String("cwd"); cwd != "" && !path.IsAbs(cwd) && !windowsPath.MatchString(cwd) {
				return cmdline.Usagef(c, "--cwd %s: give the whole path, which is one of the nodes'", cwd)
			}
			ctx, cancel, hub, err := hubOf(c)
			if err != nil {
				return err
			}
			defer cancel()
			sessions, err := allSessions(ctx, hub, limit, client.SessionFilter{
				Node: c.String("node"), Labels: c.StringSlice("label"), Agent: c.String("agent"), Cwd: c.String("cwd"),
				States: c.StringSlice("state"), Query: c.String("query"),
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, sessions)
				return nil
			}
			rows := [][]string{{"SESSION", "NODE", "AGENT", "STATE", "EVENTS", "MISSING", "UPDATED", "TITLE"}}
			for _, s := range sessions {
				rows = append(rows, []string{
					s.ID, s.Node, s.Agent, string(s.State), number(s.EventCount), number(s.Replica.Missing), cmdline.Clock(s.UpdatedAt), titleOf(s),
				})
			}
			cmdline.Table(std.out, rows)
			return nil
		},
	}
}

// allSessions returns the sessions of all pages, at most limit; 0 is no bound.
func allSessions(ctx context.Context, hub *client.Client, limit int, f client.SessionFilter) ([]fleet.Session, error) {
	out := []fleet.Session{}
	for {
		if f.Limit = 0; limit > 0 {
			f.Limit = min(limit-len(out), 1000)
		}
		page, err := hub.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Sessions...)
		if f.Cursor = page.NextCursor; f.Cursor == "" || len(out) == limit && limit > 0 {
			return out, nil
		}
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func titleOf(s fleet.Session) string {
	text := []rune(strings.Join(strings.Fields(s.Title), " "))
	if len(text) == 0 {
		text = []rune(strings.Join(strings.Fields(s.Gist), " "))
	}
	if len(text) > 50 {
		return string(text[:49]) + "…"
	}
	return string(text)
}

// oneFlags are the flags of commands about one session.
func oneFlags(more ...cli.Flag) []cli.Flag {
	return targetFlags(append(more,
		&cli.StringFlag{Name: "node", Usage: "the one of this node, where several have the id"},
		&cli.Uint64Flag{Name: "epoch", Usage: "the one of this epoch, where a node has had several with the id (default: the newest)"},
	)...)
}

// onSession is the action of a command about the session that its argument names.
func onSession(do func(ctx context.Context, c *cli.Context, hub *client.Client, id client.SessionID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		args, err := cmdline.Exactly(c, "SESSION")
		if err != nil {
			return err
		}
		ctx, cancel, hub, err := hubOf(c)
		if err != nil {
			return err
		}
		defer cancel()
		return do(ctx, c, hub, client.SessionID{ID: args[0], Node: c.String("node"), Epoch: c.Uint64("epoch")})
	}
}

func sessionShowCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show what is known of a session, and how much of it the hub has",
		ArgsUsage: "SESSION",
		Flags:     oneFlags(),
		Action: onSession(func(ctx context.Context, c *cli.Context, hub *client.Client, id client.SessionID) error {
			s, err := hub.Session(ctx, id)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, s)
				return nil
			}
			copied := "up to event " + number(s.Replica.LastSeq)
			if s.Replica.Missing == 0 && s.Replica.Trouble == "" && !s.Replica.MayMiss {
				copied = "all " + copied
			}
			if s.Replica.Missing > 0 {
				copied += ", " + number(s.Replica.Missing) + " are missing behind it"
			}
			if s.Replica.MayMiss {
				copied += "; the node was lost at work, so what it did in the last moments may be missing"
			}
			if s.Replica.Trouble != "" {
				copied += ": " + s.Replica.Trouble
			}
			rows := [][]string{
				{"session", s.ID},
				{"node", s.Node},
				{"epoch", number(s.Epoch)},
				{"state", string(s.State)},
				{"agent", s.Agent},
				{"title", titleOf(s)},
				{"directory", s.Cwd},
				{"created", cmdline.Clock(s.CreatedAt)},
				{"updated", cmdline.Clock(s.UpdatedAt)},
				{"events", number(s.EventCount)},
				{"copied", copied},
			}
			rows = append(rows, moveRows(s)...)
			cmdline.Table(std.out, rows)
			return nil
		}),
	}
}

func sessionTranscriptCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "transcript",
		Usage:       "write what the hub has of a session for people to read",
		ArgsUsage:   "SESSION",
		Description: "What looks like a secret is left out. The end says what is missing.",
		Flags: oneFlags(
			&cli.StringFlag{Name: "format", Usage: "markdown, html, jsonl or handover", Value: string(transcript.Markdown)},
			&cli.StringSliceFlag{Name: "redact", Usage: "leave out what this regular expression matches, too; may be repeated"},
			&cli.BoolFlag{Name: "thoughts", Usage: "keep what the agent thought"},
			&cli.BoolFlag{Name: "keep-secrets", Usage: "keep what looks like a secret"},
		),
		Action: onSession(func(ctx context.Context, c *cli.Context, hub *client.Client, id client.SessionID) error {
			return hub.Transcript(ctx, id, gateway.TranscriptOptions{
				Format: transcript.Format(c.String("format")), Redact: c.StringSlice("redact"), Thoughts: c.Bool("thoughts"), KeepSecrets: c.Bool("keep-secrets"),
			}, std.out)
		}),
	}
}

// moveRows say where a session has been.
func moveRows(s fleet.Session) (rows [][]string) {
	if s.Moves == nil {
		return nil
	}
	if s.Moves.To != "" {
		rows = append(rows, []string{"moving", "to " + s.Moves.To})
	}
	if s.Moves.Node != s.Node {
		rows = append(rows, []string{"went", "to " + s.Moves.Node + ", at " + cmdline.Clock(s.Moves.Since)})
	}
	for _, b := range s.Moves.Before {
		text := fmt.Sprintf("at %s until %s, up to event %d", b.Node, cmdline.Clock(b.Until), b.LastSeq)
		if b.Missing > 0 {
			text += fmt.Sprintf("; %d behind it did not go along", b.Missing)
		}
		if b.Extra > 0 {
			text += fmt.Sprintf("; up to %d further ones are kept: sandbox-hub session transcript --node %s", b.Extra, b.Node)
		}
		rows = append(rows, []string{"before", text})
	}
	return rows
}

// moveTimeout is how long a move may take: files can travel with a session.
const moveTimeout = 10 * time.Minute

// withTimeout gives flags another time after which to give up.
func withTimeout(d time.Duration, flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		if f, ok := f.(*cli.DurationFlag); ok && f.Name == "timeout" {
			f.Value = d
		}
	}
	return flags
}

func sessionMoveCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "move",
		Usage:     "have a session go on at another node",
		ArgsUsage: "SESSION",
		Description: `It goes to the node of --to, or to the one with the labels of --to-label that has its agent
and the least work. Clients of the hub that have it open go on there. A session that works
is not moved: wait, or cancel what it does. When a move fails the session stays where it is.`,
		Flags: withTimeout(moveTimeout, oneFlags(
			&cli.StringFlag{Name: "to", Usage: "the node that it goes to"},
			&cli.StringSliceFlag{Name: "to-label", Usage: "a node with this label, as `NAME=VALUE`; may be repeated"},
			&cli.StringFlag{Name: "cwd", Usage: "its directory there (default: the same)"},
			&cli.BoolFlag{Name: "workspace", Usage: "take the files of its directory along; what is there already is put together with them"},
		)),
		Action: onSession(func(ctx context.Context, c *cli.Context, hub *client.Client, id client.SessionID) error {
			labels, err := tunnel.ParseLabels(c.StringSlice("to-label"))
			if err != nil {
				return cmdline.Usagef(c, "--to-label: %v", err)
			}
			got, err := hub.MoveSession(ctx, id, fleet.MoveRequest{Node: c.String("to"), Labels: labels, Cwd: c.String("cwd"), Workspace: c.Bool("workspace")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, got)
				return nil
			}
			if got.From == got.Node { // which had lost it
				fmt.Fprintf(std.out, "brought %s back to %s, %s\n", got.SessionID, got.Node, got.Cwd)
			} else {
				fmt.Fprintf(std.out, "moved %s from %s to %s, %s\n", got.SessionID, got.From, got.Node, got.Cwd)
			}
			if got.Missing > 0 {
				fmt.Fprintf(std.err, "%d events are missing behind event %d: %s was not there to give them\n", got.Missing, got.LastSeq, got.From)
			}
			if got.Remembered > 0 && got.Remembered < got.LastSeq {
				fmt.Fprintf(std.err, "its agent knows the session up to event %d of %d: what came behind was not kept in time\n", got.Remembered, got.LastSeq)
			}
			if len(got.LeftOut) > 0 {
				fmt.Fprintf(std.err, "not taken over: %s\n", cmdline.Printable(strings.Join(got.LeftOut, ", ")))
			}
			return nil
		}),
	}
}

func sessionExportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write what the hub has of a session into one file, for `sandbox-agent sessions import`",
		ArgsUsage: "SESSION",
		Description: `For a session whose node is away or gone: one whose node is there is exported there, with
sandbox-agent sessions export. The file has the session's events as far as they were copied,
and what its agent kept when its last turn ended. Nothing is taken out of them.`,
		Flags: withTimeout(moveTimeout, oneFlags(
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is the standard output"},
		)),
		Action: onSession(func(ctx context.Context, c *cli.Context, hub *client.Client, id client.SessionID) error {
			if c.String("output") == "" {
				return cmdline.Usagef(c, "name the file with -o FILE, or -o - for the standard output")
			}
			// Who leaves meanwhile leaves no part of it behind.
			ctx, stop := cmdline.UntilSignal(ctx, cmdline.Ending(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer stop()
			return cmdline.Save(c.String("output"), "the session", std.out, std.err, func(to io.Writer) error { return hub.ExportSession(ctx, id, to) })
		}),
	}
}

func sessionRemoveCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "remove",
		Usage:       "remove what the hub has of sessions that are offline or gone",
		ArgsUsage:   "SESSION...",
		Description: "A node that comes back and still has the session has it copied again. A session whose node is connected is deleted with sandbox-agent sessions delete.",
		Flags:       oneFlags(),
		Action: func(c *cli.Context) error {
			return onEach(std, "SESSION", "removed", func(hub *client.Client, ctx context.Context, id string) error {
				return hub.RemoveSession(ctx, client.SessionID{ID: id, Node: c.String("node"), Epoch: c.Uint64("epoch")})
			})(c)
		},
	}
}
