// Package problem is the one table of errors that clients meet outside
// JSON-RPC: RFC 9457 problem details with a stable type, status and title. The
// HTTP API, the transport and the command line print errors from here and from
// nowhere else.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// Prefix begins every problem type.
const Prefix = "urn:sandbox-agent:error:"

// ContentType is the media type of an encoded problem.
const ContentType = "application/problem+json"

// Kind names a row of the table.
type Kind string

// The kinds of problems.
const (
	InvalidRequest       Kind = "invalid_request"
	UnsupportedAgent     Kind = "unsupported_agent"
	ModeNotSupported     Kind = "mode_not_supported"
	TokenInvalid         Kind = "token_invalid"
	PermissionDenied     Kind = "permission_denied"
	AuthRequired         Kind = "auth_required"
	Cancelled            Kind = "cancelled"
	CredentialsRequired  Kind = "credentials_required"
	SessionNotFound      Kind = "session_not_found"
	ClientNotFound       Kind = "client_not_found"
	NodeNotFound         Kind = "node_not_found"
	AgentNotInstalled    Kind = "agent_not_installed"
	NotFound             Kind = "not_found"
	PathEscapes          Kind = "path_escapes"
	NotADirectory        Kind = "not_a_directory"
	NotAFile             Kind = "not_a_file"
	NotARepository       Kind = "not_a_repository"
	DirectoryNotEmpty    Kind = "directory_not_empty"
	AlreadyExists        Kind = "already_exists"
	PreconditionFailed   Kind = "precondition_failed"
	RangeNotSatisfiable  Kind = "range_not_satisfiable"
	ArchiveRefused       Kind = "archive_refused"
	TooManyRequests      Kind = "too_many_requests"
	InsufficientStorage  Kind = "insufficient_storage"
	MethodNotAllowed     Kind = "method_not_allowed"
	NotAcceptable        Kind = "not_acceptable"
	Conflict             Kind = "conflict"
	SessionAlreadyExists Kind = "session_already_exists"
	EventsExpired        Kind = "events_expired"
	V1Removed            Kind = "v1_removed"
	PayloadTooLarge      Kind = "payload_too_large"
	UnsupportedMediaType Kind = "unsupported_media_type"
	UpgradeRequired      Kind = "upgrade_required"
	Internal             Kind = "internal"
	NotSupported         Kind = "not_supported"
	InstallFailed        Kind = "install_failed"
	AgentError           Kind = "agent_error"
	AgentProcessExited   Kind = "agent_process_exited"
	OpencodeDisabled     Kind = "opencode_disabled"
	NodeOffline          Kind = "node_offline"
	Unavailable          Kind = "unavailable"
	Timeout              Kind = "timeout"
)

type row struct {
	status int
	title  string
}

var table = map[Kind]row{
	InvalidRequest:       {http.StatusBadRequest, "Invalid request"},
	UnsupportedAgent:     {http.StatusBadRequest, "Unsupported agent"},
	ModeNotSupported:     {http.StatusBadRequest, "Mode not supported"},
	TokenInvalid:         {http.StatusUnauthorized, "Token missing or invalid"},
	PermissionDenied:     {http.StatusForbidden, "Permission denied"},
	AuthRequired:         {http.StatusConflict, "Agent needs a login"},
	Cancelled:            {http.StatusConflict, "Cancelled"},
	CredentialsRequired:  {http.StatusConflict, "Session needs its credentials again"},
	SessionNotFound:      {http.StatusNotFound, "Session not found"},
	ClientNotFound:       {http.StatusNotFound, "Connection not found"},
	NodeNotFound:         {http.StatusNotFound, "Node not found"},
	AgentNotInstalled:    {http.StatusNotFound, "Agent not installed"},
	NotFound:             {http.StatusNotFound, "Not found"},
	PathEscapes:          {http.StatusForbidden, "Path leads out of the root"},
	NotADirectory:        {http.StatusConflict, "Not a directory"},
	NotAFile:             {http.StatusConflict, "Not a regular file"},
	NotARepository:       {http.StatusConflict, "Not a git repository"},
	DirectoryNotEmpty:    {http.StatusConflict, "Directory not empty"},
	AlreadyExists:        {http.StatusConflict, "Already exists"},
	PreconditionFailed:   {http.StatusPreconditionFailed, "Precondition failed"},
	RangeNotSatisfiable:  {http.StatusRequestedRangeNotSatisfiable, "Range not satisfiable"},
	ArchiveRefused:       {http.StatusUnprocessableEntity, "Archive refused"},
	TooManyRequests:      {http.StatusTooManyRequests, "Too many requests"},
	InsufficientStorage:  {http.StatusInsufficientStorage, "No space left"},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, "Method not allowed"},
	NotAcceptable:        {http.StatusNotAcceptable, "Not acceptable"},
	Conflict:             {http.StatusConflict, "Conflict"},
	SessionAlreadyExists: {http.StatusConflict, "Session already exists"},
	EventsExpired:        {http.StatusGone, "Events expired"},
	V1Removed:            {http.StatusGone, "API version 1 was removed"},
	PayloadTooLarge:      {http.StatusRequestEntityTooLarge, "Payload too large"},
	UnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type"},
	UpgradeRequired:      {http.StatusUpgradeRequired, "Upgrade required"},
	Internal:             {http.StatusInternalServerError, "Internal error"},
	NotSupported:         {http.StatusNotImplemented, "Not supported by this server"},
	InstallFailed:        {http.StatusInternalServerError, "Installation failed"},
	AgentError:           {http.StatusBadGateway, "Agent failed"},
	AgentProcessExited:   {http.StatusInternalServerError, "Agent process exited"},
	OpencodeDisabled:     {http.StatusServiceUnavailable, "OpenCode compatibility is disabled"},
	NodeOffline:          {http.StatusServiceUnavailable, "Node is offline"},
	Unavailable:          {http.StatusServiceUnavailable, "Service unavailable"},
	Timeout:              {http.StatusGatewayTimeout, "Timed out"},
}

