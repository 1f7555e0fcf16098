// Package client is the Go client of a hub's own HTTP API: its nodes, sessions and tokens. What
// a node serves is used with the gateway's client, at [Client.NodeEndpoint].
//
// An answer that is an error is returned as a *problem.Error somewhere in the error's
// chain; every other error means that the hub was not reached, or did not speak the
// API.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// maxAnswer bounds an answer that is read into memory, in bytes.
const maxAnswer = 64 << 20

// Client talks to one hub. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
	feed  *client.Client // of what a hub has as gateways have it
}

// New returns a client of the hub at endpoint, an http or https address.
func New(endpoint string, o client.Options) (*Client, error) {
	feed, err := client.New(endpoint, o)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse endpoint: %w", err)
	}
	u.RawQuery, u.Fragment = "", ""
	if o.HTTP == nil {
		o.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Client{base: u, token: o.Token, http: o.HTTP, feed: feed}, nil
}

// ErrGateway is in the chain of errors of a server that is no hub, but a gateway.
var ErrGateway = errors.New("this is a gateway, and no hub")

// gateway reports whether it is a gateway that is asked, and no hub.
func (c *Client) gateway(ctx context.Context) bool {
	var health struct{ Status, Role string }
	err := c.ask(ctx, http.MethodGet, acphttp.Address(c.base, "v2", "health"), nil, nil, &health)
	return err == nil && health.Status != "" && health.Role != "hub"
}

// NodeEndpoint returns the address at which clients of a gateway find a node.
func (c *Client) NodeEndpoint(name string) string {
	return acphttp.Address(c.base, "nodes", name).String()
}

// Ready returns how the hub is, and a problem when it takes no work.
func (c *Client) Ready(ctx context.Context) (string, error) {
	if c.gateway(ctx) {
		return "", ErrGateway
	}
	var body struct{ Status string }
	err := c.do(ctx, http.MethodGet, acphttp.Address(c.base, "v2", "ready"), nil, nil, &body)
	return body.Status, err
}

// Nodes returns the nodes that the token is for, those with all labels, written as
// name=value.
func (c *Client) Nodes(ctx context.Context, labels ...string) ([]fleet.Node, error) {
	var body struct{ Nodes []fleet.Node }
	q := url.Values{"label": labels}
	err := c.do(ctx, http.MethodGet, acphttp.Address(c.base, "v2", "nodes"), q, nil, &body)
	return body.Nodes, err
}

// RemoveNode has the hub forget a node that is not online.
func (c *Client) RemoveNode(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, acphttp.Address(c.base, "v2", "nodes", name), nil, nil, nil)
}

// Tokens returns all tokens without their texts.
func (c *Client) Tokens(ctx context.Context) ([]store.Token, error) {
	var body struct{ Tokens []store.Token }
	err := c.do(ctx, http.MethodGet, acphttp.Address(c.base, "v2", "tokens"), nil, nil, &body)
	return body.Tokens, err
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, n fleet.NewToken) (fleet.CreatedToken, error) {
	var t fleet.CreatedToken
	err := c.do(ctx, http.MethodPost, acphttp.Address(c.base, "v2", "tokens"), nil, n, &t)
	return t, err
}

// RevokeToken makes a token worth nothing.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, acphttp.Address(c.base, "v2", "tokens", id), nil, nil, nil)
}

// do is ask for what only a hub answers.
func (c *Client) do(ctx context.Context, method string, u *url.URL, q url.Values, body, v any) error {
	err := c.ask(ctx, method, u, q, body, v)
	if _, refused := errors.AsType[*problem.Error](err); refused && c.gateway(ctx) {
		return ErrGateway
	}
	return err
}

// ask sends body, if any, as JSON and decodes the answer into v, if not nil; an io.Writer gets it
// as it is.
func (c *Client) ask(ctx context.Context, method string, u *url.URL, q url.Values, body, v any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		sent = bytes.NewReader(b)
	}
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), sent)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	to, whole := v.(io.Writer)
	if whole {
		req.Header.Set("Accept", "*/*")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("reach the hub: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return acphttp.ReadProblem(resp)
	}
	if v == nil {
		if resp.StatusCode != http.StatusNoContent { // as of a page
			return fmt.Errorf("read answer of %s: %w: it answered %s", u.Path, acphttp.ErrForeign, resp.Status)
		}
		return nil
	}
	if whole {
		if _, err := io.Copy(to, resp.Body); err != nil {
			return fmt.Errorf("read answer of %s: %w", u.Path, err)
		}
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		if errors.As(err, new(*json.SyntaxError)) { // as of a page; one that broke off is another error
			err = fmt.Errorf("%w: %w", acphttp.ErrForeign, err)
		}
		return fmt.Errorf("read answer of %s: %w", u.Path, err)
	}
	return nil
}
