package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/control/client"
)

const (
	defaultEndpoint = "http://127.0.0.1:2468"
	standardTimeout = 30 * time.Second // of a single HTTP request
)

// targetFlags are the flags of commands that talk to a gateway.
func targetFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "endpoint", Usage: "address of the gateway", Value: defaultEndpoint, EnvVars: []string{"SANDBOX_AGENT_ENDPOINT"}},
		&cli.StringFlag{Name: "token", Usage: "the gateway's token; other users of the machine can see it here, so prefer the variable or --token-file", EnvVars: []string{"SANDBOX_AGENT_TOKEN"}},
		&cli.StringFlag{Name: "token-file", Usage: "read the token from this file", EnvVars: []string{"SANDBOX_AGENT_TOKEN_FILE"}},
		&cli.BoolFlag{Name: "json", Usage: "write JSON"},
	)
}

func timeoutFlag(standard time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "give up after this time, 0 is never", Value: standard}
}

// target is the gateway that a command talks to.
type target struct{ endpoint, token string }

func targetOf(c *cli.Context) (target, error) {
	token, err := readToken(c)
	if err != nil {
		return target{}, err
	}
	return target{c.String("endpoint"), token}, nil
}

// readToken returns the token of --token, --token-file or their variables, ""
// when there is none.
func readToken(c *cli.Context) (string, error) {
	token, file := c.String("token"), c.String("token-file")
	if file != "" && token == "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		token = strings.TrimSpace(string(b))
		if token == "" {
			return "", usagef(c, "the token file %s is empty", file)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' ' }) {
		return "", usagef(c, "the token has characters that a header cannot carry: use printable ASCII without blanks")
	}
	return token, nil
}

// controlClient returns a client of the gateway's HTTP API and a context that
// ends with --timeout.
func controlClient(c *cli.Context) (context.Context, context.CancelFunc, *client.Client, error) {
	t, err := targetOf(c)
	if err != nil {
		return nil, nil, nil, err
	}
	api, err := client.New(t.endpoint, client.Options{Token: t.token})
	if err != nil {
		return nil, nil, nil, usagef(c, "%s", err)
	}
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	return ctx, cancel, api, nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
