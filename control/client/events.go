package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// maxEvent bounds one event of a stream.
const maxEvent = 256 << 20

// EventPage is one page of a session's events.
type EventPage struct {
	Events  []runtime.Event `json:"events"`
	HasMore bool            `json:"hasMore"`
}

// Events returns the events of a session that follow after, at most limit of
// them; 0 leaves the number to the server.
func (c *Client) Events(ctx context.Context, id string, after uint64, limit int) (EventPage, error) {
	return c.events(ctx, id, 1, after, limit)
}

// RaisedEvents returns the same in version 2 of ACP: what clients of it are told. Several
// may have one number, and are on one page then.
func (c *Client) RaisedEvents(ctx context.Context, id string, after uint64, limit int) (EventPage, error) {
	return c.events(ctx, id, 2, after, limit)
}

// CleanEvents returns the same as Events without what looks like a key, the session's own
// credentials, and the values of variables that are called keys: for who gives it away.
func (c *Client) CleanEvents(ctx context.Context, id string, after uint64, limit int) (EventPage, error) {
	return c.events(ctx, id, 1, after, limit, "clean")
}

func (c *Client) events(ctx context.Context, id string, version int, after uint64, limit int, flags ...string) (EventPage, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	for _, name := range flags {
		q.Set(name, "true")
	}
	if version != 1 {
		q.Set("acp", strconv.Itoa(version))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return get[EventPage](ctx, c, q, "v2", "sessions", id, "events")
}

// TranscriptOptions say what a transcript is like.
type TranscriptOptions struct {
	Format      transcript.Format // "" is Markdown
	Redact      []string          // regular expressions of what is taken out, beside what looks like a key
	Thoughts    bool              // keep what the agent thought
	KeepSecrets bool              // leave in what looks like a key
}

// Transcript returns what was said and done in a session, for people to read. The
// caller closes it.
func (c *Client) Transcript(ctx context.Context, id string, o TranscriptOptions) (io.ReadCloser, error) {
	q := url.Values{"redact": o.Redact, "thoughts": {strconv.FormatBool(o.Thoughts)}, "keepSecrets": {strconv.FormatBool(o.KeepSecrets)}}
	if o.Format != "" {
		q.Set("format", string(o.Format))
	}
	resp, err := c.send(ctx, call{method: http.MethodGet, path: []string{"v2", "sessions", id, "transcript"}, query: q, accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Raw returns what was recorded of what a session's agent and the gateway said to each other, in
// the agent's own language: a JSON object on each line. The caller closes it.
func (c *Client) Raw(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: []string{"v2", "sessions", id, "raw"}, accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// FollowEvents yields the events of a session that follow after, and then those
// that come. It ends without an error when the server ends the stream; a pair
// with an error is the last. ready, if not nil, is called when there is a stream.
func (c *Client) FollowEvents(ctx context.Context, id string, after uint64, ready func()) iter.Seq2[runtime.Event, error] {
	return follow[runtime.Event](ctx, c, call{
		method: "GET", path: []string{"v2", "sessions", id, "events"}, accept: sse.ContentType, lastEvent: strconv.FormatUint(after, 10),
	}, ready)
}

// FollowSessions yields how the list of sessions changes after a position, which is that
// of a change or of a list, and then all changes that come; after 0, and after a position
// that is too old, all sessions first. It ends like FollowEvents.
func (c *Client) FollowSessions(ctx context.Context, after uint64, ready func()) iter.Seq2[runtime.SessionChange, error] {
	return FollowSessionsAs[runtime.SessionChange](ctx, c, after, ready)
}

// FollowSessionsAs is FollowSessions for who wants changes as they are sent, or what a hub says of sessions besides: T
// is what a change is decoded into.
func FollowSessionsAs[T any](ctx context.Context, c *Client, after uint64, ready func()) iter.Seq2[T, error] {
	return follow[T](ctx, c, call{
		method: "GET", path: []string{"v2", "sessions", "changes"}, accept: sse.ContentType, lastEvent: strconv.FormatUint(after, 10),
	}, ready)
}

// follow yields the messages of an event stream.
func follow[T any](ctx context.Context, c *Client, from call, ready func()) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := read(ctx, c, from, ready, yield); err != nil {
			var none T
			yield(none, err)
		}
	}
}

// read returns nil when the stream ended or yield wants no more.
func read[T any](ctx context.Context, c *Client, from call, ready func(), yield func(T, error) bool) error {
	resp, err := c.send(ctx, from)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if ready != nil {
		ready()
	}
	dec := sse.NewDecoder(resp.Body, maxEvent)
	for {
		ev, err := dec.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		switch ev.Type {
		case "message":
			var e T
			if err := json.Unmarshal(ev.Data, &e); err != nil {
				return fmt.Errorf("read event %s: %w", ev.ID, err)
			}
			if !yield(e, nil) {
				return nil
			}
		case "error":
			if p := acphttp.DecodeProblem(ev.Data); p != nil {
				return p
			}
			return fmt.Errorf("read events: the server ended the stream: %s", ev.Data)
		}
	}
}
