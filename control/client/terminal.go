package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/frames"
)

// terminalFrame bounds a message of a terminal.
const terminalFrame = 8 << 20

// Terminal is a view of a process's terminal. One goroutine may call Read while
// others call the other methods.
type Terminal struct {
	ws        *websocket.Conn
	frames    *frames.Client
	transport *http.Transport
}

// TerminalEvent is what happens at a terminal.
type TerminalEvent struct {
	// Type is output, or one of the server's control frames: ready, missed, exit
	// or error.
	Type     string         `json:"type"`
	Output   []byte         `json:"-"`
	Position uint64         `json:"position"`
	Cols     int            `json:"cols"`
	Rows     int            `json:"rows"`
	Shown    uint64         `json:"shown"` // of ready: what some viewer has been shown ends here
	Missed   uint64         `json:"bytes"`
	ExitCode *int           `json:"exitCode"`
	Signal   string         `json:"signal"`
	Problem  *problem.Error `json:"-"`
}

// Terminal opens a view of a process's terminal, from a position of its output
// on. ctx bounds the opening only.
func (c *Client) Terminal(ctx context.Context, id string, after uint64) (*Terminal, error) {
	u := acphttp.Address(c.base, "v2", "processes", id, "terminal")
	u.RawQuery = url.Values{"after": {strconv.FormatUint(after, 10)}}.Encode()
	h := http.Header{}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // an HTTP/2 connection cannot become a WebSocket
	transport := transport
	if own, ok := c.http.Transport.(*http.Transport); ok && own != nil {
		transport = own
	}
	transport = transport.Clone()
	transport.Protocols = protocols
	own := &frames.Client{}
	ws, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport: upgrades{transport},
			// A redirect would carry the token to where it does not belong.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader:      h,
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  own.Answers,
	})
	if err != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("reach the gateway: %w", err)
	}
	ws.SetReadLimit(terminalFrame)
	return &Terminal{ws, own, transport}, nil
}

// upgrades makes every answer but 101 an error that says what the server said.
type upgrades struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t upgrades) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, acphttp.ReadProblem(resp)
}

// Read returns what happens next. It returns io.EOF when the server has ended
// the view in good order. A context that ends during it ends the view.
func (t *Terminal) Read(ctx context.Context) (TerminalEvent, error) {
	kind, b, err := t.ws.Read(ctx)
	if err != nil {
		switch websocket.CloseStatus(err) {
		case websocket.StatusNormalClosure, websocket.StatusGoingAway:
			return TerminalEvent{}, io.EOF
		}
		return TerminalEvent{}, fmt.Errorf("read the terminal: %w", err)
	}
	if kind == websocket.MessageBinary {
		return TerminalEvent{Type: "output", Output: b}, nil
	}
	var f struct {
		TerminalEvent
		Problem json.RawMessage `json:"problem"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return TerminalEvent{}, fmt.Errorf("read the terminal: %w", err)
	}
	if len(f.Problem) > 0 {
		f.TerminalEvent.Problem = acphttp.DecodeProblem(f.Problem)
	}
	return f.TerminalEvent, nil
}

// Input gives the program input.
func (t *Terminal) Input(ctx context.Context, b []byte) error {
	defer t.frames.Sending()()
	return t.ws.Write(ctx, websocket.MessageBinary, b)
}

// Resize sets the terminal's size.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	return t.send(ctx, map[string]any{"type": "resize", "cols": cols, "rows": rows})
}

// Signal sends a signal to what is in the foreground.
func (t *Terminal) Signal(ctx context.Context, name string) error {
	return t.send(ctx, map[string]any{"type": "signal", "signal": name})
}

func (t *Terminal) send(ctx context.Context, frame map[string]any) error {
	b, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	defer t.frames.Sending()()
	return t.ws.Write(ctx, websocket.MessageText, b)
}

// Close ends the view. The process goes on.
func (t *Terminal) Close() error {
	err := t.ws.Close(websocket.StatusNormalClosure, "")
	t.transport.CloseIdleConnections()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || websocket.CloseStatus(err) != -1 {
		return nil // the server was first
	}
	return err
}
