package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// LanePath is where a hub takes lanes.
const LanePath = Path + "/lane"

const (
	// MaxLanes bounds the lanes of a tunnel, with those that are awaited. What is large goes by streams
	// beyond it.
	MaxLanes = 16
	// laneBound is how long a lane is waited for, and laneRest how long none is asked for after that was
	// in vain, as where a proxy on the way lets none through.
	laneBound = 5 * time.Second
	laneRest  = time.Minute

	laneProtocol = "lane.sandboxagent.dev"
	headerLane   = "X-Sandbox-Lane" // its number
	headerLanes  = "X-Sandbox-Lanes"
	lanesYes     = "yes"
)

var errNoLane = errors.New("the node has no lane for it")

// lane is a connection of its own beside a tunnel, for what is large: it is not copied into frames and
// out of them, and what else goes to the node does not wait behind it. The hub asks for one by a frame,
// and the node opens it. It ends with the tunnel.
type lane struct {
	net.Conn
	t    *Tunnel
	from io.Reader    // what comes, as a connection that the system knows if there is one
	tcp  *net.TCPConn // below it; nil when it is not known
}

var _ net.Conn = (*lane)(nil)

// CopyTo writes the next n bytes to w. Where both are sockets the system moves them.
func (l *lane) CopyTo(w io.Writer, n int64) (int64, error) {
	k, err := io.CopyN(w, l.from, n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return k, err
}

// Idle reports whether nothing has come that was not read, and the other end has not closed it.
func (l *lane) Idle() bool { return l.tcp != nil && socket.Quiet(l.tcp) }

// ReadFrom implements [io.ReaderFrom], likewise.
func (l *lane) ReadFrom(r io.Reader) (int64, error) { return io.Copy(l.Conn, r) }

// CloseWrite says that nothing more is written.
func (l *lane) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements [net.Conn].
func (l *lane) Close() error {
	l.t.lanes.mu.Lock()
	delete(l.t.lanes.open, l)
	l.t.lanes.mu.Unlock()
	return l.Conn.Close()
}

// lanes are those of one end of a tunnel.
type lanes struct {
	asked chan uint32 // numbers of lanes that the hub wants; nil at the hub

	mu      sync.Mutex
	open    map[*lane]struct{}
	awaited map[uint32]chan *lane // by number; one that is closed was refused
	last    uint32                // number
	dialing int                   // that the node opens
	rest    time.Time             // none is asked for before
	over    bool
}

// Lane asks the node for a lane, and waits for it. It fails if the tunnel has MaxLanes, and where the
// last one was asked for in vain.
func (t *Tunnel) Lane(ctx context.Context) (net.Conn, error) {
	ls := &t.lanes
	ls.mu.Lock()
	if ls.over || len(ls.open)+len(ls.awaited) >= MaxLanes || time.Now().Before(ls.rest) {
		ls.mu.Unlock()
		return nil, errNoLane
	}
	ls.last++
	n, comes := ls.last, make(chan *lane, 1)
	if ls.awaited == nil {
		ls.awaited = map[uint32]chan *lane{}
	}
	ls.awaited[n] = comes
	ls.mu.Unlock()
	t.out.post(header{kind: kindLane, length: n})
	late := time.NewTimer(laneBound)
	defer late.Stop()
	var l *lane
	select {
	case l = <-comes:
	case <-late.C:
	case <-ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.awaited, n)
	if l == nil {
		select {
		case l = <-comes: // as it was given up
		default:
		}
	}
	switch {
	case l != nil:
		return l, nil
	case ctx.Err() == nil:
		ls.rest = time.Now().Add(laneRest)
	}
	return nil, errNoLane
}

// Awaits reports whether the hub waits for the lane with this number.
func (t *Tunnel) Awaits(n uint32) bool {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	return t.lanes.awaited[n] != nil
}

// keep keeps a connection as a lane, nil when it is too late.
func (t *Tunnel) keep(c net.Conn) *lane {
	ls := &t.lanes
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.keepLocked(t, c)
}

// tcpOf returns what is below a connection, nil if that is not known.
func tcpOf(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ TCP() *net.TCPConn }:
		return c.TCP()
	}
	return nil
}

func (ls *lanes) keepLocked(t *Tunnel, c net.Conn) *lane {
	if ls.over {
		return nil
	}
	l := &lane{Conn: c, t: t, from: c, tcp: tcpOf(c)}
	if _, secure := c.(*tls.Conn); !secure && l.tcp != nil {
		l.from = l.tcp
	}
	if ls.open == nil {
		ls.open = map[*lane]struct{}{}
	}
	ls.open[l] = struct{}{}
	return l
}

// settled ends the wait for a lane: c is it, or nil when the node has none. False says that nobody waits.
func (t *Tunnel) settled(n uint32, c net.Conn) bool {
	ls := &t.lanes
	ls.mu.Lock()
	defer ls.mu.Unlock()
	comes := ls.awaited[n]
	if comes == nil {
		return false
	}
	delete(ls.awaited, n)
	var l *lane
	if c != nil {
		l = ls.keepLocked(t, c)
	}
	if l == nil {
		close(comes)
		return false
	}
	comes <- l
	return true
}

