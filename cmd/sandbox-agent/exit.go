package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"syscall"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// The exit codes beside those of package cmdline. The table in the help text says the
// same.
const (
	exitAgent       = 6
	exitRefused     = 7
	exitEndedEarly  = 8
	exitTimeUp      = 124
	exitInterrupted = 130
)

// leaving are the signals that end a command in good order. The gateway takes SIGQUIT for what it
// is in Go: it tells what all its parts do, and ends.
var leaving = cmdline.Ending(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

var (
	// errInterrupted is returned when Ctrl-C ended the command.
	errInterrupted = errors.New("interrupted")
	// errRefused is in the chain of errors of turns that were not allowed to
	// do their work.
	errRefused = errors.New("refused")
	// errEndedEarly is in the chain of errors of turns that ended before the
	// agent was done.
	errEndedEarly = errors.New("the turn ended early")
	// errCancelled is in the chain of errors of turns that somebody else has cancelled.
	errCancelled = errors.New("the turn was cancelled")
	// errTimeUp is in the chain when --timeout ended a prompt.
	errTimeUp = errors.New("it took longer than --timeout")
	// errConnectionLost is in the chain when a connection ended too early.
	errConnectionLost error = lostError{}
)

// lostError is of a network.
type lostError struct{}

func (lostError) Error() string { return "the gateway ended the connection" }

func (lostError) Unwrap() error { return io.ErrUnexpectedEOF }

// exitCode maps an error to the program's exit code.
func exitCode(err error) int { return describe(err).Exit }

// advice is an error with what its user can do about it, in the words of the command.
type advice struct {
	error
	hint string
}

func (a *advice) Unwrap() error { return a.error }

// parentsHint is for paths whose folder is not there.
const parentsHint = "--parents makes the folders that are missing"

// leftError says what is left of what was interrupted.
type leftError struct {
	what string
	why  error
}

func (e *leftError) Error() string { return e.what + ": " + e.why.Error() }
func (e *leftError) Unwrap() error { return e.why }

// advise gives a problem of one kind a hint; other errors stay what they are.
func advise(err error, k problem.Kind, hint string) error {
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != k {
		return err
	}
	return &advice{err, hint}
}

// describe is the only place that decides how an error is shown.
func describe(err error) cmdline.Report {
	hint := ""
	if a, ok := errors.AsType[*advice](err); ok {
		hint = a.hint
	}
	if u, ok := errors.AsType[*cmdline.UnansweredError](err); ok {
		r := described(u.Cause, hint)
		r.Hint = u.What
		return r
	}
	r := described(err, hint)
	r.Hint = cmp.Or(r.Hint, hint)
	return r
}

// described is describe with the hint of an advice, for errors that have another without it.
func described(err error, hint string) cmdline.Report {
	var (
		use *cmdline.Usage
		end *programExit
		p   *problem.Error
		rpc *acp.Error
	)
	switch {
	case errors.As(err, &use):
		return cmdline.WrongUse(use)
	case errors.As(err, &end):
		return cmdline.Report{Exit: end.code, Title: "the program failed"}
	case errors.Is(err, cmdline.ErrSilent):
		return cmdline.NotReached("the gateway", err, cmp.Or(hint, "daemon status says whether it runs in the background here, and daemon start replaces one that does not answer"))
	case errors.Is(err, acphttp.ErrForeign):
		return cmdline.NotReached("the gateway", err, cmp.Or(hint, noGateway))
	case errors.As(err, &p):
		r := cmdline.Report{Exit: cmdline.ExitFailure, Type: p.Kind.Type(), Title: p.Kind.Title(), Status: p.Kind.Status(), Detail: p.Detail}
		r.Exit, r.Hint = ofProblem(p)
		return r
	case errors.As(err, &rpc):
		r := cmdline.Report{Exit: exitAgent, Title: "the agent answered with an error", Detail: rpc.Message, Code: rpc.Code, Data: rpc.Data, Stderr: rawjson.MemberString(rpc.Data, "stderr", "tail")}
		inner := acphttp.DecodeProblem(rpc.Data)
		if inner != nil {
			r.Type = inner.Kind.Type()
		}
		if inner != nil && (inner.Detail != "" || !plainKind(inner.Kind)) {
			r.Title, r.Status = inner.Kind.Title(), inner.Kind.Status()
			if inner.Detail != "" {
				r.Detail = inner.Detail
			}
			r.Exit, r.Hint = ofProblem(inner)
			return r
		}
		switch rpc.Code {
		case acp.CodeResourceNotFound:
			r.Exit, r.Title = cmdline.ExitNotFound, "not found"
			r.Hint = "sandbox-agent sessions list shows the sessions there are"
		case acp.CodeAuthRequired:
			r.Exit, r.Title = cmdline.ExitAuth, "the agent needs a login"
			r.Hint = "log in with: sandbox-agent agents login AGENT; or start the gateway with the agent's key in its environment"
		case acp.CodeMethodNotFound, acp.CodeInvalidParams, acp.CodeInvalidRequest:
			r.Title = "the request was not accepted"
		}
		return r
	case errors.Is(err, errInterrupted):
		r := cmdline.Report{Exit: exitInterrupted, Title: "interrupted"}
		if left, ok := errors.AsType[*leftError](err); ok {
			r.Detail = left.what
		}
		return r
	case errors.Is(err, errNotRunning):
		return cmdline.Report{Exit: cmdline.ExitUnreachable, Title: "not running", Detail: err.Error(), Hint: cmp.Or(hint, "start one with: sandbox-agent daemon start")}
	case errors.Is(err, errRefused):
		return cmdline.Report{Exit: exitRefused, Title: "refused", Detail: err.Error()}
	case errors.Is(err, errEndedEarly):
		return cmdline.Report{Exit: exitEndedEarly, Title: "not done", Detail: err.Error()}
	case errors.Is(err, errCancelled):
		return cmdline.Report{Exit: exitInterrupted, Title: "cancelled", Detail: err.Error()}
	case errors.Is(err, errTimeUp):
		return cmdline.Report{Exit: exitTimeUp, Title: "timed out", Detail: err.Error(), Hint: "the session can be continued with --session"}
	case errors.Is(err, context.DeadlineExceeded):
		return cmdline.TimedOut(exitTimeUp, err)
	case cmdline.Unreachable(err):
		return cmdline.NotReached("the gateway", err, cmp.Or(hint, noGateway))
	}
	return cmdline.Report{Exit: cmdline.ExitFailure, Title: cmdline.Failed, Detail: err.Error()}
}

const noGateway = "start one with: sandbox-agent daemon start, or in another terminal: sandbox-agent server; or name one with --endpoint"

// plainKind reports whether a kind without a detail says no more than the error's code.
func plainKind(k problem.Kind) bool {
	switch k {
	case problem.InvalidRequest, problem.NotSupported, problem.AuthRequired, problem.NotFound, problem.Cancelled, problem.Internal, problem.Conflict,
		problem.ModeNotSupported, problem.AgentError:
		return true
	}
	return false
}

// ofProblem is ofKind with a hint of what could be meant, where the problem says which
// agents there are.
func ofProblem(p *problem.Error) (exit int, hint string) {
	exit, hint = ofKind(p.Kind)
	var agents []string
	switch list := p.Extensions["agents"].(type) {
	case []string: // of this process
		agents = list
	case []any:
		for _, a := range list {
			if name, ok := a.(string); ok {
				agents = append(agents, name)
			}
		}
	}
	if len(agents) == 0 {
		return exit, hint
	}
	name, _ := p.Extensions["agent"].(string)
	if name == "" {
		return exit, "name one with --agent"
	}
	if like := cmdline.Nearest(name, agents); like != "" {
		return exit, "did you mean " + like + "?"
	}
	return exit, hint
}

func ofKind(k problem.Kind) (exit int, hint string) {
	switch k {
	case problem.InvalidRequest:
		return cmdline.ExitUsage, ""
	case problem.TokenInvalid:
		return cmdline.ExitAuth, "set SANDBOX_AGENT_TOKEN or --token-file to the gateway's token"
	case problem.PermissionDenied:
		return cmdline.ExitAuth, ""
	case problem.CredentialsRequired:
		return cmdline.ExitAuth, "open the session with its credentials again: session/load with _meta"
	case problem.SessionNotFound:
		return cmdline.ExitNotFound, "sandbox-agent sessions list shows the sessions there are"
	case problem.UnsupportedAgent, problem.AgentNotInstalled:
		return cmdline.ExitNotFound, "sandbox-agent agents list shows the agents there are"
	case problem.AgentProcessExited, problem.InstallFailed, problem.Timeout:
		return exitAgent, ""
	case problem.Unavailable:
		return cmdline.ExitUnreachable, ""
	}
	if k.Status() == http.StatusNotFound {
		return cmdline.ExitNotFound, ""
	}
	return cmdline.ExitFailure, ""
}
