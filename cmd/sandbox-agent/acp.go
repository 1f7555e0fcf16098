package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/acpstdio"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/telemetry"
	"sandboxagent.dev/sandbox-agent/internal/claim"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

func acpCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "acp",
		Usage: "give an agent to an editor: speak ACP on standard streams",
		Description: `Editors start this as an agent. The agent runs on this machine, without a server,
and ends with the editor; sessions are kept and can be loaded again.

With --endpoint, or SANDBOX_AGENT_ENDPOINT in its environment, the editor uses an
agent of that gateway; the log names it. A connection that breaks
is replaced without the editor noticing: sessions and turns go on meanwhile, and
nothing is lost. Files and terminals that the editor offers are passed through.

The log goes to the standard error, or to --log-file.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "agent", Usage: "the agent, for clients that name none", EnvVars: []string{"SANDBOX_AGENT_DEFAULT_AGENT"}},
			&cli.StringFlag{Name: "endpoint", Usage: "use the agents of this gateway; the flags that say how agents run are its own then", EnvVars: []string{"SANDBOX_AGENT_ENDPOINT"}},
			nodeFlag(),
			&cli.StringFlag{Name: "token", Usage: "that gateway's token; other users of the machine can see it here, so prefer the variable or --token-file", EnvVars: []string{"SANDBOX_AGENT_TOKEN"}},
			&cli.StringFlag{Name: "token-file", Usage: "read the token from this file", EnvVars: []string{"SANDBOX_AGENT_TOKEN_FILE"}},
			&cli.DurationFlag{Name: "give-up", Usage: "end when that gateway could not be reached for this time", Value: 10 * time.Minute},
		}, gatewayFlags()...),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			cfg, err := gatewayConfigOf(c)
			if err != nil {
				return err
			}
			cfg.defaultAgent = c.String("agent")
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, leaving...)
			defer signal.Stop(signals)
			// An editor that is gone shows as an error of a write, not as a signal
			// that would leave agents behind.
			cmdline.OutlivePipes()
			if c.String("endpoint") == "" {
				return unknownAgent(c, serveEditor(c.Context, cfg, signals, std))
			}
			t, err := targetOf(c)
			if err != nil {
				return err
			}
			return carryEditor(c.Context, cfg, t, c.Duration("give-up"), signals, std)
		},
	}
}

// editorDirs bounds how many editors of one user have a gateway's data each.
const editorDirs = 256

// claimEditorDir claims the first directory that no other editor's gateway uses.
// Installed agents are shared; sessions are not, but agents themselves know
// those of all.
func claimEditorDir(dataDir string) (dir string, unlock func(), err error) {
	for n := 1; n <= editorDirs; n++ {
		dir = filepath.Join(dataDir, "editors", strconv.Itoa(n))
		unlock, err = claim.Dir(dir)
		if !errors.Is(err, claim.ErrHeld) {
			return dir, unlock, err
		}
	}
	return "", nil, err
}

// serveEditor runs a gateway for the standard streams until they, ctx or a
// signal end it.
func serveEditor(ctx context.Context, cfg serverConfig, signals <-chan os.Signal, std stdio) error {
	log, closeLog, err := openLog(cfg, std.err)
	if err != nil {
		return err
	}
	defer closeLog()
	owned := ""
	if !cfg.ephemeral {
		dir, unlock, err := claimEditorDir(cfg.dataDir)
		if err != nil {
			return err
		}
		defer unlock()
		cfg.dataDir, owned = dir, dir
	}
	release, err := all.Supervise(owned)
	if err != nil {
		return err
	}
	defer release()
	defer cmdline.NoticeSleep()()
	defer cmdline.GiveBack()()
	cfg.noProcesses = true // there is no way to ask for one
	gw, err := openGateway(cfg, nil, new(telemetry.Telemetry), log)
	if err != nil {
		return err
	}
	log.Info("speaking ACP on standard streams", "agent", cfg.defaultAgent, "data", cfg.dataDir)
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case s := <-signals:
			log.Info("shutting down", "signal", s.String())
			cancel()
		case <-stopped:
			return
		}
		exit := cmdline.ExitOnSignal(signals)
		<-stopped
		exit()
	}()
	err = acpstdio.Serve(ctx, gw.runtime, std.in, std.out, acpstdio.Options{MaxLine: int(cfg.maxBody), Logger: log})
	if errors.Is(err, context.Canceled) {
		err = nil // asked to
	}
	return errors.Join(err, closeEditor(gw, log))
}

// carryEditor connects the standard streams with a gateway until they, ctx, a
// signal, or the gateway end it.
func carryEditor(ctx context.Context, cfg serverConfig, t target, giveUp time.Duration, signals <-chan os.Signal, std stdio) error {
	log, closeLog, err := openLog(cfg, std.err)
	if err != nil {
		return err
	}
	defer closeLog()
	defer cmdline.NoticeSleep()()
	conn := lasting.New(lasting.Options{
		Dial: func(ctx context.Context) (acp.Conn, error) {
			return cmdline.AtOnce(ctx, t.endpoint, func(ctx context.Context) (acp.Conn, error) {
				return acphttp.Dial(ctx, t.endpoint, acphttp.DialOptions{Token: t.token, Agent: cfg.defaultAgent})
			})
		},
		GiveUp: giveUp, Logger: log,
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-stopped:
		}
	}()
	log.Info("using the agents of a gateway", "endpoint", secret.Address(t.endpoint), "agent", cfg.defaultAgent)
	err = acpstdio.Relay(ctx, &logInstalling{Conn: conn, log: log}, std.in, std.out, acpstdio.Options{MaxLine: int(cfg.maxBody)})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// closeEditor ends what serveEditor began.
func closeEditor(gw *gateway, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownBound)
	defer cancel()
	var errs []error
	if err := gw.runtime.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("end sessions: %w", err))
	}
	gw.catalog.Close()
	if err := gw.rpc.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("end connections: %w", err))
	}
	if gw.processes != nil {
		gw.processes.Close(ctx)
	}
	if gw.tools != nil {
		gw.tools.Close(ctx)
	}
	if err := gw.files.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close the root of files: %w", err))
	}
	log.Debug("ended")
	return errors.Join(errs...)
}
