package main_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The official SDK, as it is published, over both of its transports.
func TestOfficialSDK(t *testing.T) {
	dir := filepath.Join("testdata", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	for _, transport := range []string{"http", "ws"} {
		for _, tok := range []string{"", token} {
			name := transport
			var flags []string
			if tok != "" {
				name += " with token"
				flags = []string{"--token", tok}
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t, flags...)
				ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, "node", "official.mjs", transport, g.url+"/v2/rpc", tok, "mock")
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil || !bytes.HasSuffix(bytes.TrimSpace(out), []byte("ok")) {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// What the README shows, typed into a shell.
func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	g := startGateway(t)
	curl := func(args ...string) (header, body string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, "curl", slices.Concat([]string{"-sS", "-i", g.url + "/v2/rpc", "-H", "Content-Type: application/json"}, args)...).CombinedOutput()
		if err != nil {
			t.Fatalf("curl: %v\n%s", err, out)
		}
		header, body, _ = strings.Cut(string(out), "\r\n\r\n")
		return header, body
	}
	header, _ := curl("-d", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},"_meta":{"sandboxagent.dev":{"agent":"mock"}}}}`)
	id := ""
	for line := range strings.Lines(header) {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "X-ACP-Connection-Id") {
			id = strings.TrimSpace(value)
		}
	}
	if id == "" {
		t.Fatalf("no connection id in %s", header)
	}
	conn := "X-ACP-Connection-Id: " + id

	// The stream may be opened at any time; here it is before the prompt.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := exec.CommandContext(ctx, "curl", "-sSN", g.url+"/v2/rpc", "-H", "Accept: text/event-stream", "-H", conn)
	stream, err := events.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := events.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = events.Wait()
	}()

	_, body := curl("-H", conn, "-d", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}`)
	var m struct {
		Result struct{ SessionID string }
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Result.SessionID == "" {
		t.Fatalf("session/new: %v, %s", err, body)
	}
	_, body = curl("-H", conn, "-d", `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"`+m.Result.SessionID+`","prompt":[{"type":"text","text":"echo from-the-shell"}]}}`)
	if !strings.Contains(body, `"end_turn"`) {
		t.Errorf("session/prompt: %s", body)
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "from-the-shell") || !strings.Contains(seen.String(), "id: 1\n") {
		n, err := stream.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("the event stream ended: %v\n%s", err, seen.String())
		}
	}
}

// turnOver runs a turn of the inline dialect over an HTTP client of its own.
func turnOver(t *testing.T, g *gateway, hc *http.Client, proto string) {
	t.Helper()
	post := func(id, body string) (*http.Response, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v2/rpc", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		g.authorize(req.Header)
		if id != "" {
			req.Header.Set("X-ACP-Connection-Id", id)
		}
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Proto != proto {
			t.Fatalf("%s %s, %v: %s", resp.Proto, resp.Status, err, b)
		}
		return resp, b
	}
	resp, _ := post("", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`)
	id := resp.Header.Get("X-ACP-Connection-Id")
	_, b := post(id, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}`)
	var m struct {
		Result struct{ SessionID string }
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if _, b = post(id, `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"`+m.Result.SessionID+`","prompt":[{"type":"text","text":"stream 1000"}]}}`); !bytes.Contains(b, []byte("end_turn")) {
		t.Errorf("the turn ended with %s", b)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/v2/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	g.authorize(req.Header)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("X-ACP-Connection-Id", id)
	resp, err = hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Proto != proto {
		t.Errorf("the stream is %s, want %s", resp.Proto, proto)
	}
	c := &client{t: t, g: g, kind: inline, wake: make(chan struct{}), waiting: map[string]chan message{}, check: checker(t)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var last uint64
		_ = c.read(resp.Body, &last)
	}()
	c.awaitChunks(m.Result.SessionID, 0, 1000)
	resp.Body.Close()
	<-done
}

func TestHTTP2_ClearText(t *testing.T) {
	g := startGateway(t)
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	defer tr.CloseIdleConnections()
	turnOver(t, g, &http.Client{Transport: tr}, "HTTP/2.0")
}

func TestHTTP2_TLS(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if help, _ := exec.CommandContext(t.Context(), bin, "server", "--help").CombinedOutput(); !bytes.Contains(help, []byte("--tls-cert")) {
		t.Skip("this gateway has no flag --tls-cert")
	}
	cert, key, pool := certificate(t)
	g := newGateway(t, "--tls-cert", cert, "--tls-key", key)
	g.transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer g.transport.CloseIdleConnections()
	g.start()
	turnOver(t, g, &http.Client{Transport: g.transport}, "HTTP/2.0")
	one := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}}}
	defer one.CloseIdleConnections()
	turnOver(t, g, &http.Client{Transport: one}, "HTTP/1.1")
}

// certificate makes a certificate for the loopback address.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
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
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return certFile, keyFile, pool
}

