package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	stdlog "log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/internal/claim"
)

func TestServer_Protocols(t *testing.T) {
	cert, key := selfSigned(t)
	plain, _ := start(t)
	secure, _ := start(t, "--tls-cert", cert, "--tls-key", key)
	tests := []struct {
		name, url string
		set       func(*http.Protocols)
		major     int
	}{
		{"HTTP/1.1", plain, func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		{"HTTP/2 by prior knowledge", plain, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, 2},
		{"TLS, HTTP/1.1", secure, func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		{"TLS, HTTP/2", secure, func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			tt.set(tr.Protocols)
			defer tr.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), "GET", tt.url+"/v2/health", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.ProtoMajor != tt.major || resp.StatusCode != 200 || !strings.Contains(string(body), "ok") {
				t.Errorf("%s %d %s", resp.Proto, resp.StatusCode, body)
			}
		})
	}
}

// selfSigned writes a certificate for this machine and its key.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestServer_SignalEndsItInOrder(t *testing.T) {
	cfg, err := configOf(t, "--port", "0", "--data-dir", t.TempDir(), "--log-format", "json", "--default-agent", "mock")
	if err != nil {
		t.Fatal(err)
	}
	log, signals, done := newScreen(), make(chan os.Signal, 2), make(chan error, 1)
	go func() {
		done <- serve(context.Background(), cfg, signals, stdio{in: strings.NewReader(""), out: io.Discard, err: log})
	}()
	url := log.await(t, `http://[\d.:]+`)
	_, _, errOut := tool(t, "", "prompt", "hello", "--endpoint", url)
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
	api, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	followed, open := make(chan error, 1), make(chan struct{})
	go func() {
		var ended error
		for _, err := range api.FollowEvents(context.Background(), id, 0, func() { close(open) }) {
			ended = err
		}
		followed <- ended
	}()
	select {
	case <-open:
	case err := <-followed:
		t.Fatalf("the stream is not there: %v", err)
	}
	signals <- syscall.SIGTERM
	if err := <-done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if err := <-followed; err != nil {
		t.Errorf("the open stream was cut: %v", err)
	}
	for line := range strings.Lines(log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if code := cmdline.SignalExit(syscall.SIGTERM); code != 143 {
		t.Errorf("exit code %d for SIGTERM, want 143", code)
	}
}

func TestServer_PortInUse(t *testing.T) {
	url, _ := start(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	code, _, errOut := tool(t, "", "server", "--ephemeral", "--port", port)
	if code != cmdline.ExitFailure || !strings.Contains(errOut, "127.0.0.1:"+port+" is in use") || !strings.Contains(errOut, "which is a gateway already: use that one (sandbox-agent prompt --endpoint "+url+" ...)") {
		t.Errorf("exit %d, %q", code, errOut)
	}
	if goruntime.GOOS == "linux" && !strings.Contains(errOut, fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("the process is not named: %q", errOut)
	}
	// Who starts a second one usually wants the first.
	dir := t.TempDir()
	unlock, err := claim.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	code, _, errOut = tool(t, "", "server", "--data-dir", dir, "--port", port)
	if code != cmdline.ExitFailure || !strings.Contains(errOut, "give another --data-dir; a gateway answers at "+url+", which you can use") {
		t.Errorf("exit %d, %q", code, errOut)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, _ = net.SplitHostPort(other.Addr().String())
	code, _, errOut = tool(t, "", "server", "--ephemeral", "--port", port)
	if code != cmdline.ExitFailure || !strings.Contains(errOut, "stop that program, or give another --port") {
		t.Errorf("exit %d, %q", code, errOut)
	}
}

// What answers is known by what it says, not by that it answers.
func TestServer_PortInUseByOthers(t *testing.T) {
	for _, tt := range []struct {
		health string
		tls    bool
		want   string
	}{
		{"<html>welcome</html>", false, "stop that program, or give another --port"},
		{"<html>welcome</html>", true, "stop that program, or give another --port"},
		{`{"status":"fine"}`, false, "stop that program, or give another --port"},
		{`{"status":"ok"}`, true, "a gateway already: use that one (sandbox-agent prompt --endpoint https://127.0.0.1:"},
		{`{"status":"ok","role":"hub"}`, false, "which is a hub: stop it, or give this gateway another --port"},
	} {
		t.Run(fmt.Sprintf("%s %t", tt.health, tt.tls), func(t *testing.T) {
			other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.health) }))
			other.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it is asked without TLS, too
			if tt.tls {
				other.StartTLS()
			} else {
				other.Start()
			}
			defer other.Close()
			_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
			code, _, errOut := tool(t, "", "server", "--ephemeral", "--port", port)
			if code != cmdline.ExitFailure || !strings.Contains(errOut, tt.want) {
				t.Errorf("exit %d, %q, want %q", code, errOut, tt.want)
			}
		})
	}
}

func TestServer_DataDirInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	unlock, err := claim.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	code, _, errOut := tool(t, "", "server", "--port", "0", "--data-dir", dir)
	for _, want := range []string{"in use by another process (process ", "--data-dir", dir} {
		if code != cmdline.ExitFailure || !strings.Contains(errOut, want) {
			t.Errorf("exit %d, no %q in %q", code, want, errOut)
		}
	}
	unlock()
	if unlock, err = claim.Dir(dir); err != nil {
		t.Errorf("after it was given up: %v", err)
	} else {
		unlock()
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v, want 0700", info.Mode(), err)
	}
}

func TestServer_LogFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	url, out := start(t, "--log-file", file, "--log-level", "debug")
	if code, _, errOut := tool(t, "", "health", "--endpoint", url); code != cmdline.ExitOK {
		t.Fatal(errOut)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), "msg=listening") || !strings.Contains(string(b), "path=/v2/health") {
		t.Errorf("%v in %s", err, b)
	}
	if strings.Contains(out.String(), "msg=") {
		t.Errorf("the log is on the standard error as well:\n%s", out)
	}
}

// A gateway that cannot write at its end what it knows of a session has failed, and says which.
func TestServer_RecordThatCannotBeWrittenAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	log, done := newScreen(), make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"server", "--port", "0", "--no-token", "--data-dir", dir, "--default-agent", "mock"}, stdio{in: strings.NewReader(""), out: io.Discard, err: log})
	}()
	url := log.await(t, `https?://[\w.\[\]:]+:\d+`)
	if code, _, errOut := tool(t, "", "prompt", "--endpoint", url, "echo hi"); code != 0 {
		t.Errorf("%d %s", code, errOut)
	}
	folders, err := filepath.Glob(filepath.Join(dir, "sessions", "*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%q, %v", folders, err)
	}
	if err := os.Rename(filepath.Join(dir, "sessions"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if code := <-done; code != cmdline.ExitFailure || !strings.Contains(log.String(), "error: end sessions: ") || !strings.Contains(log.String(), filepath.Base(folders[0])) {
		t.Errorf("it ended with %d:\n%s", code, log)
	}
}
