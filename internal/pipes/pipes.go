// Package pipes serves HTTP to tests on connections that are in this program, so that their time is the test's.
package pipes

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Listener is where such connections come from.
type Listener chan net.Conn

// Serve serves h until the test ends.
func Serve(t testing.TB, h http.Handler) Listener {
	t.Helper()
	l := make(Listener)
	var serving sync.WaitGroup
	srv := &http.Server{Handler: h, Protocols: protocols(true, true), ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			serving.Add(1)
		case http.StateClosed, http.StateHijacked:
			serving.Done()
		}
	}}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		close(l)
		_ = srv.Close()
		<-served
		serving.Wait()
	})
	return l
}

// Accept implements [net.Listener].
func (l Listener) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements [net.Listener].
func (l Listener) Close() error { return nil }

// Addr implements [net.Listener].
func (l Listener) Addr() net.Addr { return &net.UnixAddr{} }

// Dial returns the client's end of a new connection.
func (l Listener) Dial() net.Conn {
	near, far := net.Pipe()
	l <- far
	return near
}

// Transport returns what sends requests over such connections, with HTTP/2 if two is set, else with HTTP/1.
func (l Listener) Transport(t testing.TB, two bool) *http.Transport {
	transport := &http.Transport{
		Protocols:   protocols(!two, two),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return sending{l.Dial()}, nil },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// sending is a client's end as a system has it: what is sent to a server that has closed its end is lost without an error, so that the answer which came
// before is read.
type sending struct{ net.Conn }

// Write implements [net.Conn].
func (s sending) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		return len(p), nil
	}
	return n, err
}

func protocols(one, two bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(one)
	p.SetUnencryptedHTTP2(two)
	return p
}
