package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func teleportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "teleport",
		Usage:     "move a session with its files to another gateway",
		ArgsUsage: "[SESSION]",
		Description: "Without SESSION it is the one that was used last. It goes on at the other gateway with all that\n" +
			"its agent remembers, and is closed here; its metadata say where it went. With --agent SESSION\n" +
			"may be a conversation of the agent's own program, by the id that the program gives it. A move\n" +
			"that was interrupted is finished by the same command. The files are put together with those of\n" +
			"the directory there, and only those are sent that it lacks; when both sides have changed the\n" +
			"same, nothing is touched. The other gateway must be yours: MCP servers and modes come along,\n" +
			"and texts that look like keys. Credentials, and the values of variables and headers, do not.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "from", Usage: "address of the gateway that has the session; that of --endpoint, if it is not given"},
			&cli.StringFlag{Name: "to", Usage: "address of the gateway that it goes to"},
			&cli.StringFlag{Name: "to-token", Usage: "the other gateway's token; other users of the machine can see it here, so prefer the variable or --to-token-file", EnvVars: []string{"SANDBOX_AGENT_TO_TOKEN"}},
			&cli.StringFlag{Name: "to-token-file", Usage: "read the other gateway's token from this file", EnvVars: []string{"SANDBOX_AGENT_TO_TOKEN_FILE"}},
			&cli.StringFlag{Name: "cwd", Usage: "directory at the other gateway for the files (default: where they were before, or the same path as here)"},
			&cli.StringFlag{Name: "agent", Usage: "SESSION may be one that this agent has and the gateway does not, such as one of a terminal"},
			&cli.StringFlag{Name: "agent-cwd", Usage: "with --agent: the directory in which that one was held; this one, if it is not given"},
			&cli.BoolFlag{Name: "no-workspace", Usage: "leave the files: --cwd is a directory that has them"},
			&cli.BoolFlag{Name: "copy", Usage: "leave the session open here, too"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 {
				return cmdline.Usagef(c, "name one session, or none for the one that was used last")
			}
			m := &move{workspace: !c.Bool("no-workspace"), cwd: c.String("cwd"), copy: c.Bool("copy"), agent: c.String("agent")}
			if m.cwd != "" && !filepath.IsAbs(m.cwd) {
				return cmdline.Usagef(c, "--cwd must be an absolute path: it is one of the other machine")
			}
			if m.agent != "" && c.Args().Len() == 0 {
				return cmdline.Usagef(c, "--agent says whose SESSION is: name it by the id that the agent's own program gives it")
			}
			var err error
			if m.agentCwd, err = filepath.Abs(c.String("agent-cwd")); err != nil {
				return err
			}
			if m.source, m.from, err = sourceOf(c); err != nil {
				return err
			}
			if m.to, m.target, m.address, err = destinationOf(c); err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
			defer cancel()
			m.shown = newTransfer(c, std)
			defer m.shown.end()
			got, err := m.run(ctx, c.Args().First())
			m.shown.end()
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, got)
				return nil
			}
			did := "moved"
			if m.copy {
				did = "copied"
			}
			fmt.Fprintf(std.out, "%s %s to %s, %s: sandbox-agent prompt --endpoint %s --session %s\n", did, got.Session.ID, m.address, got.Session.Cwd, m.address, got.Session.ID)
			if len(got.LeftOut) > 0 {
				fmt.Fprintf(std.err, "not taken over: %s\n", cmdline.Printable(strings.Join(got.LeftOut, ", ")))
			}
			return nil
		},
	}
}

// sourceOf returns the gateway that has the session.
func sourceOf(c *cli.Context) (target, *client.Client, error) {
	if from := c.String("from"); from != "" {
		err := cmdline.Endpoint(c, "from", from)
		if err == nil {
			err = c.Set("endpoint", from)
		}
		if err != nil {
			return target{}, nil, err
		}
	}
	t, err := targetOf(c)
	if err != nil {
		return t, nil, err
	}
	api, err := t.client()
	if err != nil {
		return t, nil, err
	}
	return t, api, nil
}

// destinationOf returns the gateway that the session goes to, and its address without a
// password.
func destinationOf(c *cli.Context) (*client.Client, target, string, error) {
	t := target{endpoint: c.String("to"), token: c.String("to-token")}
	if t.endpoint == "" {
		return nil, t, "", cmdline.Usagef(c, "name the gateway that the session goes to with --to")
	}
	if err := cmdline.Endpoint(c, "to", t.endpoint); err != nil {
		return nil, t, "", err
	}
	if file := c.String("to-token-file"); file != "" && t.token == "" {
		var err error
		if t.token, err = cmdline.TokenIn(file); err != nil {
			return nil, t, "", cmdline.Usagef(c, "--to-token-file: %s", err)
		}
	}
	if err := cmdline.CheckToken(t.token); err != nil {
		return nil, t, "", cmdline.Usagef(c, "--to-token: the token %s", err)
	}
	api, err := t.client()
	if err != nil {
		return nil, t, "", err
	}
	u, err := url.Parse(t.endpoint)
	if err != nil {
		return nil, t, "", err
	}
	u.User = nil
	return api, t, u.String(), nil
}
