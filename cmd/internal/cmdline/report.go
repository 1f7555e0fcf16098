package cmdline

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// The exit codes that both programs have. The tables in their help say the same.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitAuth        = 4
	ExitNotFound    = 5
)

// Failed is the title of an error of which no more is known than its text.
const Failed = "failed"

// Report is an error as a program prints it.
type Report struct {
	Exit   int
	Type   string // of a problem, "" when there is none
	Title  string
	Status int // of the problem
	Detail string
	Code   int64           // of a JSON-RPC error
	Data   json.RawMessage // of a JSON-RPC error
	Stderr string          // what an agent wrote before
	Hint   string
}

// Print writes the report for people, or as one JSON object.
func (r *Report) Print(w io.Writer, asJSON bool) {
	if asJSON {
		doc := map[string]any{"title": r.Title, "exitCode": r.Exit}
		for name, v := range map[string]string{"type": r.Type, "detail": r.Detail, "hint": r.Hint} {
			if v != "" {
				doc[name] = v
			}
		}
		if r.Status != 0 {
			doc["status"] = r.Status
		}
		if r.Code != 0 {
			doc["code"] = r.Code
		}
		if len(r.Data) > 0 {
			doc["data"] = r.Data
		}
		WriteJSON(w, doc)
		return
	}
	text := r.Title
	switch {
	case r.Detail == "":
	case r.Title == Failed: // says nothing beside a detail
		text = r.Detail
	default:
		text += ": " + r.Detail
	}
	fmt.Fprintln(w, "error: "+Printable(text))
	if r.Stderr != "" && !strings.Contains(r.Detail, r.Stderr) {
		fmt.Fprintln(w, "stderr: "+Printable(r.Stderr))
	}
	if r.Hint != "" {
		fmt.Fprintln(w, "hint: "+r.Hint)
	}
}

// WrongUse reports an error about arguments.
func WrongUse(use *Usage) Report {
	return Report{Exit: ExitUsage, Title: "wrong usage", Detail: use.Text, Hint: "see: " + use.Command + " --help"}
}

// NotReached reports that a server could not be talked to; hint is for one that does not
// run, or runs elsewhere.
func NotReached(server string, err error, hint string) Report {
	if request, ok := errors.AsType[*url.Error](err); ok && errors.Is(err, ErrSilent) {
		err = request.Err // which it was says nothing
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		hint = "if the certificate is right, say so: SSL_CERT_FILE names a file with the authority that signed it"
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") { // the library has no name for it
		hint = "the server speaks no TLS: use http:// in its address"
	}
	if errors.Is(err, syscall.ECONNRESET) {
		hint = "it is there, and ended the connection: when it has no room for more, its log says so (--max-connections)"
	}
	return Report{Exit: ExitUnreachable, Title: "cannot reach " + server, Detail: strings.TrimPrefix(briefly(err), "reach "+server+": "), Hint: hint}
}

// TimedOut reports that --timeout is over.
func TimedOut(exit int, err error) Report {
	return Report{
		Exit: exit, Title: "timed out", Hint: "--timeout sets how long to wait",
		Detail: strings.TrimSuffix(strings.TrimSuffix(said(err), context.DeadlineExceeded.Error()), ": "),
	}
}

// briefly is what an error of a network says, without the way that it came through libraries.
func briefly(err error) string {
	op, failed := errors.AsType[*net.OpError](err)
	dns, unknown := errors.AsType[*net.DNSError](err)
	switch {
	case unknown:
		return fmt.Sprintf("the host %s is not known: %s", dns.Name, dns.Err)
	case failed && op.Op == "dial" && op.Addr != nil && op.Err != nil:
		return fmt.Sprintf("connect to %s: %s", op.Addr, strings.TrimPrefix(op.Err.Error(), "connect: "))
	}
	return said(err)
}

// said is the text of an error, in which an address is shown without a password or a token.
func said(err error) string {
	text := err.Error()
	if request, ok := errors.AsType[*url.Error](err); ok {
		text = strings.ReplaceAll(text, request.URL, secret.Address(request.URL))
	}
	return text
}

// Unreachable reports whether err is of a network, and not of an address to listen on.
func Unreachable(err error) bool {
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
	return errors.As(err, &netErr) || errors.As(err, &urlErr) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, io.ErrUnexpectedEOF)
}
