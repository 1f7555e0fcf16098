package control

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/internal/frames"
)

// TerminalSubprotocol is what the server selects when a browser offers it beside
// the one that carries its token.
const TerminalSubprotocol = "terminal.sandboxagent.dev"

const (
	terminalPart  = 256 << 10        // the most output between two looks at the log
	terminalFrame = 1 << 20          // the largest frame of a viewer
	terminalPing  = 30 * time.Second // between two pings
)

// The kinds of control frames, which are JSON texts. Output is binary.
const (
	frameReady  = "ready"  // of the server: first
	frameMissed = "missed" // of the server: the viewer was too slow
	frameExit   = "exit"   // of the server: last
	frameError  = "error"  // of the server: a frame of the viewer could not be obeyed
	frameInput  = "input"  // of the viewer; a binary frame is input too
	frameResize = "resize" // of the viewer
	frameSignal = "signal" // of the viewer
)

// TerminalFrame is a control frame of a terminal's WebSocket. Type says which
// of the members it has.
type TerminalFrame struct {
	Type string `json:"type"`

	// Of ready: the position of the first byte that follows, with which a viewer
	// that counts can come back, and the size.
	Position *uint64 `json:"position,omitempty"`
	Cols     int     `json:"cols,omitempty"` // also of resize
	Rows     int     `json:"rows,omitempty"` // also of resize
	// Of ready: the position behind the last byte that some viewer has been shown. A
	// screen does not answer what programs asked before it: another one has.
	Shown *uint64 `json:"shown,omitempty"`

	Bytes uint64 `json:"bytes,omitempty"` // of missed: how many are not shown

	ExitCode *int   `json:"exitCode,omitempty"` // of exit
	Signal   string `json:"signal,omitempty"`   // of exit, and of signal

	Problem *problem.Error `json:"problem,omitempty"` // of error

	Data     string `json:"data,omitempty"`     // of input
	Encoding string `json:"encoding,omitempty"` // of input: utf8, the default, or base64
}

// viewTerminal serves a process's terminal over a WebSocket. Each viewer is a
// position in the log: one that is slow holds up nobody, and is told what it
// missed.
func (s *Server) viewTerminal(r processRequest) error {
	if !isWebSocket(r.Request()) {
		return problem.New(problem.UpgradeRequired, "a terminal is shown over a WebSocket; GET /v2/processes/%s/logs has its output", r.p.ID())
	}
	after, err := uintParam("after", r.QueryParam("after"), 0)
	if err != nil {
		return err
	}
	leave, ok := s.viewing.enter()
	if !ok {
		return errStopping()
	}
	defer leave()
	gone, err := r.p.View()
	if err != nil {
		return err
	}
	defer gone()
	taking := &frames.Hijacker{ResponseWriter: r.Response(), Within: writeTimeout}
	ws, err := websocket.Accept(taking, r.Request(), &websocket.AcceptOptions{
		// Hosts and origins were checked before this handler.
		InsecureSkipVerify: true,
		Subprotocols:       []string{TerminalSubprotocol},
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.log.Debug("websocket handshake", "err", err)
		return nil // answered by Accept
	}
	ws.SetReadLimit(terminalFrame)
	v := &viewer{ws: ws, conn: taking.Conn, p: r.p}
	v.serve(s.stop, after)
	return nil
}

// viewer is one viewer of a terminal. The library does the handshake, reads, and answers pings and closes.
type viewer struct {
	ws    *websocket.Conn
	conn  *frames.Conn
	p     *process.Process
	input typed
}

// serve returns when the viewer has left, the process has ended, or stop is done.
func (v *viewer) serve(stop context.Context, after uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, func() { _ = v.conn.Close() })() // which ends what waits for the viewer
	defer context.AfterFunc(stop, func() { v.conn.Hurry(farewell, time.Now().Add(2*farewell)) })()
	typing, over := context.WithCancel(stop)
	defer over()
	var own sync.WaitGroup
	own.Go(func() {
		defer v.input.end()
		v.read(ctx)
	})
	own.Go(func() {
		v.input.give(typing, func(b []byte) { // also what a viewer has typed that has left
			_, err := v.p.Write(typing, b, false)
			v.refuse(ctx, err)
		})
		if stop.Err() == nil { // else the viewer is told that it stops
			cancel()
		}
	})
	own.Go(func() {
		defer cancel()
		v.ping(ctx)
	})
	code, reason := v.write(ctx, stop, after)
	if code != 0 {
		_ = v.ws.Close(code, reason) // a viewer that does not say goodbye either is cut off
	}
	cancel()
	_ = v.ws.CloseNow()
	defer time.AfterFunc(leftBehind, over).Stop()
	own.Wait()
	v.conn.Wait()
}

// leftBehind is how long what a viewer has typed is still given to the program when the viewer has left.
const leftBehind = 30 * time.Second

