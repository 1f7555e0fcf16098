// Package client is the Go client of the HTTP API in package control.
//
// An answer that is an error is returned as a *problem.Error somewhere in the
// error's chain; every other error means that the server was not reached or did
// not speak the API.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/internal/socket"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// maxAnswer bounds a page that is read into memory.
const maxAnswer = 1 << 30

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// Options configure a Client.
type Options struct {
	Token string
	HTTP  *http.Client // nil is a client that follows no redirects
}

// New returns a client of the server at endpoint, an http or https address. A
// path in it is kept, for servers behind a proxy.
func New(endpoint string, o Options) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("parse endpoint: %q is not an http or https address", endpoint)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v2/rpc")
	u.RawQuery, u.Fragment = "", ""
	c := &Client{base: u, token: o.Token, http: o.HTTP}
	if c.http == nil {
		c.http = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

// transport is that of all clients that bring none.
var transport = socket.Transport()

// Status is the answer of Health and Ready.
type Status struct {
	Status string `json:"status"`
}

// Version is what runs at the server.
type Version struct {
	Version         string `json:"version"`
	ProtocolVersion int    `json:"protocolVersion"`
	GoVersion       string `json:"goVersion"`
	OS              string `json:"os"`
	Arch            string `json:"arch"`
	Instance        string `json:"instance,omitempty"` // a run of a gateway; "" of versions that do not tell
}

// Health returns nil when the server answers.
func (c *Client) Health(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, nil, "v2", "health")
}

// Ready returns nil when the server accepts new work.
func (c *Client) Ready(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, nil, "v2", "ready")
}

// Version returns what runs at the server.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return get[Version](ctx, c, nil, "v2", "version")
}

// Agents returns the agents that sessions can use.
func (c *Client) Agents(ctx context.Context) ([]runtime.AgentInfo, error) {
	body, err := get[struct {
		Agents []runtime.AgentInfo `json:"agents"`
	}](ctx, c, nil, "v2", "agents")
	return body.Agents, err
}

// AgentsJSON returns the agents as the server describes them, also with what
// this program does not know of.
func (c *Client) AgentsJSON(ctx context.Context) ([]json.RawMessage, error) {
	body, err := get[struct {
		Agents []json.RawMessage `json:"agents"`
	}](ctx, c, nil, "v2", "agents")
	return body.Agents, err
}

// AgentJSON returns one agent as the server describes it.
func (c *Client) AgentJSON(ctx context.Context, id string) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v2", "agents", id)
}

// Agent returns one agent.
func (c *Client) Agent(ctx context.Context, id string) (runtime.AgentInfo, error) {
	return get[runtime.AgentInfo](ctx, c, nil, "v2", "agents", id)
}

// OpenAPI returns the server's OpenAPI document.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, nil, "v2", "openapi.json")
}

// Nodes returns the names of the nodes of a hub. A gateway has none.
func (c *Client) Nodes(ctx context.Context) ([]string, error) {
	body, err := get[struct{ Nodes []struct{ Name string } }](ctx, c, nil, "v2", "nodes")
	var names []string
	for _, n := range body.Nodes {
		names = append(names, n.Name)
	}
	return names, err
}

// Sessions returns one page of sessions. A filter with the page's NextCursor as
// its Cursor selects the next one.
func (c *Client) Sessions(ctx context.Context, f runtime.SessionFilter) (runtime.SessionList, error) {
	q := url.Values{}
	for name, v := range map[string]string{"cwd": f.Cwd, "agent": f.Agent, "cursor": f.Cursor, "q": f.Query, "sort": string(f.Order)} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	for _, state := range f.States {
		q.Add("state", string(state))
	}
	return get[runtime.SessionList](ctx, c, q, "v2", "sessions")
}

// Session returns one session.
func (c *Client) Session(ctx context.Context, id string) (runtime.SessionInfo, error) {
	return SessionAs[runtime.SessionInfo](ctx, c, id)
}

// SessionAs is [Client.Session] for who wants what a hub says of a session besides: T is what it is decoded into.
func SessionAs[T any](ctx context.Context, c *Client, id string) (T, error) {
	return get[T](ctx, c, nil, "v2", "sessions", id)
}

// CloseSession cancels what a session does and lets go of its agent.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, nil, nil, "v2", "sessions", id, "close")
}

// DeleteSession ends a session and deletes its events.
func (c *Client) DeleteSession(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, "v2", "sessions", id)
}

func get[T any](ctx context.Context, c *Client, q url.Values, path ...string) (T, error) {
	var v T
	err := c.do(ctx, http.MethodGet, q, &v, path...)
	return v, err
}

// do sends a request without body and decodes the answer into v unless v is nil.
func (c *Client) do(ctx context.Context, method string, q url.Values, v any, path ...string) error {
	resp, err := c.send(ctx, call{method: method, query: q, accept: "application/json", path: path})
	if err != nil {
		return err
	}
	return decode(resp, v)
}

// decode reads an answer into v, and closes it. For a nil v it is one without content.
func decode(resp *http.Response, v any) error {
	defer resp.Body.Close()
	if v == nil {
		if resp.StatusCode != http.StatusNoContent { // as of a page
			return fmt.Errorf("read answer of %s: %w: it answered %s", resp.Request.URL.Path, acphttp.ErrForeign, resp.Status)
		}
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		if errors.As(err, new(*json.SyntaxError)) { // as of a page; one that broke off is another error
			err = fmt.Errorf("%w: %w", acphttp.ErrForeign, err)
		}
		return fmt.Errorf("read answer of %s: %w", resp.Request.URL.Path, err)
	}
	return nil
}

// call is one request.
type call struct {
	method    string
	path      []string // unescaped
	query     url.Values
	accept    string
	lastEvent string
	body      []byte // JSON; nil for none
	// prepare, if not nil, changes the request before it is sent.
	prepare func(*http.Request)
}

// send returns an answer that is no error. The caller closes its body.
func (c *Client) send(ctx context.Context, r call) (*http.Response, error) {
	u := acphttp.Address(c.base, r.path...)
	u.RawQuery = r.query.Encode()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", r.accept)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if r.lastEvent != "" {
		req.Header.Set("Last-Event-ID", r.lastEvent)
	}
	if r.prepare != nil {
		r.prepare(req)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reach the gateway: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, acphttp.ReadProblem(resp)
	}
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); r.accept == sse.ContentType && mediaType != sse.ContentType { // as of a page
		defer resp.Body.Close()
		return nil, fmt.Errorf("read answer of %s: %w: it is no stream of events", u.Path, acphttp.ErrForeign)
	}
	return resp, nil
}
