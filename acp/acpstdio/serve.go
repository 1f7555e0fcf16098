package acpstdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

const (
	standardMaxLine = 32 << 20
	pollBytes       = 256 << 10 // of events in one write, about
)

// Options configure Serve.
type Options struct {
	Agent   string       // of connections that name none; "" is the gateway's default
	MaxLine int          // of one message; 0 is 32 MiB
	Logger  *slog.Logger // nil discards
}

// Serve serves one connection of gw until in ends, ctx ends, or the gateway ends
// the connection. An input that ended is no error. When it returns because of
// something else, one Read of in may go on, and one Write to out that nobody reads any more: the caller closes them, or the process
// ends.
func Serve(ctx context.Context, gw acp.Gateway, in io.Reader, out io.Writer, o Options) error {
	if o.MaxLine == 0 {
		o.MaxLine = standardMaxLine
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	to := &moving{Writer: out}
	s := &server{gw: gw, o: o, lines: ndjson.NewLines(in, o.MaxLine), out: bufio.NewWriterSize(to, 64<<10), client: make(chan acp.Client, 1)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.read(ctx)) }()
	var client acp.Client
	select {
	case <-ctx.Done():
		select {
		case client = <-s.client: // the input ended right behind its first message
		default:
			return ended(ctx)
		}
	case client = <-s.client:
	}
	defer client.Close()
	if err := unlessStuck(ctx, to, func() error { return s.write(ctx, client) }); err != nil {
		return err
	}
	return ended(ctx)
}

// lastWrite is how long an output that takes nothing holds up the end of the connection.
const lastWrite = 3 * time.Second

// onePiece is how much an output is given at a time, so that it is seen when somebody reads a large message slowly.
const onePiece = 32 << 10

// moving counts what an output takes.
type moving struct {
	io.Writer
	taken atomic.Int64
}

// Write implements io.Writer.
func (m *moving) Write(p []byte) (int, error) {
	for n := 0; ; {
		k, err := m.Writer.Write(p[n:min(n+onePiece, len(p))])
		n += k
		m.taken.Add(int64(k))
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// unlessStuck returns what write does, which ends with ctx. Where nobody reads what it writes then, it is left behind.
func unlessStuck(ctx context.Context, to *moving, write func() error) error {
	done := make(chan error, 1)
	go func() { done <- write() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	for before := int64(-1); ; {
		now := to.taken.Load()
		if now == before {
			return ended(ctx)
		}
		before = now
		select {
		case err := <-done:
			return err
		case <-time.After(lastWrite):
		}
	}
}

// errInput ends the context when the input has ended.
var errInput = errors.New("the input ended")

func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errInput) {
		return err
	}
	return nil
}

// server is one connection.
type server struct {
	gw     acp.Gateway
	o      Options
	lines  *ndjson.Lines
	client chan acp.Client // given when there is one
	stream acp.Stream      // of it; before anything is asked, whose answer would not wait for what comes before it

	mu  sync.Mutex // of out
	out *bufio.Writer
}

// read takes messages until the input ends, and says why it ended.
func (s *server) read(ctx context.Context) error {
	var client acp.Client
	for {
		line, err := s.lines.Next()
		if long, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			s.refuse(client, acp.Refusal(tooLong(long)))
			continue
		}
		if errors.Is(err, io.EOF) {
			return errInput
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
		if len(line) == 0 {
			continue
		}
		m, err := acp.Parse(line)
		if err != nil {
			s.refuse(client, acp.Refusal(err))
			continue
		}
		switch {
		case client != nil:
			_ = client.Send(ctx, m) // its errors are responses on the stream
		case m.Method() == acp.MethodInitialize && m.IsRequest():
			if client = s.connect(ctx, m); client != nil {
				s.client <- client
			}
		case m.IsRequest():
			s.refuse(nil, acp.NotInitialized(m.ID()))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func tooLong(err *ndjson.TooLongError) error {
	return fmt.Errorf("a message is longer than %d bytes: %w", err.Limit, err)
}

// connect opens the connection; nil when the gateway refused, which the editor
// was told. It may ask again.
func (s *server) connect(ctx context.Context, initialize acp.Message) acp.Client {
	client, reply, err := s.gw.Connect(ctx, initialize, acp.ConnectOptions{
		ID: uuid.NewString(), Shape: acp.OneStream, Agent: s.o.Agent,
		Notify: s.say,
	})
	if refused, ok := errors.AsType[*acp.Error](err); ok {
		s.refuse(nil, version.Refusal(&initialize, refused))
		return nil
	}
	if err != nil {
		p := problem.From(err)
		s.refuse(nil, acp.NewError(initialize.ID(), acp.Errorf(acp.CodeInternal, "%s", p.Error()).WithData(p)))
		return nil
	}
	if s.stream, err = client.Stream("", nil); err != nil {
		client.Close()
		s.refuse(nil, acp.NewError(initialize.ID(), acp.Errorf(acp.CodeInternal, "open the stream of events: %v", err)))
		return nil
	}
	s.say(reply.Frame)
	return client
}

// refuse answers with an error: on the connection's stream, where it keeps its
// place, once there is one.
func (s *server) refuse(client acp.Client, m acp.Message) {
	if client != nil {
		client.Deliver(m)
		return
	}
	s.say(m.Frame())
}

// say writes one message now. An output that is gone shows at the next events.
func (s *server) say(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(frame)
	_ = s.out.Flush()
}

func (s *server) put(frame []byte) {
	_, _ = s.out.Write(frame) // a failure stays, and Flush tells of it
	_ = s.out.WriteByte('\n')
}

// write writes events until the connection ends. What was there when the input
// ended is written.
func (s *server) write(ctx context.Context, client acp.Client) error {
	st := s.stream
	defer st.Close()
	for {
		select {
		case <-st.Wake():
			if err := s.pass(st); err != nil {
				return err
			}
		case <-ctx.Done():
			return s.pass(st)
		case <-client.Done():
			return s.pass(st)
		}
	}
}

// pass writes what is ready.
func (s *server) pass(st acp.Stream) error {
	for {
		events, err := st.Poll(pollBytes)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if len(events) == 0 {
			st.Written()
			return nil
		}
		s.mu.Lock()
		for _, e := range events {
			s.put(e.Frame)
		}
		err = s.out.Flush()
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("write to the output: %w", err)
		}
		st.Written()
	}
}
