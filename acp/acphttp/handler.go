package acphttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// Header names of the two dialects.
const (
	HeaderConnection       = "Acp-Connection-Id"
	HeaderInlineConnection = "X-Acp-Connection-Id"
	HeaderSession          = "Acp-Session-Id"
	HeaderLastEvent        = "X-Acp-Last-Event-Id" // of an inline response

	headerAcceptsKey = "Accept-Idempotency-Key" // of the answer to initialize
)

const (
	// DefaultMaxBody bounds a POST's body and a WebSocket message.
	DefaultMaxBody = 32 << 20

	maxIDLen     = 1024
	drainFactor  = 4        // times MaxBody, read of a body that is too large
	inboxLimit   = 1024     // messages a connection's POSTs may have waiting
	inboxBytes   = 64 << 20 // and their bytes
	writtenBound = time.Second
	pollBytes    = 64 << 10
	firstBuffer  = 64 << 10 // of a body, before more of it came
	slowestLine  = 64 << 10 // bytes a second
)

// Options configure a Handler. Zero values mean the defaults.
type Options struct {
	MaxBody      int64         // 32 MiB
	HoldHeaders  time.Duration // until a held response's headers are sent: 30 s
	Heartbeat    time.Duration // of event streams and held responses: 15 s
	PingInterval time.Duration // of WebSockets: 30 s
	BodyTimeout  time.Duration // for a body to arrive, and more for a large one: 30 s
	Handshake    time.Duration // for a WebSocket to send initialize: 30 s
	Memory       *memory.Bound // of messages that arrive, wait or are written; nil is no bound
	WriteTimeout time.Duration // a client that takes nothing for this long is dropped: 60 s
	// Over returns what is done when nothing more is served to whoever a request is of, with a
	// *problem.Error as its cause; nil is never.
	Over   func(context.Context) context.Context
	Logger *slog.Logger
}

// Handler serves ACP. It is an http.Handler for one path.
type Handler struct {
	gw  acp.Gateway
	o   Options
	log *slog.Logger

	closing context.Context // ended by Shutdown, with errEnding
	close   context.CancelCauseFunc
	cut     context.Context // done a moment later: clients that stand still are waited for no more than another one
	cutOff  context.CancelFunc
	last    time.Time // nobody is waited for after it, once cut is done; zero for no such time
	once    sync.Once
	open    gauge // requests in progress
	memory  *memory.Bound

	mu    sync.Mutex
	conns map[string]*conn
}

// conn is a connection over HTTP.
type conn struct {
	client acp.Client // set before the conn can be found

	mu      sync.Mutex
	shape   acp.Shape
	inbox   []taken       // of the standard dialect, in order
	waiting *memory.Share // the bytes of the inbox
	bytes   int
	running bool // somebody is passing the inbox on

	receipts receipts
}

// New returns a handler that serves gw.
func New(gw acp.Gateway, o Options) *Handler {
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&o.HoldHeaders, 30 * time.Second}, {&o.Heartbeat, 15 * time.Second}, {&o.PingInterval, 30 * time.Second}, {&o.BodyTimeout, 30 * time.Second}, {&o.Handshake, 30 * time.Second}, {&o.WriteTimeout, 60 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Over == nil {
		o.Over = func(context.Context) context.Context { return context.Background() }
	}
	if o.Memory == nil {
		o.Memory = memory.NewBound(0)
	}
	h := &Handler{gw: gw, o: o, log: o.Logger, memory: o.Memory, conns: map[string]*conn{}}
	h.closing, h.close = context.WithCancelCause(context.Background())
	h.cut, h.cutOff = context.WithCancel(context.Background())
	return h
}

var errEnding = problem.New(problem.Unavailable, "the gateway is shutting down")

// farewell is how long a client is left alone when the handler shuts down, and how long it may then stand still.
const farewell = 2 * time.Second

