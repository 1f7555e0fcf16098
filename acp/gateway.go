package acp

import (
	"context"
	"time"
)

// Gateway is what a transport serves. The runtime implements it.
type Gateway interface {
	// Connect opens a client connection with its initialize request. The
	// reply answers it. An error means that no connection was made: an *Error is the
	// answer to the request, which may be sent again, any other a *problem.Error.
	Connect(ctx context.Context, initialize Message, o ConnectOptions) (Client, Reply, error)
}

// Shape is how a transport carries a client's events.
type Shape int

// The shapes of connections.
const (
	// OneStream carries everything in one stream: WebSocket, stdio.
	OneStream Shape = iota
	// Undecided becomes Inline or PerSession with the first later request.
	Undecided
	// Inline carries responses beside the stream and all else in one stream.
	Inline
	// PerSession has a stream for the connection and one for each session.
	PerSession
)

// ConnectOptions are a transport's part of a connection.
type ConnectOptions struct {
	ID      string // of the connection
	Shape   Shape
	Agent   string          // names the agent when initialize does not
	OnClose func(id string) // called once when the connection has ended
	// Notify shows the client a notification before Connect returns. It may be
	// nil, is called by one goroutine at a time and must not wait long.
	Notify func(frame []byte)
}

// Reply is the response to a request that its sender collects itself.
type Reply struct {
	Frame []byte
	// TimedOut is set for a response that the gateway made because the agent
	// did not answer in time.
	TimedOut bool
	// Session and Seq say where the session's log holds the response.
	Session string
	Seq     uint64
}

// Event is one frame on its way to a client.
type Event struct {
	ID    uint64 // grows by one per connection; 0 where ids are not used
	Frame []byte
}

// Client is one connected ACP client. Its methods are safe for concurrent use.
type Client interface {
	ID() string
	// SetShape decides an Undecided connection. The error, a *problem.Error, is that
	// the connection's version of the protocol cannot be carried so.
	SetShape(Shape) error
	// Send takes one message. It does not wait for an agent's answer, but for
	// room in the agent's queue. The message is not kept.
	Send(ctx context.Context, m Message) error
	// Call is Send for a request whose response is delivered to the channel
	// instead of a stream.
	Call(ctx context.Context, m Message) (<-chan Reply, error)
	// Deliver puts a frame of the transport's own on the connection's stream.
	Deliver(m Message)
	// AwaitWritten waits until the attached stream has written the events that
	// precede the reply, at most for the time given, and returns the id of the
	// last event handed out.
	AwaitWritten(ctx context.Context, r Reply, bound time.Duration) uint64
	// Stream opens the stream of a session, or the connection's own for "". With
	// after, it begins behind that event and takes over from the stream that is
	// open; without, it begins with what no stream was given yet. The error is a
	// *problem.Error.
	Stream(session string, after *uint64) (Stream, error)
	// Close ends the connection. Sessions live on.
	Close()
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
}

// Stream is a client's events in order. It is used by one goroutine, Wake and
// Done excepted.
type Stream interface {
	// Wake receives when Poll may have something new.
	Wake() <-chan struct{}
	// Poll returns what is ready, about limit bytes of it at most. The frames
	// are valid until the next Poll. The error is a *problem.Error.
	Poll(limit int) ([]Event, error)
	// Room has Poll ask before it takes the memory of a large event, with the bytes.
	// An error of ask is that of Poll. It is called once, before Poll.
	Room(ask func(bytes int) error)
	// Written says that all polled events were written to the client.
	Written()
	// Push has who makes events write them at once, while nobody else does, instead of
	// waking another thread for it: push is called by any goroutine, must not wait, and
	// reports whether it has written all there is. Else Wake receives, as without push.
	// It is called once, before Poll.
	Push(push func() (all bool))
	// PollSmall is Poll for push: only a few events, and none for which something large
	// is read or made. more says that there are such, for Poll.
	PollSmall(limit int) (events []Event, more bool, err error)
	// Done is closed when the stream must end.
	Done() <-chan struct{}
	// Close gives the stream up. What was polled counts as handed out.
	Close()
}
