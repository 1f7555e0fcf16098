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
	"time"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/process"
)

// ProcessStart says what to start.
type ProcessStart struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	SessionID string            `json:"sessionId,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	TTY       bool              `json:"tty,omitempty"`
	Cols      int               `json:"cols,omitempty"`
	Rows      int               `json:"rows,omitempty"`
}

// ProcessRun says what to run to its end. Limits that are 0 are the server's.
type ProcessRun struct {
	Command        string            `json:"command"`
	Args           []string          `json:"args,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	SessionID      string            `json:"sessionId,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Stdin          []byte            `json:"stdin,omitempty"`
	TimeoutMs      int64             `json:"timeoutMs,omitempty"`
	MaxOutputBytes int64             `json:"maxOutputBytes,omitempty"`
	Combined       bool              `json:"combined,omitempty"`
}

// ProcessOutput is the beginning of what a run wrote.
type ProcessOutput struct {
	Data      []byte `json:"data"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated"`
}

// ProcessResult is how a run ended.
type ProcessResult struct {
	ExitCode   *int           `json:"exitCode,omitempty"` // nil when a signal ended it
	Signal     string         `json:"signal,omitempty"`
	TimedOut   bool           `json:"timedOut"`
	DurationMs int64          `json:"durationMs"`
	Stdout     ProcessOutput  `json:"stdout"`
	Stderr     ProcessOutput  `json:"stderr"`
	Combined   *ProcessOutput `json:"combined,omitempty"`
}

// Run runs a program to its end. When ctx ends, the program is killed.
func (c *Client) Run(ctx context.Context, r ProcessRun) (result ProcessResult, err error) {
	body := struct {
		ProcessRun
		Encoding string `json:"encoding"`
	}{r, "base64"}
	return result, c.doJSON(ctx, http.MethodPost, nil, body, &result, "v2", "processes", "run")
}

// Start starts a program in the background.
func (c *Client) Start(ctx context.Context, s ProcessStart) (info process.Info, err error) {
	return info, c.doJSON(ctx, http.MethodPost, nil, s, &info, "v2", "processes")
}

// Processes returns the processes.
func (c *Client) Processes(ctx context.Context) ([]process.Info, error) {
	body, err := get[struct {
		Processes []process.Info `json:"processes"`
	}](ctx, c, nil, "v2", "processes")
	return body.Processes, err
}

// Process returns one process.
func (c *Client) Process(ctx context.Context, id string) (process.Info, error) {
	return get[process.Info](ctx, c, nil, "v2", "processes", id)
}

// ProcessLimits returns the limits of processes.
func (c *Client) ProcessLimits(ctx context.Context) (process.Limits, error) {
	return get[process.Limits](ctx, c, nil, "v2", "processes", "config")
}

// SetProcessLimits replaces the limits and returns them.
func (c *Client) SetProcessLimits(ctx context.Context, l process.Limits) (now process.Limits, err error) {
	return now, c.doJSON(ctx, http.MethodPut, nil, l, &now, "v2", "processes", "config")
}

// ChangeProcessLimits changes the limits that are named and returns all.
func (c *Client) ChangeProcessLimits(ctx context.Context, change map[string]int64) (now process.Limits, err error) {
	return now, c.doJSON(ctx, http.MethodPut, nil, change, &now, "v2", "processes", "config")
}

// WriteProcess gives a process input and, with end, ends it.
func (c *Client) WriteProcess(ctx context.Context, id string, b []byte, end bool) error {
	resp, err := c.send(ctx, call{
		method: http.MethodPost, path: []string{"v2", "processes", id, "stdin"}, accept: "application/json",
		query: url.Values{"close": {strconv.FormatBool(end)}}, body: b,
		prepare: func(r *http.Request) { r.Header.Set("Content-Type", "application/octet-stream") },
	})
	if err != nil {
		return err
	}
	var answer struct{ Written int64 }
	return decode(resp, &answer)
}

// SignalProcess sends a signal, by its name, to a process and its group.
func (c *Client) SignalProcess(ctx context.Context, id, signal string) error {
	return c.doJSON(ctx, http.MethodPost, nil, map[string]string{"signal": signal}, nil, "v2", "processes", id, "signal")
}

