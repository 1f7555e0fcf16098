package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func agentsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "agents",
		Usage: "list, show, install, log in to and remove agents",
		Subcommands: []*cli.Command{
			agentsListCommand(std), agentsShowCommand(std), agentsInstallCommand(std), agentsLoginCommand(std), agentsRemoveCommand(std),
		},
	}
}

// placeText says in help texts where a command works.
const placeText = `With --endpoint or SANDBOX_AGENT_ENDPOINT it works at that gateway, whose own mirrors and sources
count. Without, it works on this machine's data directory and needs no gateway.`

// agentRow is what the commands show of an agent. A gateway may say more.
type agentRow struct {
	ID        string                `json:"id"`
	Name      string                `json:"name"`
	Kind      string                `json:"kind,omitempty"` // "" for programs that no adapter knows
	Installed bool                  `json:"installed"`
	Default   bool                  `json:"default"`
	Version   string                `json:"version,omitempty"`
	Path      string                `json:"path,omitempty"`
	Source    string                `json:"source,omitempty"`
	Verified  string                `json:"verified,omitempty"`
	AuthState string                `json:"authState,omitempty"`
	LastError string                `json:"lastError,omitempty"`
	Processes []runtime.ProcessInfo `json:"processes"`
}

// rowOf reads what a gateway says of an agent.
func rowOf(raw json.RawMessage) (agentRow, error) {
	var r agentRow
	err := json.Unmarshal(raw, &r)
	return r, err
}

// localAgents returns the agents that a gateway of this binary knows, and those
// that are or can be installed on this machine.
func localAgents(in *install.Installer) ([]agentRow, error) {
	var rows []agentRow
	list, err := all.Adapters(all.Options{DataDir: in.DataDir()})
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		info := a.Info()
		r := agentRow{ID: info.ID, Name: info.Name, Kind: string(info.Kind), Installed: true, Processes: []runtime.ProcessInfo{}}
		if l, ok := a.(adapters.Locator); ok {
			p, err := l.Locate()
			r.Installed, r.Path, r.Source, r.Version, r.Verified = err == nil, p.Path, p.Source, p.Version, p.Verified
		}
		if info.Program != "" {
			r.found(in.Find(info.Program))
		}
		rows = append(rows, r)
	}
	installed, err := in.List()
	if err != nil {
		return nil, err
	}
	ids := install.Known()
	for _, i := range installed {
		ids = append(ids, i.Agent)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if slices.ContainsFunc(rows, func(r agentRow) bool { return r.ID == id }) {
			continue
		}
		r := agentRow{ID: id, Name: id, Processes: []runtime.ProcessInfo{}}
		r.found(in.Find(id))
		rows = append(rows, r)
	}
	return rows, nil
}

func (r *agentRow) found(i install.Installation, ok bool) {
	if r.Installed = ok; ok {
		r.Version, r.Path, r.Source, r.Verified = i.Version, i.Program, string(i.Source), string(i.Verification.How)
	}
}

// atGateway reports whether the user named a gateway; an empty variable names
// none.
func atGateway(c *cli.Context) bool { return c.IsSet("endpoint") && c.String("endpoint") != "" }

// namedGateway returns a client of the gateway that the user named, nil when the command works on this machine: that
// needs nothing of a gateway that runs here, such as its token.
func namedGateway(c *cli.Context) (*client.Client, error) {
	if !atGateway(c) && c.String("node") == "" {
		return nil, nil
	}
	t, err := targetOf(c)
	if err != nil {
		return nil, err
	}
	api, err := t.client()
	if err != nil {
		return nil, cmdline.Usagef(c, "%s", err)
	}
	return api, nil
}

// notesOf is where notes go of a command whose other output is JSON, perhaps: nowhere then.
func notesOf(c *cli.Context, std stdio) io.Writer {
	if c.Bool("json") {
		return io.Discard
	}
	return std.err
}

// localInstaller returns the installer of this machine's data directory. end
// ends what its programs may have left.
func localInstaller(c *cli.Context) (in *install.Installer, end func(), err error) {
	o, err := installOptionsOf(c)
	if err != nil {
		return nil, nil, err
	}
	// A gateway may be using the data directory.
	if end, err = all.Supervise(""); err != nil {
		return nil, nil, err
	}
	return install.New(o), end, nil
}

// untilSignal returns a context that ends with --timeout and with signals.
// explain makes the error of what a signal ended say so.
func untilSignal(c *cli.Context) (ctx context.Context, explain func(error) error, cancel context.CancelFunc) {
	signalled, stop := cmdline.UntilSignal(c.Context, leaving...)
	ctx, cancelTimeout := withTimeout(signalled, c.Duration("timeout"))
	explain = func(err error) error {
		unanswered, made := errors.AsType[*cmdline.UnansweredError](err)
		_, left := errors.AsType[*leftError](err)
		_, refused := errors.AsType[*cmdline.RefusedError](err)
		switch {
		case err == nil:
			return nil
		case left || refused:
			return err
		case made && signalled.Err() != nil && c.Context.Err() == nil:
			return &leftError{unanswered.What, errInterrupted}
		case made:
			return err
		case signalled.Err() != nil && c.Context.Err() == nil:
			return errInterrupted
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		return err
	}
	return ctx, explain, func() { cancelTimeout(); stop() }
}

// eitherAgents calls remote when the user named a gateway, or one runs at the
// standard address, else local.
func eitherAgents(c *cli.Context, std stdio, remote func(context.Context, *client.Client) error, local func(*install.Installer) error) error {
	if c.String("endpoint") != "" {
		ctx, cancel, api, err := controlClient(c)
		if err != nil {
			return err
		}
		defer cancel()
		err = remote(ctx, api)
		if err == nil || atGateway(c) || describe(err).Exit != cmdline.ExitUnreachable {
			return err
		}
	}
	o, err := installOptionsOf(c)
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		note(std, strings.TrimSuffix("no gateway runs at "+c.String("endpoint"), " at ")+"; this is what the data directory "+o.DataDir+" and PATH have")
	}
	return local(install.New(o))
}
