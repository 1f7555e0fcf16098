package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/transcript"
)

func sessionsShowCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one session, or what was said and done in it",
		ArgsUsage: "SESSION",
		Description: "With --format it is a transcript, to read and to share: markdown, html (a page that\n" +
			"needs nothing but itself), jsonl, or handover, which is for another agent. What looks like a key is taken out of it, and\n" +
			"what --redact names; long output is cut; the end says what is missing.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "format", Usage: "markdown, html, jsonl, or handover, which is for another agent"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the transcript to this `FILE`"},
			&cli.StringSliceFlag{Name: "redact", Usage: "take out what this regular expression matches; may be repeated"},
			&cli.BoolFlag{Name: "thoughts", Usage: "keep what the agent thought"},
			&cli.BoolFlag{Name: "keep-secrets", Usage: "leave in what looks like a key"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			if c.String("format") != "" {
				return sessionTranscript(c, std, args[0])
			}
			for _, name := range []string{"output", "redact", "thoughts", "keep-secrets"} {
				if c.IsSet(name) {
					return cmdline.Usagef(c, "--%s is for transcripts: say --format markdown, html or jsonl", name)
				}
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			s, err := api.Session(ctx, args[0])
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, s)
				return nil
			}
			cmdline.List(std.out,
				"session", s.ID, "title", s.Title, "agent", s.Agent, "agent's id", s.AgentSessionID,
				"directory", s.Cwd, "model", s.Model, "state", string(s.State), "in the background", background(s.Background), "continuity", string(s.Continuity),
				"created", cmdline.Clock(s.CreatedAt), "updated", cmdline.Clock(s.UpdatedAt), "events", strconv.FormatUint(s.EventCount, 10),
				"clients", strconv.Itoa(s.Clients), "open requests", strconv.Itoa(s.Pending), "metadata", string(s.Metadata),
			)
			showServers(std.out, s.MCPServers)
			for _, one := range s.Instructions {
				fmt.Fprintf(std.out, "%s:\n%s\n", one.Field, cmdline.Printable(one.Text))
			}
			for _, path := range s.Skills {
				cmdline.List(std.out, "skills", path)
			}
			if e := s.Ended; e != nil {
				cmdline.List(std.out, "ended", cmdline.Clock(e.At), "reason", e.Reason, "by", e.TerminatedBy, "message", e.Message)
				if e.ExitCode != nil {
					cmdline.List(std.out, "exit code", strconv.Itoa(*e.ExitCode))
				}
				if e.Stderr != nil && e.Stderr.Tail != "" {
					fmt.Fprintf(std.out, "stderr:\n%s\n", cmdline.Printable(e.Stderr.Tail))
				}
			}
			return nil
		},
	}
}

// background says what goes on though the turn is over, "" for nothing.
func background(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 tool call"
	}
	return strconv.Itoa(n) + " tool calls"
}

// showServers writes how the session's MCP servers are.
func showServers(out io.Writer, servers []acp.MCPServer) {
	for _, one := range servers {
		about := string(one.State)
		if one.Source == acp.ServerOfAgent {
			about += ", of the agent's configuration"
		}
		if one.Error != "" {
			about += ": " + one.Error
		}
		var names []string
		for _, t := range one.Tools {
			names = append(names, t.Name)
		}
		if one.MoreTools > 0 {
			names = append(names, fmt.Sprintf("and %d more", one.MoreTools))
		}
		cmdline.List(out, "MCP server", one.Name, "state", about, "tools", strings.Join(names, ", "))
	}
}

// sessionTranscript writes what was said and done in a session.
func sessionTranscript(c *cli.Context, std stdio, id string) error {
	o := client.TranscriptOptions{
		Format: transcript.Format(c.String("format")), Redact: c.StringSlice("redact"), Thoughts: c.Bool("thoughts"), KeepSecrets: c.Bool("keep-secrets"),
	}
	if !slices.Contains(transcript.Formats, o.Format) {
		return cmdline.Usagef(c, "--format must be one of %s, not %q", transcript.FormatNames(), o.Format)
	}
	if _, err := transcript.Patterns(o.Redact); err != nil {
		return cmdline.Usagef(c, "--redact: %v", err)
	}
	return onGateway(c, func(ctx context.Context, api *client.Client) error {
		body, err := api.Transcript(ctx, id, o)
		if err != nil {
			return err
		}
		defer body.Close()
		return saveBody(std, body, c.String("output"), "the transcript")
	})
}

// saveBody writes an answer to a file, or to the standard output.
func saveBody(std stdio, body io.Reader, file, what string) error {
	return cmdline.Save(file, what, std.out, std.err, func(to io.Writer) error {
		_, err := io.Copy(to, body)
		return err
	})
}
