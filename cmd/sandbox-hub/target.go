package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	gateway "sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/client"
)

const (
	defaultEndpoint = "http://127.0.0.1:2470"
	standardTimeout = 30 * time.Second
)

// targetFlags are the flags of commands that talk to a hub.
func targetFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "endpoint", Usage: "address of the hub", Value: defaultEndpoint, EnvVars: []string{"SANDBOX_HUB_ENDPOINT"}},
		&cli.StringFlag{Name: "token", Usage: "a token of the hub; other users of the machine can see it here, so prefer the variable or --token-file", EnvVars: []string{"SANDBOX_HUB_TOKEN"}},
		&cli.StringFlag{Name: "token-file", TakesFile: true, Usage: "read the token from this file", EnvVars: []string{"SANDBOX_HUB_TOKEN_FILE"}},
		&cli.DurationFlag{Name: "timeout", Usage: "give up after this time", Value: standardTimeout},
		&cli.BoolFlag{Name: "json", Usage: "write JSON"},
	)
}

// hubOf returns a client of the hub that the flags name, and a context that ends
// with --timeout.
func hubOf(c *cli.Context) (context.Context, context.CancelFunc, *client.Client, error) {
	token, _, err := cmdline.Token(c, "SANDBOX_HUB")
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmdline.Endpoint(c, "endpoint", c.String("endpoint")); err != nil {
		return nil, nil, nil, err
	}
	hub, err := client.New(c.String("endpoint"), gateway.Options{Token: token, HTTP: cmdline.HTTPClient()})
	if err != nil {
		return nil, nil, nil, err
	}
	if c.Duration("timeout") <= 0 {
		return nil, nil, nil, cmdline.Usagef(c, "--timeout must be more than 0")
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	return ctx, cancel, hub, nil
}

// onEach is the action of a command that does one thing to each of what its arguments name, and says
// that it is done.
func onEach(std stdio, arg, done string, do func(*client.Client, context.Context, string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		ctx, cancel, hub, err := hubOf(c)
		if err != nil {
			return err
		}
		defer cancel()
		return cmdline.Each(c, arg, std.err, describe, func(name string) error {
			err := do(hub, ctx, name)
			switch {
			case err != nil:
			case c.Bool("json"):
				cmdline.WriteJSON(std.out, map[string]string{done: name})
			default:
				fmt.Fprintln(std.err, done+" "+name)
			}
			return err
		})
	}
}
