package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/certificate"
)

// PeerTLS says how other hubs of the store are reached. The zero value reaches them as they say.
type PeerTLS struct {
	// Only refuses hubs that say an address without TLS: the secret of hubs would go there in plain text.
	Only bool
	// Authorities check the certificates of hubs, nil are those of the system.
	Authorities *certificate.Authorities
}

// Why a hub could not be asked, as metrics say it.
const (
	peerPlain       = "plain"       // it has no TLS, and this one wants it
	peerCertificate = "certificate" // it has one that is not trusted here
	peerUnreachable = "unreachable"
)

var peerReasons = []string{peerPlain, peerCertificate, peerUnreachable}

// maxComplaints bounds the hubs of which it is known what the log says; with one more all are forgotten.
const maxComplaints = 64

// peering carries requests to other hubs. What is wrong with one of them is counted each time, and
// logged when it begins and when it ends. It is safe for concurrent use.
type peering struct {
	o      PeerTLS
	log    *slog.Logger
	failed func(reason string)

	mu         sync.Mutex
	pool       *x509.CertPool // of the transport
	transport  *http.Transport
	complaints map[string]string // why, by the address of the hub
}

func newPeering(o PeerTLS, log *slog.Logger, failed func(reason string)) *peering {
	return &peering{o: o, log: log, failed: failed, complaints: map[string]string{}}
}

// current returns the transport with the authorities of now.
func (p *peering) current() *http.Transport {
	pool := p.o.Authorities.Pool()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transport != nil && p.pool == pool {
		return p.transport
	}
	if p.transport != nil {
		p.transport.CloseIdleConnections() // what goes through it ends by itself
	}
	p.pool, p.transport = pool, newPeers(pool)
	return p.transport
}

// RoundTrip implements [http.RoundTripper].
func (p *peering) RoundTrip(r *http.Request) (*http.Response, error) {
	hub := r.URL.Host
	if p.o.Only && r.URL.Scheme != "https" {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		err := &peerError{peerPlain, false, fmt.Errorf("the hub at %s says an address without TLS, and this one sends nothing there: start it with --tls-cert, --tls-key and an https address in --advertise", hub)}
		p.complain(hub, err)
		return nil, err
	}
	sent := false // perhaps
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	resp, err := p.current().RoundTrip(r.WithContext(ctx))
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		// It is the secret that is not known there, not the token of the client, and a node asks for none.
		_ = resp.Body.Close()
		sent = false // it was not let in
		err = fmt.Errorf("what answers at %s does not know that hub's secret: it is a new run of the hub, of which the store tells in some seconds, or another program, and then its --advertise is wrong", hub)
	}
	if err == nil {
		p.settled(hub)
		return resp, nil
	}
	if r.Context().Err() != nil {
		return nil, err // the client is gone
	}
	e := &peerError{reasonOf(err), sent, err}
	p.complain(hub, e)
	return nil, e
}

// toPeer carries requests to one hub. A machine that is lost, or stopped, closes no connection: what is
// open there ends when the hub lives no more.
type toPeer struct {
	peers *peering
	over  context.Context
}

// RoundTrip implements [http.RoundTripper].
func (t toPeer) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	unhook := context.AfterFunc(t.over, cancel)
	resp, err := t.peers.RoundTrip(r.WithContext(ctx))
	if err != nil {
		unhook()
		cancel()
		if _, known := errors.AsType[*peerError](err); !known && r.Context().Err() == nil { // the hub is over
			e := &peerError{peerUnreachable, true, errors.New("the hub did not answer, and the store has heard nothing of it either")}
			t.peers.complain(r.URL.Host, e)
			err = e
		}
		return nil, err
	}
	conn, upgraded := resp.Body.(io.ReadWriteCloser)
	if !upgraded {
		resp.Body = &peerBody{resp.Body, func() { unhook(); cancel() }}
		return resp, nil
	}
	unhook() // the context ends it no more
	cancel()
	resp.Body = &peerConn{conn, context.AfterFunc(t.over, func() { _ = conn.Close() })} // it has nothing to say any more
	return resp, nil
}

// peerBody is the body of an answer of another hub.
type peerBody struct {
	io.ReadCloser
	done func()
}

// Close implements [io.Closer].
func (b *peerBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// peerConn is a WebSocket to another hub.
type peerConn struct {
	io.ReadWriteCloser
	unhook func() bool
}

// CloseWrite says that nothing more is written. What comes is read further.
func (c *peerConn) CloseWrite() error {
	if half, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close implements [io.Closer].
func (c *peerConn) Close() error {
	c.unhook()
	return c.ReadWriteCloser.Close()
}

// reasonOf says what an error of a connection is about.
func reasonOf(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return peerCertificate
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return peerPlain
	}
	return peerUnreachable
}

// complain counts a failure, and logs it unless it is that of before.
func (p *peering) complain(hub string, err *peerError) {
	p.failed(err.reason)
	p.mu.Lock()
	known := p.complaints[hub] == err.reason
	if len(p.complaints) >= maxComplaints {
		clear(p.complaints)
	}
	p.complaints[hub] = err.reason
	p.mu.Unlock()
	if !known {
		p.log.Warn("another hub cannot be asked, and its nodes are away for clients of this one", "hub", hub, "reason", err.reason, "err", err)
	}
}

// settled notes that a hub has answered.
func (p *peering) settled(hub string) {
	p.mu.Lock()
	_, had := p.complaints[hub]
	delete(p.complaints, hub)
	p.mu.Unlock()
	if had {
		p.log.Info("another hub can be asked again", "hub", hub)
	}
}

// CloseIdleConnections closes what nobody uses.
func (p *peering) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
}

// peerError is why a hub could not be asked.
type peerError struct {
	reason string
	sent   bool // perhaps: what was asked may have been done
	err    error
}

// Error implements error.
func (e *peerError) Error() string { return e.err.Error() }

// Unwrap returns what the connection said.
func (e *peerError) Unwrap() error { return e.err }

// toClient says to a client why the hub that holds a node cannot be asked. The log says more.
func (e *peerError) toClient() string {
	switch e.reason {
	case peerPlain:
		return "has no TLS, which this hub wants; who runs them finds more in the log"
	case peerCertificate:
		return "shows a certificate that is not trusted here; who runs them finds more in the log"
	}
	return "could not be reached: try again"
}

// ofPeer returns what a client is told of an error of a request to a node, when it is one of the way to
// the hub that holds the node.
func (h *Hub) ofPeer(node string, err error) error {
	e, ok := errors.AsType[*peerError](err)
	if !ok {
		return err
	}
	n, _ := h.o.Store.Node(node)
	return problem.New(problem.NodeOffline, "%s is connected to the hub %s, which %s", node, n.Hub, e.toClient())
}
