package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"
)

const (
	idleStreams = 16               // of a tunnel, kept for the next requests
	idleLanes   = 2                // likewise
	idleTimeout = 30 * time.Second // of such a stream; less than the gateway's own
	maxHeader   = 64 << 10         // bytes of the headers of an answer; one with more counts as none
	maxEarly    = 5                // answers before the one to a request, which only tell of it
	keepRequest = 64 << 10         // a larger buffer of a request is given up
)

// streams carries requests to a node by the streams of its tunnel, many by one after the other. Who makes
// a request writes it and reads its answer: an [http.Transport] has two goroutines for that with each
// connection, and to go over from one to the other takes longer than the request itself.
//
// It implements [http.RoundTripper]. A request with a body that is not in memory goes by a Transport: its
// answer may come before all of it was sent.
type streams struct {
	open func(ctx context.Context) (net.Conn, error)
	most int // idle ones that are kept for the next requests
	rest *http.Transport

	mu     sync.Mutex
	idle   []idleStream // newest last; at most most
	expire *time.Timer  // runs while there is one; nil before the first
	closed bool
}

// idleStream is a stream that no request uses.
type idleStream struct {
	conn  net.Conn
	since time.Time
}

func newStreams(open func(ctx context.Context) (net.Conn, error), most int) *streams {
	return &streams{open: open, most: most, rest: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return open(ctx) },
		DisableCompression: true, // bodies pass as they are
		MaxIdleConns:       most, MaxIdleConnsPerHost: most, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// RoundTrip implements [http.RoundTripper].
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := r.Body.(inMemory); !ok && r.Body != nil && r.Body != http.NoBody {
		return s.rest.RoundTrip(r)
	}
	b := requests.Get().(*bytes.Buffer)
	defer func() {
		if b.Reset(); b.Cap() <= keepRequest {
			requests.Put(b)
		}
	}()
	if err := r.Write(b); err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for fresh := false; ; fresh = true {
		conn, used, err := s.take(r.Context(), fresh)
		if err != nil {
			return nil, err
		}
		e := &exchange{s: s, conn: conn, r: r, limit: maxHeader}
		resp, err := e.do(b.Bytes())
		if err == nil {
			return resp, nil
		}
		_ = conn.Close()
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if !used || e.heard || r.Body != nil && r.Body != http.NoBody || r.Method != http.MethodGet && r.Method != http.MethodHead {
			return nil, err
		} // else the node may have closed it as the request came
	}
}

var requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// take returns a stream, used if another request has used it, unless it must be fresh.
func (s *streams) take(ctx context.Context, fresh bool) (conn net.Conn, used bool, err error) {
	s.mu.Lock()
	for n := len(s.idle); n > 0 && !fresh; n = len(s.idle) {
		conn := s.idle[n-1].conn
		s.idle[n-1] = idleStream{}
		s.idle = s.idle[:n-1]
		if c, ok := conn.(interface{ Idle() bool }); ok && c.Idle() {
			s.mu.Unlock()
			return conn, true, nil
		}
		_ = conn.Close() // the node has closed it, or says what nobody has asked
	}
	s.mu.Unlock()
	conn, err = s.open(ctx)
	return conn, false, err
}

// put keeps a stream for another request.
func (s *streams) put(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := conn.(interface{ Idle() bool }); s.closed || len(s.idle) >= s.most || !again {
		_ = conn.Close()
		return
	}
	s.idle = append(s.idle, idleStream{conn, time.Now()})
	switch {
	case s.expire == nil:
		s.expire = time.AfterFunc(idleTimeout, s.drop)
	case len(s.idle) == 1:
		s.expire.Reset(idleTimeout)
	}
}

// drop closes streams that were idle for long.
func (s *streams) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		left := idleTimeout - time.Since(s.idle[0].since)
		if left > 0 {
			s.expire.Reset(left)
			return
		}
		_ = s.idle[0].conn.Close()
		s.idle = append(s.idle[:0], s.idle[1:]...)
	}
}

// CloseIdleConnections closes the streams that no request uses, and those that are not used any more.
func (s *streams) CloseIdleConnections() {
	s.rest.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.expire != nil {
		s.expire.Stop()
	}
	for _, i := range s.idle {
		_ = i.conn.Close()
	}
	s.idle = nil
}

// exchange is a request and its answer on a stream.
type exchange struct {
	s     *streams
	conn  net.Conn
	r     *http.Request
	in    *bufio.Reader
	limit int64       // bytes that may come
	heard bool        // something has come
	stop  func() bool // ends the watch over the request's context
	keeps bool        // another request may follow
	body  io.ReadCloser
	left  int64 // bytes of it that were not read, -1 when that is not known
	over  atomic.Bool
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, ownBuffer) }}

