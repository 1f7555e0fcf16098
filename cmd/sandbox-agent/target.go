package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

const (
	defaultPort     = "2468"
	defaultEndpoint = "http://127.0.0.1:" + defaultPort
	standardTimeout = 30 * time.Second // of a single HTTP request

	// Of one for which an agent may have to start, to let go of a session. The gateway gives that up
	// before, and its answer says why.
	agentTimeout = time.Minute
)

// targetFlags are the flags of commands that talk to a gateway.
func targetFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "endpoint", Usage: "address of the gateway; that of daemon start when it runs", Value: defaultEndpoint, EnvVars: []string{"SANDBOX_AGENT_ENDPOINT"}},
		nodeFlag(),
		&cli.StringFlag{Name: "token", Usage: "the gateway's token; other users of the machine can see it here, so prefer the variable or --token-file", EnvVars: []string{"SANDBOX_AGENT_TOKEN"}},
		&cli.StringFlag{Name: "token-file", Usage: "read the token from this file", EnvVars: []string{"SANDBOX_AGENT_TOKEN_FILE"}},
		&cli.BoolFlag{Name: "json", Usage: "write JSON"},
	)
}

func nodeFlag() cli.Flag {
	return &cli.StringFlag{Name: "node", Usage: "the gateway that has this name at the hub whose address --endpoint is", EnvVars: []string{"SANDBOX_AGENT_NODE"}}
}

func timeoutFlag(standard time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "give up after this time, 0 is never", Value: standard}
}

// target is the gateway that a command talks to.
type target struct {
	endpoint, token string

	hub, node string // with --node: the hub's own address, and the node, whose address endpoint is
}

// targetOf returns the gateway that the flags and variables name; else the one
// that runs in the background on this machine, else the usual address.
func targetOf(c *cli.Context) (target, error) { return targetWith(c, true) }

// targetWith is targetOf; without authority it is for what needs no token, and that of the background's is not read.
func targetWith(c *cli.Context, authority bool) (target, error) {
	token, _, err := cmdline.Token(c, "SANDBOX_AGENT")
	if err != nil {
		return target{}, err
	}
	t := target{endpoint: c.String("endpoint"), token: token}
	node := c.String("node")
	switch {
	case atGateway(c):
		if err := cmdline.Endpoint(c, "endpoint", t.endpoint); err != nil || node == "" {
			return t, err
		}
		t.hub, t.node = t.endpoint, node
		t.endpoint, err = atNode(c, t.hub, node)
		return t, err
	case node != "":
		return target{}, cmdline.Usagef(c, "--node %s: name the hub that it has joined with --endpoint", node)
	}
	t.endpoint = defaultEndpoint
	return t, t.ofDaemon(authority)
}

// ofSessions is where sessions are, also those that go from the node of --node to another one: at the hub's own
// address the node is named in what opens them.
func (t target) ofSessions() target {
	if t.hub != "" {
		t.endpoint = t.hub
	}
	return t
}

// atNode returns the address of a node at its hub.
func atNode(c *cli.Context, hub, node string) (string, error) {
	u, err := url.Parse(hub)
	if err != nil {
		return "", err
	}
	if strings.Contains(u.Path, "/nodes/") {
		return "", cmdline.Usagef(c, "--endpoint %s names a node already: leave --node out, or /nodes/ and what is behind it", secret.Address(hub))
	}
	return acphttp.Address(u, "nodes", node).String(), nil
}

// ofDaemon takes the address of the gateway that daemon start left running, and with
// authority the token of the file that it was given, unless there is another token.
func (t *target) ofDaemon(authority bool) error {
	dir := os.Getenv("SANDBOX_AGENT_DATA_DIR")
	if dir == "" {
		var err error
		if dir, err = cmdline.DataDir("sandbox-agent"); err != nil {
			return nil // without a home there is no daemon to be found
		}
	}
	s, err := (&daemon{dataDir: dir}).running()
	if err != nil || s == nil || s.URL == "" {
		return nil // it is looked for, not needed; one that is just starting has no address yet
	}
	t.endpoint = s.URL
	if file := flagValue(s.Args, "token-file"); file != "" && t.token == "" && authority {
		if t.token, err = cmdline.TokenIn(file); err != nil {
			return fmt.Errorf("the token of the daemon: %w", err)
		}
	}
	return nil
}

// flagValue returns the last value of a flag among the arguments of a command.
func flagValue(args []string, name string) (value string) {
	for i, a := range args {
		key, v, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case key != name || !strings.HasPrefix(a, "-"):
		case joined:
			value = v
		case i+1 < len(args):
			value = args[i+1]
		}
	}
	return value
}

// client returns a client of the gateway's HTTP API.
func (t target) client() (*client.Client, error) {
	return client.New(t.endpoint, client.Options{Token: t.token, HTTP: cmdline.HTTPClient()})
}

// controlClient returns a client of the gateway's HTTP API and a context that
// ends with --timeout.
func controlClient(c *cli.Context) (context.Context, context.CancelFunc, *client.Client, error) {
	return controlClientWith(c, true)
}

// controlClientWith is controlClient of [targetWith].
func controlClientWith(c *cli.Context, authority bool) (context.Context, context.CancelFunc, *client.Client, error) {
	t, err := targetWith(c, authority)
	if err != nil {
		return nil, nil, nil, err
	}
	api, err := t.client()
	if err != nil {
		return nil, nil, nil, cmdline.Usagef(c, "%s", err)
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
