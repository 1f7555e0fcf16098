package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/join"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// joinFlags are those of a gateway that joins a hub.
func joinFlags() []cli.Flag {
	env := func(name string) []string { return []string{"SANDBOX_AGENT_" + name} }
	return []cli.Flag{
		&cli.StringFlag{Name: "join", Usage: "join the hub at this address as a node: clients of the hub can use this gateway", EnvVars: env("JOIN")},
		&cli.StringFlag{Name: "join-token-file", TakesFile: true, Usage: "read the token for the hub from this file", EnvVars: env("JOIN_TOKEN_FILE")},
		&cli.BoolFlag{Name: "join-insecure", Usage: "join over http a hub that is not on this machine", EnvVars: env("JOIN_INSECURE")},
		&cli.StringFlag{Name: "node-name", Usage: "name of the node (default: the machine's host name)", EnvVars: env("NODE_NAME")},
		&cli.StringSliceFlag{Name: "label", Usage: "label of the node, as `NAME=VALUE`; may be repeated", EnvVars: env("LABEL")},
		&cli.StringFlag{Name: "durability", Usage: "when clients are shown what happens in sessions that ask for nothing else: async is when it is in the gateway's file, sync when the hub has stored it, too", Value: string(session.Async), EnvVars: env("DURABILITY")},
	}
}

// joinConfig says which hub to join, and as whom. Without a hub it joins none.
type joinConfig struct {
	hub             *url.URL
	tokenFile, name string
	labels          map[string]string
	durability      session.Durability
}

func joinConfigOf(c *cli.Context) (joinConfig, error) {
	cfg := joinConfig{tokenFile: c.String("join-token-file"), name: c.String("node-name"), durability: session.Durability(c.String("durability"))}
	if !slices.Contains(session.Durabilities, cfg.durability) {
		return cfg, cmdline.Usagef(c, "--durability must be async or sync, not %q", cfg.durability)
	}
	address := c.String("join")
	if address == "" {
		for _, name := range []string{"join-token-file", "join-insecure", "node-name", "label", "durability"} {
			if c.IsSet(name) && !(name == "durability" && cfg.durability == session.Async) {
				return cfg, cmdline.Usagef(c, "--%s says how to join a hub: give its address with --join", name)
			}
		}
		return cfg, nil
	}
	var err error
	if cfg.hub, err = join.ParseHub(address, c.Bool("join-insecure")); err != nil {
		return cfg, cmdline.Usagef(c, "--join: %s", err)
	}
	if cfg.tokenFile == "" {
		return cfg, cmdline.Usagef(c, "--join needs a token: give the file that has it with --join-token-file; it is made by sandbox-hub token create --kind join")
	}
	if cfg.name == "" {
		if cfg.name, err = os.Hostname(); err != nil || tunnel.CheckName(cfg.name) != nil {
			return cfg, cmdline.Usagef(c, "--join: the machine's host name is no name of a node: give one with --node-name")
		}
	}
	if err := tunnel.CheckName(cfg.name); err != nil {
		return cfg, cmdline.Usagef(c, "--node-name: %s", err)
	}
	if cfg.labels, err = tunnel.ParseLabels(cmdline.Words(c.StringSlice("label"))); err != nil {
		return cfg, cmdline.Usagef(c, "--label: %s", err)
	}
	return cfg, nil
}

// joining is a gateway's way to its hub. Nil is that of one that joins none.
type joining struct {
	joiner *join.Joiner
	ctx    context.Context // done when the gateway leaves
	leave  context.CancelFunc
	own    sync.WaitGroup
}

func openJoining(cfg joinConfig, log *slog.Logger) (*joining, error) {
	if cfg.hub == nil {
		return nil, nil
	}
	joiner, err := join.New(join.Options{Hub: cfg.hub, TokenFile: cfg.tokenFile, Name: cfg.name, Labels: cfg.labels, Version: version, Logger: log})
	if err != nil {
		return nil, err
	}
	j := &joining{joiner: joiner}
	j.ctx, j.leave = context.WithCancel(context.Background())
	return j, nil
}

// trouble says why the hub stores nothing, nil when it does or has been away for less than the bound.
func (j *joining) trouble(bound time.Duration) error {
	if j == nil {
		return nil
	}
	return j.joiner.Trouble(bound)
}

// serve has srv serve what comes from the hub, which has checked who sends it.
func (j *joining) serve(srv *http.Server, agents []string, log *slog.Logger) {
	if j == nil {
		return
	}
	j.joiner.SetAgents(agents)
	others := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if join.Tunnelled(c) {
			return control.Vouch(ctx)
		}
		return others(ctx, c)
	}
	j.own.Go(func() { j.joiner.Run(j.ctx) })
	j.own.Go(func() {
		if err := srv.Serve(j.joiner.Listener()); !errors.Is(err, http.ErrServerClosed) {
			log.Error("what comes from the hub is not served any more", "err", err)
		}
	})
}

// close leaves the hub, when all that came from it was answered.
func (j *joining) close() {
	if j == nil {
		return
	}
	j.leave()
	j.own.Wait()
}

// announcement says what a gateway joins, "" for nothing.
func (c *joinConfig) announcement() string {
	if c.hub == nil {
		return ""
	}
	return "Joins the hub " + strings.TrimSuffix(c.hub.String(), "/") + " as " + c.name
}
