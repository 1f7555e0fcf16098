package certificate_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/certificate"
)

// pair makes a certificate of a name and its key, as files have them.
func pair(t *testing.T, name string, end time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-90 * 24 * time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func put(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", b, 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// A certificate is renewed while the server runs: one file after the other, and once
// with a file that is no certificate.
func TestFiles_Renewed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := pair(t, "first", time.Now().Add(time.Hour))
	put(t, certFile, cert)
	put(t, keyFile, key)
	said := new(lines)
	files, err := certificate.Open(certFile, keyFile, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- files.Serve(srv, ln) }()
	defer func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	shown := func(want string) {
		t.Helper()
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // whose it is, is what is looked at
		conn, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("%s is shown, want %s", got, want)
		}
	}
	shown("first")
	cert, key = pair(t, "second", time.Now().Add(2*time.Hour))
	put(t, certFile, cert)
	shown("first") // its key is not there yet
	if !strings.Contains(said.String(), "cannot be used") {
		t.Errorf("nothing was said: %s", said)
	}
	put(t, keyFile, key)
	shown("second")
	put(t, certFile, []byte("not a certificate"))
	shown("second")
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	shown("second")
	cert, key = pair(t, "third", time.Now().Add(-time.Hour))
	put(t, certFile, cert)
	put(t, keyFile, key)
	shown("third")
	if !strings.Contains(said.String(), "has expired") {
		t.Errorf("that it has expired was not said: %s", said)
	}
}

func TestOpen_NoCertificate(t *testing.T) {
	if files, err := certificate.Open("", "", slog.Default()); files != nil || err != nil {
		t.Errorf("without names: %v, %v", files, err)
	}
	if _, err := certificate.Open(filepath.Join(t.TempDir(), "none"), "none", slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
}