// StopProcess ends a process and all that it started; less than 0 leaves it to
// the server how long the process has for it.
func (c *Client) StopProcess(ctx context.Context, id string, patience time.Duration) (info process.Info, err error) {
	q := url.Values{}
	if patience >= 0 {
		q.Set("patienceMs", strconv.FormatInt(patience.Milliseconds(), 10))
	}
	return info, c.do(ctx, http.MethodPost, q, &info, "v2", "processes", id, "stop")
}

// DeleteProcess ends a process, if it runs, and forgets it.
func (c *Client) DeleteProcess(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, "v2", "processes", id)
}

// LogOptions say which part of a log is wanted. At most one of After, Tail and
// Since is given.
type LogOptions struct {
	Stream string // stdout, stderr or pty; "" is all
	After  uint64 // a position
	Tail   int    // lines; 0 is not given
	Since  time.Time
}

func (o LogOptions) query() url.Values {
	q := url.Values{}
	if o.Stream != "" {
		q.Set("stream", o.Stream)
	}
	if o.After > 0 {
		q.Set("after", strconv.FormatUint(o.After, 10))
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	return q
}

// LogChunk is a piece of output.
type LogChunk struct {
	Position uint64         `json:"position"`
	Time     time.Time      `json:"time"`
	Stream   process.Stream `json:"stream"`
	Data     []byte         `json:"data"`
}

// LogPage is a part of a log.
type LogPage struct {
	Chunks  []LogChunk `json:"chunks"`
	Missed  uint64     `json:"missed"`
	Next    uint64     `json:"next"`
	HasMore bool       `json:"hasMore"`
	Ended   bool       `json:"ended"`
}

// ProcessLog returns a page of a process's output.
func (c *Client) ProcessLog(ctx context.Context, id string, o LogOptions) (LogPage, error) {
	return get[LogPage](ctx, c, o.query(), "v2", "processes", id, "logs")
}

// LogEvent is one of a chunk, bytes that were missed, and the exit, which is
// the last.
type LogEvent struct {
	Chunk  *LogChunk
	Missed uint64
	Exit   *process.Info
}

// FollowProcess yields a process's output as it comes, and then its exit. It
// ends without one when the server ends the stream; a pair with an error is the
// last. ready, if not nil, is called when there is a stream.
func (c *Client) FollowProcess(ctx context.Context, id string, o LogOptions, ready func()) iter.Seq2[LogEvent, error] {
	return func(yield func(LogEvent, error) bool) {
		if err := c.followProcess(ctx, id, o, ready, yield); err != nil {
			yield(LogEvent{}, err)
		}
	}
}

func (c *Client) followProcess(ctx context.Context, id string, o LogOptions, ready func(), yield func(LogEvent, error) bool) error {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: []string{"v2", "processes", id, "logs"}, query: o.query(), accept: sse.ContentType})
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
			return fmt.Errorf("read output: %w", err)
		}
		var e LogEvent
		switch ev.Type {
		case "message":
			e.Chunk = new(LogChunk)
			err = json.Unmarshal(ev.Data, e.Chunk)
		case "missed":
			var m struct {
				Bytes uint64 `json:"bytes"`
			}
			err = json.Unmarshal(ev.Data, &m)
			e.Missed = m.Bytes
		case "exit":
			e.Exit = new(process.Info)
			err = json.Unmarshal(ev.Data, e.Exit)
		case "error":
			if p := acphttp.DecodeProblem(ev.Data); p != nil {
				return p
			}
			return fmt.Errorf("read output: the server ended the stream: %s", ev.Data)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("read output: %w", err)
		}
		if !yield(e, nil) {
			return nil
		}
	}
}

// doJSON sends a body of JSON and decodes the answer into v unless v is nil.
func (c *Client) doJSON(ctx context.Context, method string, q url.Values, body, v any, path ...string) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := c.send(ctx, call{method: method, path: path, query: q, accept: "application/json", body: b})
	if err != nil {
		return err
	}
	return decode(resp, v)
}
