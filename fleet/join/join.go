// Package join keeps a gateway joined to a hub: it holds one tunnel open, opens
// another when it breaks, and gives out the connections that come through it.
//
// The hub has checked who sends what comes through, so those connections need no
// token. Nobody else can make one: they are streams of a WebSocket that this
// program opened to an address that was configured, and listen nowhere.
package join

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

const (
	leastWait  = 100 * time.Millisecond
	firstWait  = 2 * time.Second                 // before an attempt, at most
	longWait   = tunnel.LongestPause - leastWait // the same, when it failed often
	mostLater  = time.Minute                     // that a hub can have a node wait for longer
	lastsWell  = time.Minute                     // a tunnel that held for it is tried again as if it were the first
	dialBound  = 20 * time.Second
	tokenBytes = 4 << 10 // of the file with the token
)

// Options configure a Joiner.
type Options struct {
	Hub *url.URL // as ParseHub returns it
	// TokenFile has the token with which the node joins. It is read again for each
	// attempt, and the last content is used when it is gone.
	TokenFile string
	Name      string
	Labels    map[string]string
	Version   string
	Logger    *slog.Logger // nil discards
}

// Joiner keeps a gateway joined.
type Joiner struct {
	o        Options
	log      *slog.Logger
	token    string
	agents   []string
	instance string
	http     *http.Client
	streams  *listener

	mu     sync.Mutex
	joined bool
	copies bool         // the hub keeps copies of sessions, as far as is known
	since  awake.Moment // when the hub went; when there was none yet, the beginning
}

// ParseHub returns the address of a hub. Without TLS the token and all that is said
// can be read on the way, so that is for this machine only, unless insecure is set.
func ParseHub(address string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%q is not the http or https address of a hub", secret.Address(address))
	case u.User != nil:
		return nil, errors.New("the address of the hub has a password in it: the token belongs into a file")
	case u.Scheme == "http" && !insecure && !loopback(u.Hostname()):
		return nil, fmt.Errorf("%s is not on this machine, and without TLS others can read the token on its way: use https, or --join-insecure in a network that you trust", u.Host)
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// SetAgents says which agents the gateway lists, by which a hub chooses a node for a
// session. It is called before Run.
func (j *Joiner) SetAgents(names []string) { j.agents = names }

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// New returns a Joiner that has not begun. It fails when there is no token.
func New(o Options) (*Joiner, error) {
	j := &Joiner{o: o, log: o.Logger, instance: rand.Text(), streams: newListener(), copies: true, since: awake.Now()}
	if j.log == nil {
		j.log = slog.New(slog.DiscardHandler)
	}
	if err := tunnel.CheckName(o.Name); err != nil {
		return nil, err
	}
	if err := j.readToken(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = socket.Proxy
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true) // a WebSocket needs it
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.DisableKeepAlives = true // each request opens a tunnel
	transport.DialContext = tunnel.Wire(transport.DialContext)
	j.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return j, nil
}

func (j *Joiner) readToken() error {
	f, err := os.Open(j.o.TokenFile)
	if err != nil {
		return fmt.Errorf("read token for the hub: %w", err)
	}
	defer f.Close()
	b := make([]byte, tokenBytes)
	n, _ := f.Read(b) // an empty file is reported below
	token := strings.TrimSpace(string(b[:n]))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the file %s has no token for the hub", j.o.TokenFile)
	}
	j.token = token
	return nil
}

// Listener gives out the connections that come through the tunnel, of the present
// one and of those that follow. Its Close ends none of them.
func (j *Joiner) Listener() net.Listener { return j.streams }

// Tunnelled reports whether c came through a tunnel.
func Tunnelled(c net.Conn) bool {
	_, ok := c.(*stream)
	return ok
}

// Trouble says why the hub stores nothing of the sessions: it copies nothing, or has been away for
// longer than the bound. It is nil otherwise.
func (j *Joiner) Trouble(bound time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch away := j.since.Ago(); {
	case !j.copies:
		return errors.New("the hub was started with --no-replicas")
	case !j.joined && away >= bound:
		return fmt.Errorf("the gateway has not been connected to the hub for %v", away.Round(time.Second))
	}
	return nil
}

