package acpstdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// Relay carries messages between the streams and conn until in ends, ctx ends, or
// conn does; it closes conn. The answer to initialize is carried also when in has ended
// meanwhile; conn ends by itself when that is an error, and says why. As with [Serve], one Read of in and one Write to out may outlive it.
func Relay(ctx context.Context, conn acp.Conn, in io.Reader, out io.Writer, o Options) error {
	if o.MaxLine == 0 {
		o.MaxLine = standardMaxLine
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &relay{conn: conn, lines: ndjson.NewLines(in, o.MaxLine), own: make(chan acp.Message), greeted: make(chan struct{})}
	go func() { cancel(r.read(ctx)) }()
	received := make(chan acp.Message)
	reader := make(chan error, 1)
	go func() {
		for {
			m, err := conn.Read(ctx)
			if err != nil {
				reader <- err
				return
			}
			select {
			case received <- m.Clone():
			case <-ctx.Done():
				reader <- ctx.Err()
				return
			}
		}
	}()
	to := &moving{Writer: out}
	err := unlessStuck(ctx, to, func() error {
		w := bufio.NewWriterSize(to, 64<<10)
		for {
			var m acp.Message
			select {
			case m = <-received:
			case m = <-r.own:
			case err := <-reader:
				reader <- err // for below
				return err
			case <-ctx.Done():
				return ended(ctx)
			}
			_, _ = w.Write(m.Frame())
			_ = w.WriteByte('\n')
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write to the output: %w", err)
			}
			if hello := r.hello.Load(); hello != nil && m.IsResponse() && m.ID() == *hello {
				r.hello.Store(nil)
				if m.ErrorRaw() == nil { // else conn says why it ends
					close(r.greeted)
				}
			}
		}
	})
	cancel(err)
	_ = conn.Close()
	<-reader
	return err
}

// relay is the way from the input to the connection.
type relay struct {
	conn  acp.Conn
	lines *ndjson.Lines
	own   chan acp.Message // errors about lines

	hello   atomic.Pointer[acp.ID] // of the first initialize, until it is answered
	greeted chan struct{}          // closed when it is, by no error
}

func (r *relay) read(ctx context.Context) error {
	greeting := false // initialize was sent
	for {
		line, err := r.lines.Next()
		var m acp.Message
		if long, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			err = tooLong(long)
		} else if errors.Is(err, io.EOF) {
			if greeting {
				select {
				case <-r.greeted:
				case <-ctx.Done():
				}
			}
			return errInput
		} else if err != nil {
			return fmt.Errorf("read the input: %w", err)
		} else if len(line) == 0 {
			continue
		} else {
			m, err = acp.Parse(line)
		}
		refusal := acp.Refusal
		if err == nil && m.Method() == acp.MethodInitialize && m.IsRequest() {
			// The other gateway chooses. What no gateway takes may have no answer with its id.
			if _, refused := version.Choose(&m, version.All()); refused != nil {
				err, refusal = refused, func(error) acp.Message { return version.Refusal(&m, refused) }
			}
		}
		if err != nil {
			select {
			case r.own <- refusal(err):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		if !greeting && m.IsRequest() && m.Method() == acp.MethodInitialize {
			id := m.ID()
			r.hello.Store(&id)
			greeting = true
		}
		if err := r.conn.Write(ctx, m); err != nil {
			return err
		}
	}
}
