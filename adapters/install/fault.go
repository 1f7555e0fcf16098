package install

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

var (
	errStalled        = errors.New("the server sent nothing for too long")
	errTooLarge       = errors.New("larger than allowed")
	errUnknownVersion = errors.New("no such version")
	errNotOffered     = errors.New("not offered")
	errMissing        = errors.New("not found")
)

// checksumError says that a download is not what its maker published.
type checksumError struct{ url, want, got string }

func (e *checksumError) Error() string {
	return fmt.Sprintf("%s has the SHA-256 %s, but %s was published for it; nothing was installed: try again, and if it stays so, do not trust that server", e.url, e.got, e.want)
}

// statusError is an HTTP answer that is no success.
type statusError struct {
	url  string
	code int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.url, e.code, http.StatusText(e.code))
}

// missing reports whether a server said that there is no such file.
func missing(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.code == http.StatusNotFound || e.code == http.StatusGone)
}

// Attempt is what one source answered.
type Attempt struct {
	Source Source `json:"source"`
	Answer string `json:"answer"`
	err    error
}

// attempts is the error of an installation that no source could make.
type attempts []Attempt

func (a attempts) Error() string {
	parts := make([]string, len(a))
	for i, t := range a {
		parts[i] = string(t.Source) + ": " + t.Answer
	}
	return strings.Join(parts, "; ")
}

func (a attempts) Unwrap() []error {
	errs := make([]error, len(a))
	for i, t := range a {
		errs[i] = t.err
	}
	return errs
}

// problem turns the answers of all sources into what the caller gets.
func (a attempts) problem(agent string) *problem.Error {
	if len(a) == 0 {
		return problem.New(problem.InvalidRequest, "agent %s was not installed: no source was asked; name at least one of %s", agent, sourceNames(AllSources()))
	}
	kind := problem.InstallFailed
	if len(a) == 1 && a[0].Source == Path && errors.Is(a[0].err, errMissing) {
		kind = problem.AgentNotInstalled
	}
	for _, t := range a {
		switch {
		case errors.Is(t.err, errUnknownVersion):
			kind = problem.InvalidRequest // if everybody who could know says so
		case errors.Is(t.err, errNotOffered), errors.Is(t.err, errMissing):
		default:
			return problem.Wrap(problem.InstallFailed, a, "agent %s was not installed", agent).With("sources", []Attempt(a))
		}
	}
	return problem.Wrap(kind, a, "agent %s was not installed", agent).With("sources", []Attempt(a))
}

// local reports whether err is this machine's own fault, which no other source
// can mend.
func local(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// advise adds to err what somebody can do about it. dir is where is written.
func advise(err error, dir string) error {
	if r := remedy(err, dir); r != "" {
		return fmt.Errorf("%w: %s", err, r)
	}
	return err
}

func remedy(err error, dir string) string {
	switch {
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "the disk is full: free some space at " + dir + ", or choose another data directory"
	case errors.Is(err, syscall.ENOTDIR):
		return "part of the path " + dir + " is a file: remove that, or choose another data directory"
	case errors.Is(err, syscall.EROFS):
		return "the disk is read-only: choose a data directory other than " + dir
	case errors.Is(err, fs.ErrPermission):
		return "this user may not write or run files at " + dir + ": correct the owner and the mode, or choose another data directory"
	case errors.Is(err, errStalled):
		return "check the connection, a proxy (HTTPS_PROXY), or use a mirror"
	case errors.Is(err, errTooLarge):
		return "raise the limit if that is right"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "install the package ca-certificates, or name your certificates with SSL_CERT_FILE"
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "check this machine's clock and its certificates"
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return statusRemedy(e.code)
	}
	// Not net.Error: a plain system error number satisfies that too.
	_, dial := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	if dial || name {
		return "the server cannot be reached: check the connection, a proxy (HTTPS_PROXY), or use a mirror"
	}
	return ""
}

func statusRemedy(code int) string {
	switch {
	case code == http.StatusForbidden, code == http.StatusTooManyRequests:
		return "the server refuses or limits requests from here: wait, use a proxy or a mirror"
	case code == http.StatusUnauthorized, code == http.StatusProxyAuthRequired:
		return "the server or the proxy wants credentials: put them into HTTPS_PROXY, or use a mirror"
	case code >= 500:
		return "the server is in trouble: try again later, or use a mirror"
	}
	return ""
}
