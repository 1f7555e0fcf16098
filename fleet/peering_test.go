package fleet_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
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

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/certificate"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign writes a certificate for an address, and its key, into the files cert.pem and key.pem.
func (a *authority) sign(dir, ip string, until time.Time) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.ParseIP(ip)}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	replace(a.t, filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	replace(a.t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// replace puts a file in the place of another one, as those who renew certificates do.
func replace(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// Hubs that have TLS reach each other by it and in no other way, and say what is wrong with the
// certificate of one of them, which may be mended while they run.
func TestPeers_OverTLS(t *testing.T) {
	dir, known, strange := t.TempDir(), newAuthority(t, "ours"), newAuthority(t, "somebody's")
	known.sign(dir, "127.0.0.1", time.Now().Add(time.Hour))
	shown, err := certificate.Open(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	ca := filepath.Join(dir, "ca.pem")
	replace(t, ca, known.pem)
	authorities, err := certificate.OpenAuthorities(ca, logger)
	if err != nil {
		t.Fatal(err)
	}
	nats := natsServer(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// It holds the node. Its other listener is for the test and for the node.
	one := startHubWith(t, "one", store.Options{URL: nats, Advertise: "https://" + ln.Addr().String()}, false)
	srv := &http.Server{Handler: one.hub, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), ReadHeaderTimeout: patience}
	srv.SetKeepAlivesEnabled(false) // each request shows the certificate
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = shown.Serve(srv, ln) // it ends with the test
	}()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	two := startHubThat(t, "two", store.Options{URL: nats}, fleet.Options{Peers: fleet.PeerTLS{Only: true, Authorities: authorities}, Logger: logger})
	asked := make(chan struct{}, 16)
	bare := startHubOn(t, "bare", store.Options{URL: nats, Advertise: advertised})
	bare.join("plain", bare.joinToken(), nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	one.box("box", nil)
	two.awaitState("box", fleet.StateOnline)
	two.awaitState("plain", fleet.StateOnline)
	ask := func(node string) (int, string) {
		status, body := two.ask(http.MethodGet, "/nodes/"+node+"/v2/sessions", adminToken, nil)
		return status, string(body)
	}
	failures := func(reason string) (n int) {
		_, body := two.ask(http.MethodGet, "/metrics", adminToken, nil)
		_, rest, _ := strings.Cut(string(body), `sandbox_hub_peer_failures_total{reason="`+reason+`"} `)
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	two.await("the node is reached by TLS", func() bool { status, _ := ask("box"); return status == http.StatusOK })
	c := two.hello(adminToken)
	c.session("box") // over a WebSocket

	// A certificate that is wrong is named, each time in a new way, and the hub goes on.
	complaints := 0
	for _, tt := range []struct {
		what, says string
		spoil      func()
	}{
		{"of an authority that is not known", "unknown authority", func() { strange.sign(dir, "127.0.0.1", time.Now().Add(time.Hour)) }},
		{"that has expired", "expired", func() { known.sign(dir, "127.0.0.1", time.Now().Add(-time.Hour)) }},
		{"of another address", "127.0.0.2", func() { known.sign(dir, "127.0.0.2", time.Now().Add(time.Hour)) }},
	} {
		before, said := failures("certificate"), log.count(tt.says)
		tt.spoil()
		for range 2 {
			if status, body := ask("box"); status != http.StatusServiceUnavailable || kindOf([]byte(body)) != "node_offline" || !strings.Contains(body, "a certificate that is not trusted here") {
				t.Errorf("a certificate %s: %d %s", tt.what, status, body)
			}
		}
		if got := failures("certificate") - before; got != 2 {
			t.Errorf("a certificate %s: %d failures are counted, want 2", tt.what, got)
		}
		if got := log.count(tt.says) - said; got != 1 {
			t.Errorf("a certificate %s: the log says %q %d times, want once", tt.what, tt.says, got)
		}
		// A new one is taken, without a start of either.
		known.sign(dir, "127.0.0.1", time.Now().Add(time.Hour))
		if status, body := ask("box"); status != http.StatusOK {
			t.Errorf("after a certificate %s: %d %s", tt.what, status, body)
		}
		if complaints++; log.count("another hub can be asked again") != complaints {
			t.Errorf("after a certificate %s: the log does not say that it is over", tt.what)
		}
	}
	// So is a new authority; one that cannot be read changes nothing.
	strange.sign(dir, "127.0.0.1", time.Now().Add(time.Hour))
	replace(t, ca, append(bytes.Clone(known.pem), strange.pem...))
	if status, body := ask("box"); status != http.StatusOK {
		t.Errorf("with a new authority: %d %s", status, body)
	}
	replace(t, ca, []byte("nothing"))
	if status, body := ask("box"); status != http.StatusOK || log.count("cannot be used") != 1 {
		t.Errorf("with an authority that cannot be read: %d %s", status, body)
	}

	// A hub without TLS is sent nothing, not even the secret.
	if status, body := ask("plain"); status != http.StatusServiceUnavailable || !strings.Contains(body, "has no TLS") || failures("plain") != 1 || log.count("reason=plain") != 1 || len(asked) != 0 {
		t.Errorf("a hub in plain text: %d %s, asked %d times", status, body, len(asked))
	}
}
