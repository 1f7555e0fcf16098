package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// The exit codes. The table in the help text says the same.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitAuth        = 4
	exitNotFound    = 5
	exitAgent       = 6
	exitRefused     = 7
	exitEndedEarly  = 8
	exitTimeUp      = 124
	exitInterrupted = 130
)

var (
	// errInterrupted is returned when Ctrl-C ended the command.
	errInterrupted = errors.New("interrupted")
	// errRefused is in the chain of errors of turns that were not allowed to
	// do their work.
	errRefused = errors.New("refused")
	// errEndedEarly is in the chain of errors of turns that ended before the
	// agent was done.
	errEndedEarly = errors.New("the turn ended early")
	// errTimeUp is in the chain when --timeout ended a prompt.
	errTimeUp = errors.New("it took longer than --timeout")
	// errConnectionLost is in the chain when a connection ended too early.
	errConnectionLost = errors.New("the gateway ended the connection")
)

// exitCode maps an error to the program's exit code.
func exitCode(err error) int { return describe(err).exit }

// report is an error as the program prints it.
type report struct {
	exit   int
	typ    string // problem type, "" when there is none
	title  string
	status int // of the problem
	detail string
	code   int64           // of a JSON-RPC error
	data   json.RawMessage // of a JSON-RPC error
	hint   string
}

// describe is the only place that decides how an error is shown.
func describe(err error) report {
	var (
		use *usage
		end *programExit
		p   *problem.Error
		rpc *acp.Error
	)
	switch {
	case errors.As(err, &use):
		return report{exit: exitUsage, title: "wrong usage", detail: use.text, hint: "see: " + use.command + " --help"}
	case errors.As(err, &end):
		return report{exit: end.code, title: "the program failed"}
	case errors.As(err, &p):
		r := report{exit: exitFailure, typ: p.Kind.Type(), title: p.Kind.Title(), status: p.Kind.Status(), detail: p.Detail}
		r.exit, r.hint = ofKind(p.Kind)
		return r
	case errors.As(err, &rpc):
		r := report{exit: exitAgent, title: "the agent answered with an error", detail: rpc.Message, code: rpc.Code, data: rpc.Data}
		inner := acphttp.DecodeProblem(rpc.Data)
		if inner != nil {
			r.typ = inner.Kind.Type()
		}
		if inner != nil && (inner.Detail != "" || !plainKind(inner.Kind)) {
			r.title, r.status = inner.Kind.Title(), inner.Kind.Status()
			if inner.Detail != "" {
				r.detail = inner.Detail
			}
			r.exit, r.hint = ofKind(inner.Kind)
			return r
		}
		switch rpc.Code {
		case acp.CodeResourceNotFound:
			r.exit, r.title = exitNotFound, "not found"
			r.hint = "sandbox-agent sessions list shows the sessions there are"
		case acp.CodeAuthRequired:
			r.exit, r.title = exitAuth, "the agent needs a login"
		case acp.CodeMethodNotFound, acp.CodeInvalidParams, acp.CodeInvalidRequest:
			r.title = "the request was not accepted"
		}
		return r
	case errors.Is(err, errInterrupted):
		return report{exit: exitInterrupted, title: "interrupted"}
	case errors.Is(err, errNotRunning):
		return report{exit: exitUnreachable, title: "not running", detail: err.Error(), hint: "start one with: sandbox-agent daemon start"}
	case errors.Is(err, errRefused):
		return report{exit: exitRefused, title: "refused", detail: err.Error()}
	case errors.Is(err, errEndedEarly):
		return report{exit: exitEndedEarly, title: "not done", detail: err.Error()}
	case errors.Is(err, errTimeUp):
		return report{exit: exitTimeUp, title: "timed out", detail: err.Error(), hint: "the session can be continued with --session"}
	case errors.Is(err, context.DeadlineExceeded):
		return report{exit: exitTimeUp, title: "timed out", detail: err.Error(), hint: "--timeout sets how long to wait"}
	case unreachable(err):
		return report{exit: exitUnreachable, title: "cannot reach the gateway", detail: err.Error(), hint: "start one with: sandbox-agent server, or name another with --endpoint"}
	}
	return report{exit: exitFailure, title: "failed", detail: err.Error()}
}

// plainKind reports whether a kind without a detail says no more than the error's code.
func plainKind(k problem.Kind) bool {
	switch k {
	case problem.InvalidRequest, problem.NotSupported, problem.AuthRequired, problem.NotFound, problem.Cancelled, problem.Internal, problem.Conflict,
		problem.ModeNotSupported, problem.AgentError:
		return true
	}
	return false
}

func ofKind(k problem.Kind) (exit int, hint string) {
	switch k {
	case problem.TokenInvalid:
		return exitAuth, "set SANDBOX_AGENT_TOKEN or --token-file to the gateway's token"
	case problem.PermissionDenied:
		return exitAuth, ""
	case problem.CredentialsRequired:
		return exitAuth, "open the session with its credentials again: session/load with _meta"
	case problem.SessionNotFound:
		return exitNotFound, "sandbox-agent sessions list shows the sessions there are"
	case problem.UnsupportedAgent, problem.AgentNotInstalled:
		return exitNotFound, "sandbox-agent agents list shows the agents there are"
	case problem.AgentProcessExited, problem.InstallFailed, problem.Timeout:
		return exitAgent, ""
	case problem.Unavailable:
		return exitUnreachable, ""
	}
	if k.Status() == http.StatusNotFound {
		return exitNotFound, ""
	}
	return exitFailure, ""
}

func unreachable(err error) bool {
	var opErr *net.OpError
	var netErr net.Error
	var urlErr *url.Error
	if errors.As(err, &opErr) && opErr.Op == "listen" {
		return false
	}
	// The system's errors about local files look like those of a network.
	if errors.As(err, new(*os.PathError)) || errors.As(err, new(*os.LinkError)) {
		return false
	}
	return errors.As(err, &netErr) || errors.As(err, &urlErr) || errors.Is(err, errConnectionLost) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, io.ErrUnexpectedEOF)
}

// printError writes an error for people, or as one JSON object.
func printError(w io.Writer, err error, asJSON bool) {
	r := describe(err)
	if asJSON {
		doc := map[string]any{"title": r.title, "exitCode": r.exit}
		for name, v := range map[string]string{"type": r.typ, "detail": r.detail, "hint": r.hint} {
			if v != "" {
				doc[name] = v
			}
		}
		if r.status != 0 {
			doc["status"] = r.status
		}
		if r.code != 0 {
			doc["code"] = r.code
		}
		if len(r.data) > 0 {
			doc["data"] = r.data
		}
		writeJSON(w, doc)
		return
	}
	text := r.title
	if r.detail != "" {
		text += ": " + r.detail
	}
	fmt.Fprintln(w, "error: "+printable(text))
	if tail := rawjson.MemberString(r.data, "stderr", "tail"); tail != "" && !strings.Contains(r.detail, tail) {
		fmt.Fprintln(w, "stderr: "+printable(tail))
	}
	if r.hint != "" {
		fmt.Fprintln(w, "hint: "+r.hint)
	}
}
