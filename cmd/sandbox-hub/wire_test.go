package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire passes TCP connections on to an address until they are cut.
type wire struct {
	ln net.Listener

	mu    sync.Mutex
	to    string
	rough bool // bytes come late, and in pieces of any size
	open  map[net.Conn]bool
	own   sync.WaitGroup
}

// roughly copies like a bad network.
func roughly(to io.Writer, from io.Reader) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b[:1+mathrand.IntN(len(b))])
		if mathrand.IntN(20) == 0 {
			time.Sleep(time.Duration(mathrand.IntN(int(30 * time.Millisecond))))
		}
		if n > 0 {
			if _, failed := to.Write(b[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{ln: ln, to: to, open: map[net.Conn]bool{}}
	w.own.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.own.Go(func() { w.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		w.cut()
		w.own.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.ln.Addr().String() }

func (w *wire) pass(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	to, transfer := w.to, func(to io.Writer, from io.Reader) { _, _ = io.Copy(to, from) }
	if w.rough {
		transfer = roughly
	}
	w.mu.Unlock()
	var d net.Dialer
	up, err := d.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	w.mu.Lock()
	w.open[c], w.open[up] = true, true
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { transfer(up, c); _ = up.Close() })
	both.Go(func() { transfer(c, up); _ = c.Close() })
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	delete(w.open, up)
}

// lead has further connections passed on to another address.
func (w *wire) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

// cut ends all connections; further ones are passed on again.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
}

// forwarder is a proxy that knows CONNECT, and one address behind every name.
type forwarder struct {
	addr string

	mu    sync.Mutex
	asked string
}

func (p *forwarder) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func connectProxy(t *testing.T, to string) *forwarder {
	t.Helper()
	w := newWire(t, to)
	p := &forwarder{}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(rw, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		p.mu.Lock()
		p.asked = r.Host
		p.mu.Unlock()
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			w.own.Go(func() { w.pass(c) })
		}
	}))
	t.Cleanup(srv.Close)
	p.addr = strings.TrimPrefix(srv.URL, "http://")
	return p
}

// selfSigned makes one for a name and this machine, and returns its file and that of
// its key.
func selfSigned(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// leads reports whether new connections go to an address.
func (w *wire) leads(to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to == to
}
