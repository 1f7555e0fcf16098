package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener of one connection in this program, whose time is the test's.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// An answer goes on when more of it comes, however long its node takes for that; who does not read it is waited for no
// longer than a while.
func TestRecorder_Deadline(t *testing.T) {
	const part = 8 << 20 // more than is on its way at one time
	for _, two := range []bool{false, true} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("HTTP2=%v, reads=%v", two, reads), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ends := make(chan error, 1)
					began := time.Now()
					handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						rec := newRecorder(w, r)
						var err error
						for i := range 3 {
							if i > 0 {
								time.Sleep(3 * writeBound) // as its node takes
							}
							if _, err = rec.Write(make([]byte, part)); err == nil {
								err = rec.FlushError()
							}
							if err != nil {
								break
							}
						}
						rec.finish()
						ends <- err
					})
					protocols := new(http.Protocols)
					protocols.SetHTTP1(!two)
					protocols.SetUnencryptedHTTP2(two)
					near, far := net.Pipe()
					conns := make(oneConn, 1)
					conns <- far
					srv := &http.Server{Handler: handler, Protocols: protocols}
					served := make(chan struct{})
					go func() { defer close(served); _ = srv.Serve(conns) }()
					transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
					defer func() {
						transport.CloseIdleConnections()
						_ = near.Close()
						close(conns)
						_ = srv.Close()
						<-served
					}()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub/", nil)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := (&http.Client{Transport: transport}).Do(r)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if !reads {
						if err := <-ends; err == nil || time.Since(began) > 2*writeBound {
							t.Errorf("it ended with %v after %v", err, time.Since(began))
						}
						return
					}
					n, err := io.Copy(io.Discard, resp.Body)
					if err != nil || n != 3*part {
						t.Errorf("%d bytes came, %v", n, err)
					}
					if err := <-ends; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