// lastWord is how long all clients have together: behind it come others who have something to end.
const lastWord = 3 * farewell

// Shutdown ends every stream and waits until all requests were answered, or ctx
// ends. Clients that take nothing, or send nothing of what they began, are cut off before that.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.once.Do(func() {
		h.last = time.Now().Add(lastWord)
		if d, ok := ctx.Deadline(); ok && d.Before(h.last) {
			h.last = d
		}
		h.close(errEnding)
		time.AfterFunc(farewell, h.cutOff)
	})
	select {
	case <-h.open.empty():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.open.add(1)
	defer h.open.add(-1)
	select {
	case <-h.closing.Done():
		problem.Write(w, errEnding)
		return
	default:
	}
	var err error
	switch r.Method {
	case http.MethodPost:
		err = h.post(w, r)
	case http.MethodGet:
		if isUpgrade(r) {
			err = h.websocket(w, r)
		} else {
			err = h.get(w, r)
		}
	case http.MethodDelete:
		err = h.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		err = problem.New(problem.MethodNotAllowed, "%s is not served here: use POST, GET or DELETE", r.Method)
	}
	if err != nil {
		problem.Write(w, cmp.Or(h.over(r.Context()), err))
	}
}

// over says why nothing more is served to whoever a request is of, nil as long as that is.
func (h *Handler) over(ctx context.Context) error { return context.Cause(h.o.Over(ctx)) }

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// find returns the connection that the request names and pins its dialect.
func (h *Handler) find(r *http.Request) (*conn, error) {
	standard, inline := r.Header.Get(HeaderConnection), r.Header.Get(HeaderInlineConnection)
	switch {
	case standard != "" && inline != "":
		return nil, problem.New(problem.InvalidRequest, "send %s or X-ACP-Connection-Id, not both: they are two dialects", HeaderConnection)
	case standard == "" && inline == "":
		return nil, problem.New(problem.InvalidRequest, "the connection's id is missing: initialize first, then send %s", HeaderConnection)
	}
	id := standard + inline
	if len(id) > maxIDLen {
		return nil, problem.New(problem.InvalidRequest, "the connection id is longer than %d bytes", maxIDLen)
	}
	shape := acp.PerSession
	if inline != "" {
		shape = acp.Inline
	}
	h.mu.Lock()
	c := h.conns[id]
	h.mu.Unlock()
	if c == nil {
		return nil, problem.New(problem.ClientNotFound, "no connection has this id: it ended or was never opened; initialize again")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shape == acp.Undecided {
		if err := c.client.SetShape(shape); err != nil {
			return nil, err
		}
		c.shape = shape
	}
	if c.shape != shape {
		return nil, problem.New(problem.InvalidRequest, "this connection uses the other dialect's header: go on with the one that it began with")
	}
	return c, nil
}

func (h *Handler) forget(id string) {
	h.mu.Lock()
	c := h.conns[id]
	delete(h.conns, id)
	h.mu.Unlock()
	if c != nil {
		c.waiting.Close()
	}
}

func (h *Handler) post(w http.ResponseWriter, r *http.Request) (err error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return problem.New(problem.UnsupportedMediaType, "the body must be application/json: set Content-Type")
	}
	if !accepts(r, "application/json", "application/*", "*/*") {
		return problem.New(problem.NotAcceptable, "responses are application/json: Accept must allow it")
	}
	arrived := h.arrives(r)
	defer arrived()
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	m, err := acp.Parse(body)
	if err != nil {
		if bad, ok := errors.AsType[*acp.ParseError](err); ok && bad.Object && r.Header.Get(HeaderConnection) != "" {
			return h.postInvalid(w, r, err)
		}
		return problem.New(problem.InvalidRequest, "%s", err.Error())
	}
	if r.Header.Get(HeaderConnection) == "" && r.Header.Get(HeaderInlineConnection) == "" {
		return h.initialize(w, r, m)
	}
	c, err := h.find(r)
	if err != nil {
		return err
	}
	if m.Method() == acp.MethodInitialize {
		return problem.New(problem.InvalidRequest, "the connection is initialized already: to open another, initialize without a connection id")
	}
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	if after := r.Header.Get(HeaderAfter); after != "" {
		if err := h.follow(r.Context(), c, after, key, len(body)); err != nil {
			return err
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	if c.shape == acp.Inline {
		w.Header().Set(HeaderInlineConnection, c.client.ID())
		if m.IsRequest() {
			return h.postInline(w, r, c, m, key, arrived)
		}
	}
	if key != "" {
		note, again := c.receipts.begin(key)
		if again {
			accepted(w)
			return nil
		}
		defer func() { c.receipts.end(note, err) }()
	}
	if c.shape == acp.PerSession {
		err = h.postStandard(r, c, m)
	} else {
		err = c.client.Send(r.Context(), m)
	}
	if err == nil {
		accepted(w)
	}
	return err
}

// arrives notes that a POST with a key is there before its body is, until what is returned is called: what is to follow it waits for it.
// A wrong POST is refused later, when it is read.
func (h *Handler) arrives(r *http.Request) (over func()) {
	key, err := keyOf(r)
	h.mu.Lock()
	c := h.conns[cmp.Or(r.Header.Get(HeaderConnection), r.Header.Get(HeaderInlineConnection))]
	h.mu.Unlock()
	if err != nil || key == "" || c == nil {
		return func() {}
	}
	return c.receipts.arrive(key)
}

// follow has a POST of so many bytes wait for the one that it is to follow. The error says that it is not carried out: its client has left
// while it waited, or the handler ends, and may send it again with its key.
func (h *Handler) follow(ctx context.Context, c *conn, after, key string, size int) error {
	ctx, over := context.WithCancelCause(ctx)
	defer over(nil)
	defer context.AfterFunc(h.closing, func() { over(errEnding) })()
	if !c.waiting.Try(size) {
		return errMemory
	}
	defer c.waiting.Give(size)
	err := c.receipts.await(ctx, after, key)
	switch {
	case errors.Is(err, errEnding):
		return errEnding
	case err != nil && key != "":
		return problem.Wrap(problem.Unavailable, err, "the request ended while it waited for the one that it follows: send it again")
	}
	return nil
}

func accepted(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusAccepted)
}

// body reads the request's body within the limit. Of a larger one it takes as
// much again before it refuses: a client that is still sending would otherwise
// see its connection reset and not the answer. Memory is taken as the body
// arrives, not as it was announced, and it must arrive in a time that a slow
// line needs.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	length := r.ContentLength
	if length < 0 || length > h.o.MaxBody {
		length = h.o.MaxBody
	}
	arriving := deadline.New(h.o.BodyTimeout+time.Duration(length/slowestLine)*time.Second, rc.SetReadDeadline)
	defer arriving.Leave() // where not all came the deadline stays: the server would wait for the rest without end
	arriving.Extend()
	defer context.AfterFunc(h.cut, arriving.End)()
	share := h.memory.Open(arriving.End)
	defer share.Close()
	body, err := h.gather(r.Context(), share, io.LimitReader(r.Body, h.o.MaxBody+1), min(max(r.ContentLength, 512)+1, firstBuffer))
	switch {
	case errors.Is(err, errMemory), err != nil && share.Ended():
		return nil, errMemory
	case errors.Is(err, os.ErrDeadlineExceeded) && h.cut.Err() != nil:
		w.Header().Set("Connection", "close")
		return nil, errEnding
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, problem.New(problem.Timeout, "the body did not arrive in time: %d of %d bytes came", len(body), r.ContentLength)
	case err != nil:
		return nil, problem.Wrap(problem.InvalidRequest, err, "cannot read the body")
	}
	if r.ContentLength > h.o.MaxBody || int64(len(body)) > h.o.MaxBody {
		_, _ = io.CopyN(io.Discard, r.Body, drainFactor*h.o.MaxBody)
		return nil, problem.New(problem.PayloadTooLarge, "the body is over the limit of %d bytes: raise it with --max-body", h.o.MaxBody)
	}
	arriving.Lift()
	if share.Ended() { // with its last byte: the server may have noticed the deadline, and have ended all requests of the connection
		w.Header().Set("Connection", "close")
		return nil, errMemory
	}
	return body, nil
}