func TestLongTurn_GetsHeadersAndSpaces(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 50 seconds")
	}
	t.Parallel()
	g := startGateway(t, "--request-timeout", "10s") // the start of an agent is one, too
	c := connect(t, g, inline, options{})
	s := c.newSession()
	body := c.frame(json.RawMessage(`"long"`), "session/prompt", promptParams(s, "slow"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v2/rpc", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(c.kind.header(), c.id)
	begin := time.Now()
	resp, err := (&http.Client{Transport: &http.Transport{DisableCompression: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if d := time.Since(begin); resp.StatusCode != http.StatusOK || d < 25*time.Second || d > 40*time.Second {
		t.Errorf("%s after %v, want 200 after 30 s", resp.Status, d)
	}
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		t.Errorf("content type %q", ct)
	}
	one := make([]byte, 1)
	if _, err := resp.Body.Read(one); err != nil || one[0] != ' ' {
		t.Fatalf("the body begins with %q, %v; want a space", one, err)
	}
	if d := time.Since(begin); d < 25*time.Second || d > 60*time.Second {
		t.Errorf("the first space came after %v", d)
	}
	c.notify("session/cancel", map[string]any{"sessionId": s})
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(rest, &m); err != nil || string(m.ID) != `"long"` || stopReason(t, m.Result) != "cancelled" {
		t.Errorf("the body ends with %s, %v", rest, err)
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second // agents start within it, too
	g := startGateway(t, "--request-timeout", limit.String())
	type asking struct {
		*client
		session string
		answer  <-chan message
	}
	var all []*asking
	for _, kind := range dialects {
		c := connect(t, g, kind, options{})
		a := &asking{client: c, session: c.newSession()}
		c.prompt(a.session, "hello")
		all = append(all, a)
	}
	stopped := g.agents()
	if len(stopped) == 0 {
		t.Skip("no agent process to stop")
	}
	for _, p := range stopped {
		if err := kill(p.pid, sigStop); err != nil {
			t.Fatal(err)
		}
		awaitStopped(t, p.pid)
	}
	begin := time.Now()
	for _, a := range all {
		a.answer = a.start("_example.com/never_answered", map[string]any{"sessionId": a.session})
	}
	for _, a := range all {
		_, err := a.wait(a.answer)
		if took := time.Since(begin); err == nil || took < limit/2 || took > 3*limit {
			t.Errorf("%s: %v after %v, want an error after %v", a.kind, err, took, limit)
		} else if a.kind == inline && !strings.Contains(err.Error(), "504") || a.kind != inline && !isCode(err, -32603) {
			t.Errorf("%s: %v", a.kind, err)
		}
	}
	for _, p := range stopped {
		if err := kill(p.pid, sigCont); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	for _, a := range all {
		if r := a.prompt(a.session, "echo still here"); r != "end_turn" {
			t.Errorf("%s: the next turn ended with %s", a.kind, r)
		}
	}
}

// A sandbox that is paused, as a snapshot or a suspended machine is, has not used up
// anybody's time when it goes on: the turn is as it was.
func TestPaused_TurnGoesOn(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Second
	g := startGateway(t, "--turn-idle-timeout", limit.String(), "--request-timeout", limit.String())
	c := connect(t, g, standard, options{})
	s, begins := c.newSession(), c.newSession()
	c.stream(s)
	c.stream(begins)
	c.call("session/close", map[string]any{"sessionId": begins})
	c.call("session/load", map[string]any{"sessionId": begins, "cwd": "/", "mcpServers": []any{}})
	turn := c.start("session/prompt", promptParams(s, "slow"))
	isChunk := func(m *message) bool { return strings.Contains(string(m.Params), "agent_message_chunk") }
	c.find(0, "a chunk", isChunk)
	agents := g.agents()
	pause := func(sig syscall.Signal, pid int) {
		if err := kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range agents {
		pause(sigStop, p.pid)
		awaitStopped(t, p.pid)
	}
	first := c.start("session/prompt", promptParams(begins, "echo hi")) // the agent is asked to open the session
	for deadline := time.Now().Add(patience); !bytes.Contains(g.get("/v2/sessions/"+begins, nil), []byte(`"state":"running"`)); {
		if time.Now().After(deadline) {
			t.Fatal("the second turn is not under way")
		}
	}
	pause(sigStop, g.cmd.Process.Pid)
	awaitStopped(t, g.cmd.Process.Pid)
	time.Sleep(limit + 2*time.Second) // the machine sleeps; every timer in it is due behind this
	pause(sigCont, g.cmd.Process.Pid)
	g.get("/v2/health", nil)
	time.Sleep(500 * time.Millisecond) // what was due has happened by now
	for _, p := range agents {
		pause(sigCont, p.pid)
	}
	c.find(c.mark(), "a chunk behind the pause", isChunk)
	if res, err := c.wait(first); err != nil || stopReason(t, res) != "end_turn" {
		t.Errorf("the turn that was about to begin ended with %s, %v", res, err)
	}
	c.notify("session/cancel", map[string]any{"sessionId": s})
	if res, err := c.wait(turn); err != nil || stopReason(t, res) != "cancelled" {
		t.Errorf("the turn ended with %s, %v", res, err)
	}
	if log := g.stderr.String(); strings.Contains(log, "cancel silent turn") {
		t.Error("the turn was cancelled for the time in which nothing ran")
	}
}

// awaitStopped waits until a process that was sent SIGSTOP stands still: all of
// its threads must have seen it.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, name := range tasks {
			b, err := os.ReadFile(name)
			if err == nil && !strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " T") {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}
