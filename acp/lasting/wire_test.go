package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// wire is a connection whose ends a test holds in its hands: what the client
// writes has arrived when Write returns nil, and has not when it fails.
type wire struct {
	toGateway, toClient chan acp.Message

	readEnds   chan struct{} // closed by breakRead
	writeFails chan struct{} // closed by breakWrite
	closing    chan struct{} // closed by Close
	mayClose   chan struct{} // Close returns when it is closed
	stuck      bool          // a Write waits for writeFails, whatever happens
	once       [3]sync.Once
}

func newWire() *wire {
	w := &wire{
		toGateway: make(chan acp.Message), toClient: make(chan acp.Message),
		readEnds: make(chan struct{}), writeFails: make(chan struct{}), closing: make(chan struct{}), mayClose: make(chan struct{}),
	}
	close(w.mayClose)
	return w
}

func (w *wire) breakRead()  { w.once[0].Do(func() { close(w.readEnds) }) }
func (w *wire) breakWrite() { w.once[1].Do(func() { close(w.writeFails) }) }

// Read does not watch its ctx, as that of a connection over a byte stream.
func (w *wire) Read(context.Context) (acp.Message, error) {
	select {
	case m := <-w.toClient:
		return m, nil
	case <-w.readEnds:
		return acp.Message{}, errors.New("reading is broken")
	case <-w.closing:
		return acp.Message{}, io.ErrClosedPipe
	}
}

var errWriteBroken = errors.New("writing is broken")

func (w *wire) Write(_ context.Context, m acp.Message) error {
	if w.stuck {
		<-w.writeFails
		return errWriteBroken
	}
	select {
	case <-w.writeFails:
		return errWriteBroken
	default:
	}
	select {
	case w.toGateway <- m.Clone():
		return nil
	case <-w.writeFails:
		return errWriteBroken
	case <-w.closing:
		return io.ErrClosedPipe
	}
}

func (w *wire) Close() error {
	w.once[2].Do(func() { close(w.closing) })
	<-w.mayClose
	return nil
}

// welcome answers initialize.
func (w *wire) welcome(t *testing.T) {
	t.Helper()
	if m := <-w.toGateway; m.Method() != "initialize" {
		t.Errorf("%s came in place of initialize", m.Frame())
	}
	w.toClient <- acp.NewResult(hello.ID(), []byte(`{"protocolVersion":1}`))
}

// dials hands out wires, and then fails.
func dials(wires ...*wire) func(context.Context) (acp.Conn, error) {
	return func(context.Context) (acp.Conn, error) {
		if len(wires) == 0 {
			return nil, errors.New("nobody is there")
		}
		w := wires[0]
		wires = wires[1:]
		return w, nil
	}
}

// takes receives the next message, which must be of a method; "" is a response.
func (w *wire) takes(t *testing.T, method string) acp.Message {
	t.Helper()
	m := <-w.toGateway
	if m.Method() != method {
		t.Fatalf("%s came in place of %q", m.Frame(), method)
	}
	return m
}

// replies answers the next message, which must be a request of a method.
func (w *wire) replies(t *testing.T, method, result string) acp.Message {
	t.Helper()
	m := w.takes(t, method)
	w.toClient <- acp.NewResult(m.ID(), []byte(result))
	return m
}

// says sends the client a message.
func (w *wire) says(f string, args ...any) {
	w.toClient <- acp.MustParse(fmt.Appendf(nil, f, args...))
}

// asks sends a request for permission that has a place in the session's log.
func (w *wire) asks(id, seq int) {
	w.says(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":%d}}}}`, id, seq)
}

// reattached answers what the Conn asks for to be attached to its session again.
func (w *wire) reattached(t *testing.T, pending string) (resume acp.Message) {
	t.Helper()
	resume = w.replies(t, acp.MethodSessionResume, `{}`)
	w.replies(t, "_sandboxagent/session/pending", `{"pending":`+pending+`}`)
	return resume
}

// reads returns what the client is given next.
func reads(t *testing.T, c *Conn) string {
	t.Helper()
	m, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return frame(m)
}

// attached opens the first connection and attaches the client to session s.
func attached(t *testing.T, c *Conn, first *wire) {
	t.Helper()
	begin(t, c, first)
	go write(t, c, acp.NewRequest(acp.IntID(2), acp.MethodSessionLoad, []byte(`{"sessionId":"s","cwd":"/"}`)))
	first.replies(t, acp.MethodSessionLoad, `{}`)
	reads(t, c)
}