// askedFor takes the frame that is about a lane.
func (t *Tunnel) askedFor(h header) error {
	switch {
	case t.node && h.flags == 0:
		select {
		case t.lanes.asked <- h.length:
		default:
			t.refuse(h.length)
		}
	case !t.node && h.flags == flagResets:
		t.settled(h.length, nil)
	default:
		return fmt.Errorf("a frame about a lane has the flags %#x", h.flags)
	}
	return nil
}

// refuse tells the hub that a lane will not come.
func (t *Tunnel) refuse(n uint32) { t.out.post(header{kind: kindLane, flags: flagResets, length: n}) }

// end ends all lanes.
func (ls *lanes) end() {
	ls.mu.Lock()
	ls.over = true
	open := ls.open
	ls.open = nil
	for n, comes := range ls.awaited {
		delete(ls.awaited, n)
		close(comes)
	}
	ls.mu.Unlock()
	for l := range open {
		_ = l.Conn.Close()
	}
}

// OpenLanes opens the lanes that the hub asks for, until the tunnel ends, and gives each to take. The client
// is that of [Dial], at is the hub's address of lanes, and header says who asks for it.
func (t *Tunnel) OpenLanes(client *http.Client, at string, header func() http.Header, take func(net.Conn)) {
	var own sync.WaitGroup
	defer own.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case n := <-t.lanes.asked:
			if !t.lanes.mayDial() {
				t.refuse(n)
				continue
			}
			own.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, laneBound)
				defer cancel()
				c, err := dialLane(ctx, client, at, n, header())
				t.lanes.dialed()
				if err != nil {
					t.refuse(n)
					return
				}
				if l := t.keep(c); l != nil {
					take(l)
				} else {
					_ = c.Close()
				}
			})
		case <-t.done:
			return
		}
	}
}

// mayDial reports whether there is room for one more lane, which counts until dialed is called.
func (ls *lanes) mayDial() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	// Twice as many as the hub wants: what that has closed may be open here for a moment.
	if len(ls.open)+ls.dialing >= 2*MaxLanes {
		return false
	}
	ls.dialing++
	return true
}

func (ls *lanes) dialed() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.dialing--
}

type laneKey struct{}

// dialLane opens the lane with a number.
func dialLane(ctx context.Context, client *http.Client, at string, n uint32, header http.Header) (net.Conn, error) {
	var below net.Conn
	r, err := http.NewRequestWithContext(context.WithValue(ctx, laneKey{}, &below), http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("open lane: %w", err)
	}
	r.Header = header
	r.Header.Set(headerLane, strconv.FormatUint(uint64(n), 10))
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", laneProtocol)
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("open lane: %w", err)
	}
	body, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != laneProtocol || !ok || below == nil {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("open lane: the hub answers %s", resp.Status)
	}
	return &dialedLane{below, body, resp.TLS != nil}, nil
}

// dialedLane is a lane at the end that has opened it.
type dialedLane struct {
	net.Conn                    // to the hub, or to the proxy before it
	above    io.ReadWriteCloser // what is said on it: the same, or TLS. It has what has come with the answer
	secure   bool
}

// Read implements [io.Reader].
func (l *dialedLane) Read(p []byte) (int, error) { return l.above.Read(p) }

// Write implements [io.Writer].
func (l *dialedLane) Write(p []byte) (int, error) { return l.above.Write(p) }

// ReadFrom implements [io.ReaderFrom]: the system moves what it can move by itself.
func (l *dialedLane) ReadFrom(r io.Reader) (int64, error) {
	if l.secure {
		return io.Copy(l.above, r)
	}
	return io.Copy(l.Conn, r)
}

// CloseWrite says that nothing more is written.
func (l *dialedLane) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok && !l.secure {
		return half.CloseWrite()
	}
	return nil
}

// ParseLane reads which lane of which node a request opens, and trusts none of it.
func ParseLane(h http.Header) (node, instance string, n uint32, err error) {
	number, bad := strconv.ParseUint(h.Get(headerLane), 10, 32)
	if bad != nil || h.Get("Upgrade") != laneProtocol {
		return "", "", 0, errors.New("it does not say which lane it is, or asks for another protocol")
	}
	return h.Get(headerName), h.Get(headerInstance), uint32(number), nil
}

// TakeLane takes the connection of a request as the lane with a number, for which the hub's end of the
// tunnel waits. When it fails the connection has ended.
func (t *Tunnel) TakeLane(w http.ResponseWriter, n uint32) error {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", laneProtocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, had, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take lane: %w", err)
	}
	if had.Reader.Buffered() > 0 {
		_ = c.Close()
		return errors.New("take lane: the node speaks before it is asked")
	}
	_ = c.SetDeadline(time.Time{}) // of the request
	if !t.settled(n, c) {
		_ = c.Close()
		return fmt.Errorf("take lane: %w", errNoLane)
	}
	return nil
}