var errMemory = problem.New(problem.TooManyRequests, "the messages of clients take all the memory that they may have: try again, or raise it with --max-memory")

// gather reads src to its end. Its memory is the share's while it arrives: from then on it
// is one of the connection's messages.
func (h *Handler) gather(ctx context.Context, share *memory.Share, src io.Reader, first int64) ([]byte, error) {
	defer share.GiveAll()
	b, err := share.Gather(ctx, src, int(first), int(h.o.MaxBody)+512)
	if errors.Is(err, memory.ErrFull) {
		err = errMemory
	}
	return b, err
}

// accepts reports whether the Accept header is absent or names one of the types.
func accepts(r *http.Request, types ...string) bool {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true
	}
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			name, _, _ := strings.Cut(part, ";")
			for _, t := range types {
				if strings.EqualFold(strings.TrimSpace(name), t) {
					return true
				}
			}
		}
	}
	return false
}

// initialize opens a connection.
func (h *Handler) initialize(w http.ResponseWriter, r *http.Request, m acp.Message) error {
	if m.Method() != acp.MethodInitialize {
		return problem.New(problem.InvalidRequest, "the connection's id is missing: initialize first, then send its id in %s or X-ACP-Connection-Id", HeaderConnection)
	}
	if !m.IsRequest() {
		return problem.New(problem.InvalidRequest, "initialize must be a request: give it an id that is not null")
	}
	client, reply, err := h.gw.Connect(r.Context(), m, acp.ConnectOptions{
		ID: uuid.NewString(), Shape: acp.Undecided, Agent: r.URL.Query().Get("agent"), OnClose: h.forget,
	})
	if refused, ok := errors.AsType[*acp.Error](err); ok {
		answer := version.Refusal(&m, refused)
		w.Header().Set("Cache-Control", "no-store")
		h.writeJSON(w, r, http.StatusBadRequest, answer.Frame())
		return nil
	}
	if err != nil {
		return err
	}
	if r.Context().Err() != nil {
		client.Close() // its client will never learn the id
		return nil
	}
	h.mu.Lock()
	h.conns[client.ID()] = &conn{client: client, shape: acp.Undecided, waiting: h.memory.Open(nil)}
	h.mu.Unlock()
	select {
	case <-client.Done():
		h.forget(client.ID())
	default:
	}
	hd := w.Header()
	hd.Set(HeaderConnection, client.ID())
	hd.Set(HeaderInlineConnection, client.ID())
	hd.Set(headerAcceptsKey, "?1")
	hd.Set("Cache-Control", "no-store")
	h.writeJSON(w, r, http.StatusOK, reply.Frame)
	return nil
}

// writeJSON answers with a frame. A client that is gone is noticed elsewhere, and one that
// does not read it is dropped.
func (h *Handler) writeJSON(w http.ResponseWriter, r *http.Request, status int, frame []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(frame)))
	out := h.outgoing(w)
	defer out.close()
	out.count(r.Context(), frame)
	w.WriteHeader(status)
	_ = out.write(frame)
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) error {
	inline := r.Header.Get(HeaderConnection) == "" && r.Header.Get(HeaderInlineConnection) != ""
	c, err := h.find(r)
	if err != nil {
		if inline && problem.From(err).Kind == problem.ClientNotFound {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return err
	}
	c.client.Close()
	if inline {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	accepted(w)
	return nil
}
