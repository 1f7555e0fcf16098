package main_test

import (
	"bytes"
	wire "encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Clients that stand still share one bound with all others, however they do it: they leave
// a large event unread, or a message half sent. The process stays below what it is given,
// and a client that behaves goes on.
func TestMemory_OfClientsThatStandStill(t *testing.T) {
	t.Parallel()
	const (
		most    = 256 << 20
		clients = 25 // of each kind
		large   = 12 << 20
	)
	g := newGateway(t, "--max-memory", fmt.Sprint(most), "--log-level", "error")
	g.withoutRace()
	g.start()
	good := connect(t, g, wsocket, options{})
	session := good.newSession()
	if r := good.prompt(session, fmt.Sprintf("stream 1 %d", large)); r != "end_turn" {
		t.Fatalf("the turn ended with %s", r)
	}
	// dial sends a request over a connection that reads nothing.
	dial := func(head, more string, body []byte) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", head, strings.TrimPrefix(g.url, "http://"), more)
		go func() { _, _ = conn.Write(body) }() // until the connection ends
	}
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	load := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":%q,"cwd":"/","mcpServers":[]}}`, session)
	begin := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`
	reads := append(maskedFrame(begin, len(begin)), maskedFrame(load, len(load))...)
	half := append(maskedFrame(begin, len(begin)), maskedFrame(`{"jsonrpc":"2.0","method":"`+string(bytes.Repeat([]byte("x"), large)), large+1<<20)...)
	for range clients {
		dial("GET /v2/rpc", upgrade, reads)
		dial("GET /v2/rpc", upgrade, half)
		dial("GET /v2/sessions/"+session+"/events", "Accept: text/event-stream\r\n", nil)
		dial("GET /v2/sessions/"+session+"/events", "", nil)
		dial("GET /v2/sessions/"+session+"/transcript", "", nil)
	}
	for i := range 3 {
		if r := good.prompt(session, fmt.Sprintf("echo %d", i)); r != "end_turn" {
			t.Errorf("the turn ended with %s", r)
		}
	}
	if high := status(t, g.cmd.Process.Pid, "VmHWM") << 10; high > most {
		t.Errorf("the process took %d MiB, and %d are what it may have", high>>20, most>>20)
	} else {
		t.Logf("at most %d MiB", high>>20)
	}
}

// Prompts that wait for a turn take of the same memory: those that find no room are
// refused, and who says little goes on.
func TestMemory_OfPromptsThatWait(t *testing.T) {
	t.Parallel()
	const (
		most  = 256 << 20
		large = 8 << 20
	)
	g := newGateway(t, "--max-memory", fmt.Sprint(most), "--log-level", "error")
	g.withoutRace()
	g.start()
	good := connect(t, g, wsocket, options{})
	little := good.newSession()
	waiting := connect(t, g, standard, options{})
	session, refused := "", false
	for n := 0; n < 16 && !refused; n++ {
		if n%4 == 0 {
			session = waiting.newSession()
			waiting.start("session/prompt", promptParams(session, "slow"))
		}
		frame := waiting.frame(json.RawMessage(fmt.Sprint(1000+n)), "session/prompt", promptParams(session, strings.Repeat("x", large)))
		resp, body := waiting.post(frame, session)
		if refused = resp.StatusCode == http.StatusTooManyRequests; !refused && resp.StatusCode != http.StatusAccepted {
			t.Errorf("a prompt that waits: %s %s", resp.Status, body)
		}
	}
	if !refused {
		t.Error("all found room")
	}
	for i := range 3 {
		if r := good.prompt(little, fmt.Sprintf("echo %d", i)); r != "end_turn" {
			t.Errorf("the turn ended with %s", r)
		}
	}
	if high := status(t, g.cmd.Process.Pid, "VmHWM") << 10; high > most {
		t.Errorf("the process took %d MiB, and %d are what it may have", high>>20, most>>20)
	} else {
		t.Logf("at most %d MiB", high>>20)
	}
}

// maskedFrame is a text frame of a client that announces so many bytes.
func maskedFrame(text string, announced int) []byte {
	b := wire.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, uint64(announced))
	return append(append(b, 0, 0, 0, 0), text...)
}