// Kinds returns every kind, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(table)) }

// Type returns the kind's problem type.
func (k Kind) Type() string { return Prefix + string(k) }

// Status returns the kind's HTTP status.
func (k Kind) Status() int { return table[k].status }

// Title returns the kind's title.
func (k Kind) Title() string { return table[k].title }

// Error is a problem as a Go error. Detail says what was wrong with this
// request and what to do about it. Extensions are further members of the
// document; they must not use the names of RFC 9457.
type Error struct {
	Kind       Kind
	Detail     string
	Extensions map[string]any
	cause      error
}

// New returns a problem with a formatted detail.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Detail: fmt.Sprintf(format, args...)}
}

// Wrap returns a problem whose detail ends in err's text and that unwraps to err.
func Wrap(k Kind, err error, format string, args ...any) *Error {
	return &Error{Kind: k, Detail: fmt.Sprintf(format, args...) + ": " + err.Error(), cause: err}
}

// With returns a copy of e with one more extension member.
func (e *Error) With(name string, value any) *Error {
	c := *e
	c.Extensions = maps.Clone(e.Extensions)
	if c.Extensions == nil {
		c.Extensions = map[string]any{}
	}
	c.Extensions[name] = value
	return &c
}

// Unknown is the member "done" of a problem that says so, see [Error.DoneUnknown].
const Unknown = "unknown"

// DoneUnknown returns a copy of e that says that it is not known whether what was asked was done.
func (e *Error) DoneUnknown() *Error { return e.With("done", Unknown) }

// Error returns the title and the detail.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Kind.Title()
	}
	return e.Kind.Title() + ": " + e.Detail
}

// Unwrap returns the cause given to [Wrap].
func (e *Error) Unwrap() error { return e.cause }

// From finds the problem in err's chain; any other error becomes [Internal].
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Detail: err.Error(), cause: err}
}

// MarshalJSON writes the problem document.
func (e *Error) MarshalJSON() ([]byte, error) {
	doc := make(map[string]any, 4+len(e.Extensions))
	maps.Copy(doc, e.Extensions)
	doc["type"], doc["title"], doc["status"] = e.Kind.Type(), e.Kind.Title(), e.Kind.Status()
	if e.Detail != "" {
		doc["detail"] = e.Detail
	}
	return json.Marshal(doc)
}

// RequestIDHeader is the header of an answer that names its request.
const RequestIDHeader = "X-Request-Id"

// Write answers an HTTP request with the problem in err's chain. The id of the
// request, if the answer's headers have one, is in the document as requestId.
func Write(w http.ResponseWriter, err error) {
	e := From(err)
	if id := w.Header().Get(RequestIDHeader); id != "" {
		e = e.With("requestId", id)
	}
	b, merr := json.Marshal(e)
	if merr != nil {
		b, _ = json.Marshal(&Error{Kind: e.Kind, Detail: e.Detail})
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(e.Kind.Status())
	_, _ = w.Write(b)
}
