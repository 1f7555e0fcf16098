// Package certificate has what a server shows of itself with TLS: a certificate in
// files, which somebody renews while the server runs.
package certificate

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Files are a certificate with its key. They are looked at with each handshake, so that
// those in use are the ones on the disk. All methods are safe for concurrent use; nil is
// a server without TLS.
type Files struct {
	cert, key string
	log       *slog.Logger

	mu   sync.Mutex
	seen stamp            // of the files that were read last, whether they could be used or not
	pair *tls.Certificate // the last that could be used
}

// stamp tells files apart that were replaced or written to; nil is one that is not there.
type stamp struct{ cert, key os.FileInfo }

func (s stamp) equal(other stamp) bool { return same(s.cert, other.cert) && same(s.key, other.key) }

// same compares the files, too: a new one can have the size and the time of the old one.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Open reads the files; without names it returns nil.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	f := &Files{cert: cert, key: key, log: log}
	f.seen = f.look()
	pair, err := f.read()
	if err != nil {
		return nil, err
	}
	f.pair = pair
	return f, nil
}

// Serve answers ln with srv until either is closed, as [http.Server.Serve] does.
func (f *Files) Serve(srv *http.Server, ln net.Listener) error {
	if f == nil {
		return srv.Serve(ln)
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return f.current(), nil
	}}
	return srv.ServeTLS(ln, "", "")
}

// current is the certificate of the files. While they cannot be used, as between the
// replacing of one and of the other, it is the last that could.
func (f *Files) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.look()
	if now.equal(f.seen) {
		return f.pair
	}
	f.seen = now
	pair, err := f.read()
	if err != nil {
		f.log.Warn("the new TLS certificate cannot be used, the one before goes on being shown", "error", err)
		return f.pair
	}
	f.log.Info("a new TLS certificate is shown", "until", pair.Leaf.NotAfter)
	f.pair = pair
	return pair
}

func (f *Files) look() stamp { return stamp{infoOf(f.cert), infoOf(f.key)} }

func infoOf(name string) os.FileInfo {
	info, err := os.Stat(name)
	if err != nil {
		return nil
	}
	return info
}

func (f *Files) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read TLS certificate: %w", err)
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		f.log.Warn("the TLS certificate has expired", "file", f.cert, "until", end)
	}
	return &pair, nil
}
