package control

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// Connections bounds the connections of clients, so that peers cannot use up
// what the gateway needs for its own files. Zero values mean no bound.
type Connections struct {
	Most       int // in all; further ones are closed at once
	PerAddress int // of one address, but for those of this machine
	// Strangers is how many may be open on which nothing was let in by the
	// guard. Beyond it the oldest is closed: one that wants something is let in
	// at once.
	Strangers int
	// Direct has connections read and written as package socket does, which is for programs that do
	// little else.
	Direct bool
	Logger *slog.Logger // is told of connections for which there was no room; nil for nobody

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int
	strangers list.List // of *peer, oldest first
	closed    int       // that the log was not told of yet
	told      time.Time // when it was
}

// OwnFiles is what is kept of the files that a program may open for its own use, at least.
const OwnFiles = 256

// MostConnections is how many connections a program takes that may open so many files, 0 for any number:
// a quarter is for its own use.
func MostConnections(most, files int) int {
	if files == 0 {
		return most
	}
	return max(16, min(most, files-max(OwnFiles, files/4)))
}

// peer is a connection that was accepted.
type peer struct {
	*socket.Conn
	from    *Connections
	addr    netip.Addr
	once    sync.Once
	strange *list.Element // nil when something was let in; guarded by from.mu
}

// Listen returns ln within the bounds.
func (c *Connections) Listen(ln net.Listener) net.Listener { return &bounded{ln, c} }

type bounded struct {
	net.Listener
	c *Connections
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		passed := socket.Plain(tcp)
		if b.c.Direct {
			if passed, err = socket.New(tcp); err != nil {
				_ = tcp.Close() // this one is broken, and not the listener
				continue
			}
		}
		if p := b.c.admit(passed); p != nil {
			return p, nil
		}
		_ = tcp.SetLinger(0) // nothing is kept of it
		_ = tcp.Close()
	}
}

// admit counts a connection, nil when there is no room for it.
func (c *Connections) admit(tcp *socket.Conn) *peer {
	p := &peer{Conn: tcp, from: c}
	if a, ok := tcp.RemoteAddr().(*net.TCPAddr); ok {
		p.addr = a.AddrPort().Addr().Unmap().WithZone("")
	}
	c.mu.Lock()
	if c.addresses == nil {
		c.addresses = map[netip.Addr]int{}
	}
	full := c.Most > 0 && c.open >= c.Most
	var leaves *peer
	if c.Strangers > 0 && c.strangers.Len() >= c.Strangers || full && c.strangers.Len() > 0 {
		leaves = c.strangers.Front().Value.(*peer)
	}
	crowded := c.PerAddress > 0 && !p.addr.IsLoopback() && c.addresses[p.addr] >= c.PerAddress && (leaves == nil || leaves.addr != p.addr)
	refused := crowded || full && leaves == nil
	if refused {
		leaves = nil
	} else {
		c.open++
		c.addresses[p.addr]++
		p.strange = c.strangers.PushBack(p)
	}
	if leaves != nil {
		c.knownLocked(leaves)
	}
	c.mu.Unlock()
	if leaves != nil {
		_ = leaves.Close()
		c.noRoom("one that had shown no token left for another", leaves.addr)
	}
	if refused {
		why := "there are as many as may be"
		if crowded {
			why = "its address has a quarter of what there may be"
		}
		c.noRoom(why, p.addr)
		return nil
	}
	return p
}

// logPause is how often the log is told: what closes connections comes by the thousand.
const logPause = time.Minute

// noRoom notes that a connection was closed. The log is told without the lock: it may be slow.
func (c *Connections) noRoom(why string, addr netip.Addr) {
	c.mu.Lock()
	c.closed++
	closed, open, tell := c.closed, c.open, c.Logger != nil && time.Since(c.told) >= logPause
	if tell {
		c.closed, c.told = 0, time.Now()
	}
	c.mu.Unlock()
	if tell {
		c.Logger.Warn("connections were closed: no room", "closed", closed, "last", addr, "why", why, "open", open, "max-connections", c.Most)
	}
}

func (c *Connections) knownLocked(p *peer) {
	if p.strange != nil {
		c.strangers.Remove(p.strange)
		p.strange = nil
	}
}

// Close closes the connection and makes room for another.
func (p *peer) Close() error {
	p.once.Do(func() {
		c := p.from
		c.mu.Lock()
		defer c.mu.Unlock()
		c.knownLocked(p)
		c.open--
		if c.addresses[p.addr]--; c.addresses[p.addr] == 0 {
			delete(c.addresses, p.addr)
		}
	})
	return p.Conn.Close()
}

type peerKey struct{}

// Context is the http.Server's ConnContext: requests know their connection.
func (c *Connections) Context(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if p, ok := conn.(*peer); ok {
		return context.WithValue(ctx, peerKey{}, p)
	}
	return ctx
}

// letIn notes that the guard let a request of this connection in.
func letIn(ctx context.Context) {
	p, ok := ctx.Value(peerKey{}).(*peer)
	if !ok {
		return
	}
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	p.from.knownLocked(p)
}
