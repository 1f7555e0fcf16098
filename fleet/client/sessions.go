package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet"
)

// SessionFilter selects sessions. Zero fields select all.
type SessionFilter struct {
	Node, Agent, Cwd string
	Labels           []string // of the node, written as name=value
	States           []string
	Query            string // words in the title or in messages, whatever their case
	Cursor           string // as returned with the page before
	Limit            int    // 0 leaves it to the hub
}

// Sessions returns a page of the sessions of the nodes that the token is for.
func (c *Client) Sessions(ctx context.Context, f SessionFilter) (fleet.SessionList, error) {
	q := url.Values{"label": f.Labels, "state": f.States}
	for name, v := range map[string]string{"node": f.Node, "agent": f.Agent, "cwd": f.Cwd, "q": f.Query, "cursor": f.Cursor} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var list fleet.SessionList
	err := c.do(ctx, http.MethodGet, acphttp.Address(c.base, "v2", "sessions"), q, nil, &list)
	return list, err
}

// FollowSessions yields how the list of sessions changes after a position, which is that of a change or of a list,
// and then all changes that come; after 0, and after a position that the hub does not know, all sessions first. It ends without an
// error when the hub ends the stream; a pair with an error is the last. ready, if not nil, is called when there is a
// stream.
func (c *Client) FollowSessions(ctx context.Context, after uint64, ready func()) iter.Seq2[fleet.SessionChange, error] {
	return client.FollowSessionsAs[fleet.SessionChange](ctx, c.feed, after, ready)
}

// SessionID names a session. Node and Epoch are needed where several have the id.
type SessionID struct {
	ID    string
	Node  string
	Epoch uint64 // 0 for the newest
}

func (id SessionID) at(c *Client, path ...string) (*url.URL, url.Values) {
	q := url.Values{}
	if id.Node != "" {
		q.Set("node", id.Node)
	}
	if id.Epoch > 0 {
		q.Set("epoch", strconv.FormatUint(id.Epoch, 10))
	}
	return acphttp.Address(c.base, append([]string{"v2", "sessions", id.ID}, path...)...), q
}

// Session returns one session.
func (c *Client) Session(ctx context.Context, id SessionID) (fleet.Session, error) {
	var s fleet.Session
	u, q := id.at(c)
	err := c.do(ctx, http.MethodGet, u, q, nil, &s)
	return s, err
}

// Events returns the events that the hub has of a session behind after, at most limit of them;
// 0 leaves the number to the hub.
func (c *Client) Events(ctx context.Context, id SessionID, after uint64, limit int) (client.EventPage, error) {
	u, q := id.at(c, "events")
	q.Set("after", strconv.FormatUint(after, 10))
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var page client.EventPage
	err := c.do(ctx, http.MethodGet, u, q, nil, &page)
	return page, err
}

// Transcript writes what the hub has of a session, for people to read.
func (c *Client) Transcript(ctx context.Context, id SessionID, o client.TranscriptOptions, to io.Writer) error {
	u, q := id.at(c, "transcript")
	q["redact"] = o.Redact
	q.Set("thoughts", strconv.FormatBool(o.Thoughts))
	q.Set("keepSecrets", strconv.FormatBool(o.KeepSecrets))
	if o.Format != "" {
		q.Set("format", string(o.Format))
	}
	return c.do(ctx, http.MethodGet, u, q, nil, to)
}

// MoveSession moves a session to another node, where it goes on. It returns when it is there.
func (c *Client) MoveSession(ctx context.Context, id SessionID, to fleet.MoveRequest) (fleet.Moved, error) {
	var m fleet.Moved
	u, q := id.at(c, "move")
	err := c.do(ctx, http.MethodPost, u, q, to, &m)
	return m, err
}

// ExportSession writes a session, or what the hub has of it while its node is away, for ImportSession of
// a gateway's client. What was written with an error is not whole.
func (c *Client) ExportSession(ctx context.Context, id SessionID, to io.Writer) error {
	u, q := id.at(c, "export")
	return c.do(ctx, http.MethodGet, u, q, nil, to)
}

// RemoveSession removes what the hub has of a session whose node has it no more, or is not
// connected.
func (c *Client) RemoveSession(ctx context.Context, id SessionID) error {
	u, q := id.at(c)
	q.Set("copy", "true")
	return c.do(ctx, http.MethodDelete, u, q, nil, nil)
}
