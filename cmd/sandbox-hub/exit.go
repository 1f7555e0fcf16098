package main

import (
	"context"
	"errors"
	"net/http"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fleet/client"
)

const noHub = "start one with: sandbox-hub serve, or name another with --endpoint"

// noStore is the error of a hub whose store cannot be used.
type noStore struct {
	servers bool // it is in those of --nats
	err     error
}

func (e *noStore) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *noStore) Unwrap() error { return e.err }

// describe is the only place that decides how an error is shown.
func describe(err error) cmdline.Report {
	var use *cmdline.Usage
	var p *problem.Error
	var store *noStore
	var unanswered *cmdline.UnansweredError
	switch {
	case errors.As(err, &unanswered):
		r := describe(unanswered.Cause)
		r.Hint = unanswered.What
		return r
	case errors.As(err, &use):
		return cmdline.WrongUse(use)
	case errors.As(err, &store): // may be of a network, and is not about a hub that a command asks
		r := cmdline.Report{Exit: cmdline.ExitFailure, Title: cmdline.Failed, Detail: err.Error()}
		if store.servers {
			r.Hint = "see that the servers of --nats run, and that --nats and --nats-creds are theirs"
		}
		return r
	case errors.Is(err, client.ErrGateway):
		return cmdline.NotReached("the hub", err, "a gateway is for sandbox-agent, such as sandbox-agent health with the same --endpoint; a hub is started with: sandbox-hub serve")
	case errors.Is(err, cmdline.ErrSilent):
		return cmdline.NotReached("the hub", err, "its process is stopped, or stuck: end it and start it again, or name another with --endpoint")
	case errors.Is(err, acphttp.ErrForeign):
		return cmdline.NotReached("the hub", err, noHub)
	case errors.As(err, &p):
		r := cmdline.Report{Exit: cmdline.ExitFailure, Type: p.Kind.Type(), Title: p.Kind.Title(), Status: p.Kind.Status(), Detail: p.Detail}
		switch {
		case p.Kind == problem.InvalidRequest:
			r.Exit = cmdline.ExitUsage
		case p.Kind == problem.TokenInvalid:
			r.Exit, r.Hint = cmdline.ExitAuth, "set SANDBOX_HUB_TOKEN or --token-file to a token of the hub"
		case p.Kind == problem.PermissionDenied:
			r.Exit = cmdline.ExitAuth
		case p.Kind == problem.Unavailable:
			r.Exit = cmdline.ExitUnreachable
		case p.Kind.Status() == http.StatusNotFound:
			r.Exit = cmdline.ExitNotFound
		}
		return r
	case errors.Is(err, context.DeadlineExceeded):
		return cmdline.TimedOut(cmdline.ExitUnreachable, err)
	case cmdline.Unreachable(err):
		return cmdline.NotReached("the hub", err, noHub)
	}
	return cmdline.Report{Exit: cmdline.ExitFailure, Title: cmdline.Failed, Detail: err.Error()}
}