var errHeader = errors.New("the answer begins with more than may be")

// do sends the request, which stands in b, and returns when the answer has begun.
func (e *exchange) do(b []byte) (*http.Response, error) {
	e.stop = context.AfterFunc(e.r.Context(), func() { _ = e.conn.Close() })
	resp, err := e.begin(b)
	if err != nil {
		e.stop()
		return nil, err
	}
	e.limit = math.MaxInt64
	switch e.keeps = !resp.Close && !e.r.Close; {
	case resp.StatusCode == http.StatusSwitchingProtocols: // the connection is the caller's
		if !e.stop() {
			return nil, context.Cause(e.r.Context())
		}
		u := &upgraded{Conn: e.conn}
		if e.in.Buffered() > 0 {
			u.in = e.in
		}
		resp.Body = u
	case resp.Body == http.NoBody:
		e.end(true)
	default:
		e.left = resp.ContentLength
		e.body, resp.Body = resp.Body, e
	}
	return resp, nil
}

// begin sends the request and reads the head of its answer.
func (e *exchange) begin(b []byte) (*http.Response, error) {
	if _, err := e.conn.Write(b); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	e.in = readers.Get().(*bufio.Reader)
	e.in.Reset(arriving{e})
	for range maxEarly {
		resp, err := http.ReadResponse(e.in, e.r)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if trace := httptrace.ContextClientTrace(e.r.Context()); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("the answer does not come: others tell of it without end")
}

// arriving is what comes of an exchange.
type arriving struct{ e *exchange }

// Read implements [io.Reader].
func (a arriving) Read(p []byte) (int, error) {
	e := a.e
	if e.limit <= 0 {
		return 0, errHeader
	}
	n, err := e.conn.Read(p[:min(int64(len(p)), e.limit)])
	e.limit -= int64(n)
	e.heard = e.heard || n > 0
	return n, err
}

// Read implements [io.Reader]: it reads the body of the answer.
func (e *exchange) Read(p []byte) (int, error) {
	n, err := e.body.Read(p)
	e.left = -1
	if errors.Is(err, io.EOF) {
		e.end(true)
		return n, err
	}
	return n, e.why(err)
}

// why is the error with which reading has ended.
func (e *exchange) why(err error) error {
	if err != nil && e.r.Context().Err() != nil {
		return context.Cause(e.r.Context())
	}
	return err
}

// WriteTo implements [io.WriterTo]: of a lane the system moves a body whose length is known.
func (e *exchange) WriteTo(w io.Writer) (int64, error) {
	from, ok := e.conn.(interface {
		CopyTo(w io.Writer, n int64) (int64, error)
	})
	if !ok || e.left < 0 {
		return io.Copy(w, struct{ io.Reader }{e})
	}
	early, err := e.in.Peek(int(min(int64(e.in.Buffered()), e.left)))
	if err != nil {
		return 0, err
	}
	k, err := w.Write(early)
	_, _ = e.in.Discard(k) // it is there
	n := int64(k)
	if err == nil {
		var more int64
		more, err = from.CopyTo(w, e.left-n)
		n += more
	}
	if err == nil {
		e.end(true)
	}
	e.left = -1
	return n, e.why(err)
}

// Close implements [io.Closer]. What was not read of the answer is not awaited.
func (e *exchange) Close() error {
	e.end(false)
	return nil
}

// end ends the exchange, if it has not. All says that the answer was read to its end.
func (e *exchange) end(all bool) {
	if !e.over.CompareAndSwap(false, true) {
		return
	}
	if !e.stop() || !all || !e.keeps || e.in.Buffered() > 0 {
		_ = e.conn.Close()
		return // somebody may be reading still
	}
	e.in.Reset(nil)
	readers.Put(e.in)
	e.s.put(e.conn)
}

// upgraded is a stream that goes on with another protocol.
type upgraded struct {
	net.Conn
	in *bufio.Reader // has what has come with the answer, nil for nothing
}

// Read implements [io.Reader].
func (u *upgraded) Read(p []byte) (int, error) {
	if u.in == nil {
		return u.Conn.Read(p)
	}
	n, err := u.in.Read(p[:min(len(p), u.in.Buffered())])
	if u.in.Buffered() == 0 {
		u.in = nil
	}
	return n, err
}

// CloseWrite says that nothing more is written.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.Conn.Close()
}
