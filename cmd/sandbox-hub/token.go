package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

func tokenCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "token",
		Usage:       "make, list and revoke tokens",
		Subcommands: []*cli.Command{tokenCreateCommand(std), tokenListCommand(std), tokenRevokeCommand(std)},
	}
}

func tokenCreateCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "create",
		Usage: "make a token and print it alone",
		Description: `A token of the kind join is for gateways: one may join with it as any node, or as
the one of --node, and gets the labels of --label. A token of the kind client is for
people and programs: --scope read sees nodes and what their sessions say, drive does
all that a gateway can, admin also rules the hub. With --node or --label it is for
those nodes only, and others do not exist for it.

The token is shown this once; the hub keeps a hash of it.`,
		Flags: targetFlags(
			&cli.StringFlag{Name: "kind", Usage: "join or client, must be given"},
			&cli.StringFlag{Name: "scope", Usage: "of a client: read, drive or admin (default: read)"},
			&cli.StringSliceFlag{Name: "label", Usage: "only nodes with this label, as `NAME=VALUE`; may be repeated"},
			&cli.StringFlag{Name: "node", Usage: "only the node of this name"},
			&cli.DurationFlag{Name: "expires", Usage: "worth nothing after this time, such as 720h, 0 is never"},
			&cli.StringFlag{Name: "note", Usage: "what it is for; shown in the list"},
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			if c.String("kind") == "" {
				return cmdline.Usagef(c, "--kind is missing: join or client")
			}
			labels, err := tunnel.ParseLabels(c.StringSlice("label"))
			if err != nil {
				return cmdline.Usagef(c, "--label: %s", err)
			}
			n := fleet.NewToken{Kind: store.Kind(c.String("kind")), Scope: store.Scope(c.String("scope")), Labels: labels, Node: c.String("node"), Note: c.String("note")}
			if d := c.Duration("expires"); d > 0 {
				seconds := max(1, int64(d/time.Second))
				n.ExpiresIn = &seconds
			}
			ctx, cancel, hub, err := hubOf(c)
			if err != nil {
				return err
			}
			defer cancel()
			ctx, stop := cmdline.UntilSignal(ctx, cmdline.Ending(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer stop()
			notes := std.err
			if c.Bool("json") {
				notes = io.Discard
			}
			t, err := cmdline.Made(ctx, notes, "the hub has not answered: the token may be made, and would be in sandbox-hub token list", func(ctx context.Context) (fleet.CreatedToken, error) {
				t, err := hub.CreateToken(ctx, n)
				if n.ExpiresIn != nil && err != nil && strings.Contains(err.Error(), "expiresIn") { // a hub of an earlier version
					at := time.Now().Add(c.Duration("expires"))
					n.ExpiresIn, n.Expires = nil, &at
					t, err = hub.CreateToken(ctx, n)
				}
				return t, err
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, t)
				return nil
			}
			fmt.Fprintln(std.out, t.Text)
			return nil
		},
	}
}

func tokenListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list tokens, without the tokens themselves",
		Flags: targetFlags(),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			ctx, cancel, hub, err := hubOf(c)
			if err != nil {
				return err
			}
			defer cancel()
			tokens, err := hub.Tokens(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, tokens)
				return nil
			}
			rows := [][]string{{"ID", "KIND", "SCOPE", "NODES", "CREATED", "EXPIRES", "NOTE"}}
			for _, t := range tokens {
				expires := "never"
				if t.Expires != nil {
					expires = cmdline.Clock(*t.Expires)
				}
				rows = append(rows, []string{t.ID, string(t.Kind), string(t.Scope), nodesOf(t), cmdline.Clock(t.Created), expires, t.Note})
			}
			cmdline.Table(std.out, rows)
			return nil
		},
	}
}

// nodesOf says which nodes a token is for.
func nodesOf(t store.Token) string {
	if t.Everywhere() {
		return "all"
	}
	words := tunnel.FormatLabels(t.Labels)
	if t.Node != "" {
		words = append([]string{t.Node}, words...)
	}
	return strings.Join(words, ",")
}

func tokenRevokeCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "revoke",
		Usage:       "make tokens worth nothing",
		ArgsUsage:   "ID...",
		Description: "What is open with them ends: streams of clients, and the tunnels of nodes.",
		Flags:       targetFlags(),
		Action:      onEach(std, "ID", "revoked", (*client.Client).RevokeToken),
	}
}