// farewell is how long a viewer may stand still while it is told that the gateway stops, for which it has twice that in all.
const farewell = 2 * time.Second

// write shows the output and returns how to close, 0 for a viewer that is gone.
func (v *viewer) write(ctx, stop context.Context, after uint64) (websocket.StatusCode, string) {
	for first := true; ; first = false {
		part := v.p.Output(after, terminalPart)
		if first {
			i, at, shown := v.p.Info(), part.Next, v.p.Shown()
			if len(part.Chunks) > 0 {
				at = part.Chunks[0].Position
			}
			if v.control(TerminalFrame{Type: frameReady, Position: &at, Cols: i.Cols, Rows: i.Rows, Shown: &shown}) != nil {
				return 0, ""
			}
		}
		if part.Missed > 0 && v.control(TerminalFrame{Type: frameMissed, Bytes: part.Missed}) != nil {
			return 0, ""
		}
		for _, c := range part.Chunks {
			seen, undo := v.p.Show(c.End()) // first: who has it and comes back is told so
			if v.send(frames.Binary, c.Data) != nil {
				undo()
				return 0, ""
			}
			seen()
		}
		after = part.Next
		if part.Ended {
			i := v.p.Info()
			if v.control(TerminalFrame{Type: frameExit, ExitCode: i.ExitCode, Signal: i.Signal}) != nil {
				return 0, ""
			}
			return websocket.StatusNormalClosure, "the process has ended"
		}
		select {
		case <-part.More:
			if stop.Err() != nil {
				return websocket.StatusGoingAway, "the gateway is shutting down"
			}
		case <-stop.Done():
			return websocket.StatusGoingAway, "the gateway is shutting down"
		case <-ctx.Done():
			return 0, ""
		}
	}
}

func (v *viewer) send(kind byte, b []byte) error {
	frame := frames.AppendHeader(make([]byte, 0, len(b)+10), kind, len(b))
	return v.conn.Send(nil, append(frame, b...))
}

func (v *viewer) control(f TerminalFrame) error {
	b, err := schema.Encode(f)
	if err != nil {
		return err
	}
	return v.send(frames.Text, b)
}

// ping ends the connection of a viewer that is not there any more.
func (v *viewer) ping(ctx context.Context) {
	tick := time.NewTicker(terminalPing)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !v.conn.Ping() {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// read obeys the viewer's frames until it leaves. One that cannot be obeyed is
// answered.
func (v *viewer) read(ctx context.Context) {
	for {
		kind, b, err := v.ws.Read(ctx)
		if err != nil {
			return
		}
		f := TerminalFrame{Type: frameInput}
		if kind == websocket.MessageText {
			f, b, err = parseFrame(b)
		}
		if err == nil {
			err = v.obey(ctx, f, b)
		}
		v.refuse(ctx, err)
	}
}

// refuse tells the viewer why a frame could not be obeyed, unless err is nil.
func (v *viewer) refuse(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		_ = v.control(TerminalFrame{Type: frameError, Problem: problem.From(processProblem(err))}) // a dead socket shows at the next read
	}
}

// parseFrame reads a control frame of a viewer; input is what it has for the
// program.
func parseFrame(b []byte) (f TerminalFrame, input []byte, err error) {
	if err := json.Unmarshal(b, &f); err != nil {
		return f, nil, problem.Wrap(problem.InvalidRequest, problem.InJSON(err), "a text frame must be a JSON object with a type; input may be a binary frame")
	}
	switch f.Type {
	case frameInput:
		switch f.Encoding {
		case "", plainText:
			input = []byte(f.Data)
		case inBase64:
			if input, err = base64.StdEncoding.DecodeString(f.Data); err != nil {
				return f, nil, problem.Wrap(problem.InvalidRequest, err, "data is not the base64 that encoding says")
			}
		default:
			return f, nil, problem.New(problem.InvalidRequest, "encoding must be %s or %s, not %q", plainText, inBase64, f.Encoding)
		}
	case frameResize, frameSignal:
	default:
		return f, nil, problem.New(problem.InvalidRequest, "there is no frame of type %q: use %s, %s or %s", f.Type, frameInput, frameResize, frameSignal)
	}
	return f, input, nil
}

// inOrder is how long a signal or a size waits for the input before it. A program that reads has it by then, or the
// terminal has.
const inOrder = 200 * time.Millisecond

func (v *viewer) obey(ctx context.Context, f TerminalFrame, input []byte) error {
	switch f.Type {
	case frameResize:
		v.input.taken(ctx, inOrder)
		return v.p.Resize(f.Cols, f.Rows)
	case frameSignal:
		v.input.taken(ctx, inOrder)
		return v.p.Interrupt(f.Signal)
	}
	v.input.add(ctx, input)
	return nil
}