// noteJoined notes that there is a tunnel, to a hub that says whether it copies.
func (j *Joiner) noteJoined(copies bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.joined, j.copies = true, copies
}

// noteLeft notes that there is none any more.
func (j *Joiner) noteLeft() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.joined, j.since = false, awake.Now()
}

// Run keeps the gateway joined until ctx ends. Call it once.
func (j *Joiner) Run(ctx context.Context) {
	defer j.http.CloseIdleConnections()
	wait, said := firstWait, ""
	for ctx.Err() == nil {
		begun := awake.Now()
		t, err := j.dial(ctx)
		if err == nil {
			j.log.Info("joined the hub", "hub", j.o.Hub.Redacted(), "node", j.o.Name)
			err, said = j.pass(ctx, t), ""
			if begun.Ago() > lastsWell {
				wait = firstWait
			}
		}
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug
		if err.Error() != said { // the same again is no news
			level, said = slog.LevelWarn, err.Error()
		}
		pause := leastWait + mathrand.N(wait) // the nodes of a hub do not come all at once
		if l, ok := errors.AsType[*laterError](err); ok {
			pause += l.after
		}
		j.log.Log(ctx, level, "not joined to the hub", "hub", j.o.Hub.Redacted(), "err", err, "again_in", pause.Round(time.Millisecond))
		late, stop := awake.After(pause)
		select {
		case <-late:
		case <-ctx.Done():
			stop()
		}
		wait = min(2*wait, longWait)
		if err := j.readToken(); err != nil {
			j.log.Debug("the last token is used", "err", err)
		}
	}
}

// dial opens a tunnel.
func (j *Joiner) dial(ctx context.Context) (*tunnel.Tunnel, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	hello := tunnel.Hello{Name: j.o.Name, Labels: j.o.Labels, Agents: j.agents, Version: j.o.Version, Instance: j.instance, Lanes: true}
	t, resp, err := tunnel.Dial(ctx, j.http, j.o.Hub.JoinPath(tunnel.Path).String(), j.header(hello))
	switch {
	case err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("join: %w", later(resp.Header, acphttp.ReadProblem(resp)))
	case errors.Is(err, tunnel.ErrOtherProtocol):
		return nil, fmt.Errorf("join %s: %w", j.o.Hub.Redacted(), err)
	case err != nil:
		return nil, fmt.Errorf("join: %w", err)
	}
	j.noteJoined(resp.Header.Get(tunnel.HeaderCopies) != tunnel.CopiesNone)
	return t, nil
}

// header returns the headers that say h, with the token.
func (j *Joiner) header(h tunnel.Hello) http.Header {
	header := h.Header()
	header.Set("Authorization", "Bearer "+j.token)
	return header
}

// laterError is an answer that says when to come again.
type laterError struct {
	error
	after time.Duration
}

// Unwrap returns the answer.
func (e *laterError) Unwrap() error { return e.error }

// later returns err with what the header says about coming again.
func later(header http.Header, err error) error {
	seconds, bad := strconv.Atoi(header.Get("Retry-After"))
	if bad != nil || seconds <= 0 {
		return err
	}
	return &laterError{err, min(time.Duration(seconds)*time.Second, mostLater)}
}

// errBroken is why a tunnel ended that nobody closed here.
var errBroken = errors.New("the tunnel broke")

// pass gives out the streams of a tunnel until it ends, or ctx does.
func (j *Joiner) pass(ctx context.Context, t *tunnel.Tunnel) error {
	defer context.AfterFunc(ctx, func() { _ = t.Close() })()
	defer func() { _ = t.Close() }()
	defer j.noteLeft()
	give := func(c net.Conn) {
		if !j.streams.give(ctx, c) {
			_ = c.Close()
		}
	}
	var own sync.WaitGroup
	defer own.Wait()
	own.Go(func() {
		who := tunnel.Hello{Name: j.o.Name, Version: j.o.Version, Instance: j.instance}
		t.OpenLanes(j.http, j.o.Hub.JoinPath(tunnel.LanePath).String(), func() http.Header { return j.header(who) }, give)
	})
	for {
		c, err := t.Accept()
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		give(c)
	}
}
