package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// The exit codes. The table in the help text says the same.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitAuth        = 4
	exitNotFound    = 5
)

// printError writes an error for people, or as one JSON object, and returns the
// exit code.
func printError(w io.Writer, err error, asJSON bool) int {
	code, title, hint := exitFailure, "failed", ""
	detail, kind := err.Error(), ""
	var use *usage
	var p *problem.Error
	var address *url.Error
	switch {
	case errors.As(err, &use):
		code, title, hint = exitUsage, "wrong usage", "see: "+use.command+" --help"
	case errors.As(err, &p):
		title, detail, kind = p.Kind.Title(), p.Detail, p.Kind.Type()
		switch {
		case p.Kind == problem.TokenInvalid:
			code, hint = exitAuth, "set SANDBOX_HUB_TOKEN or --token-file to a token of the hub"
		case p.Kind == problem.PermissionDenied:
			code = exitAuth
		case p.Kind == problem.Unavailable:
			code = exitUnreachable
		case p.Kind.Status() == http.StatusNotFound:
			code = exitNotFound
		}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &address), errors.As(err, new(net.Error)) && !errors.As(err, new(*os.PathError)) && !listening(err):
		code, title, hint = exitUnreachable, "cannot reach the hub", "start one with: sandbox-hub serve, or name another with --endpoint"
	}
	if asJSON {
		doc := map[string]any{"title": title, "detail": detail, "exitCode": code}
		if kind != "" {
			doc["type"], doc["status"] = kind, p.Kind.Status()
		}
		if hint != "" {
			doc["hint"] = hint
		}
		writeJSON(w, doc)
		return code
	}
	fmt.Fprintf(w, "error: %s: %s\n", title, printable(detail))
	if hint != "" {
		fmt.Fprintln(w, "hint: "+hint)
	}
	return code
}

// listening reports whether the hub's own address could not be had.
func listening(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "listen"
}
