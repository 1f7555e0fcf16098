package acphttp

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// The opcodes of frames.
const (
	opMore   = 0
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// rawServer answers the handshake, and has the bytes of the frames in its hands.
type rawServer struct{ net.Conn }

// RoundTrip implements http.RoundTripper.
func (s rawServer) RoundTrip(r *http.Request) (*http.Response, error) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])}}
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: h, Body: s.Conn, Request: r}, nil
}

// dialRaw returns a client and the server's end of its connection.
func dialRaw(t *testing.T, o DialOptions) (acp.Conn, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	o.Transport = rawServer{here}
	return dialTo(t, "http://localhost", o), there
}

// rawFrame is a frame of a server; end is set in the last of a message.
func rawFrame(end bool, op byte, payload []byte) []byte {
	b := []byte{op}
	if end {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

// heard reads what a client sends, and returns its control frames when the connection ends.
func heard(conn net.Conn) <-chan []string {
	out := make(chan []string, 1)
	go func() {
		var all []string
		for {
			head := make([]byte, 6) // with the mask; the client has nothing long to say
			if _, err := io.ReadFull(conn, head); err != nil {
				out <- all
				return
			}
			payload := make([]byte, head[1]&0x7f)
			if _, err := io.ReadFull(conn, payload); err != nil {
				out <- all
				return
			}
			for i := range payload {
				payload[i] ^= head[2+i%4]
			}
			all = append(all, fmt.Sprintf("%d %s", head[0]&0xf, payload))
		}
	}()
	return out
}

// Frames of all kinds and lengths come in pieces of any size: each message is read once, in its order, and each ping is answered.
func TestDial_AnyFrames(t *testing.T) {
	lengths := []int{0, 1, 60, 125 - 40, 126 - 40, 1000, 4 << 10, 65535 - 40, 65536 - 40, 70_000, 300_000}
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 1))
		var wire []byte
		var want, pings []string
		ping := func() {
			pings = append(pings, fmt.Sprintf("%d %d", opPong, len(pings)))
			wire = append(wire, rawFrame(true, opPing, fmt.Append(nil, len(pings)-1))...)
		}
		for i := range 1 + dice.IntN(60) {
			n := dice.IntN(1 + lengths[dice.IntN(7)])
			if dice.IntN(12) == 0 {
				n = lengths[dice.IntN(len(lengths))] + dice.IntN(20)
			}
			m := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"m%d","params":["%s"]}`, i, strings.Repeat("x", n))
			switch dice.IntN(10) {
			case 0: // in fragments, between which there may be others
				for first := true; ; first = false {
					cut := dice.IntN(len(m) + 1)
					op := byte(opMore)
					if first {
						op = opText
					}
					end := dice.IntN(3) == 0
					if end {
						cut = len(m)
					}
					wire = append(wire, rawFrame(end, op, m[:cut])...)
					if m = m[cut:]; end {
						break
					}
					if dice.IntN(3) == 0 {
						ping()
					}
				}
			case 1:
				ping()
				continue
			case 2:
				wire = append(wire, rawFrame(true, opPong, nil)...)
				continue
			case 3:
				wire = append(wire, rawFrame(true, opBinary, m)...)
				continue
			case 4:
				wire = append(wire, rawFrame(true, opText, []byte("{"))...)
				want = append(want, "no message")
				continue
			default:
				wire = append(wire, rawFrame(true, opText, m)...)
			}
			want = append(want, fmt.Sprintf("m%d of %d", i, n))
		}
		wire = append(wire, rawFrame(true, opClose, []byte{3, 232})...) // 1000
		c, conn := dialRaw(t, DialOptions{})
		control := heard(conn)
		most := []int{1, 7, 300, 5000, 1 << 20}[dice.IntN(5)]
		if len(wire) > 100_000 {
			most = 1 << 20
		}
		go func() {
			for len(wire) > 0 {
				n := min(len(wire), 1+dice.IntN(most))
				if _, err := conn.Write(wire[:n]); err != nil {
					return
				}
				wire = wire[n:]
			}
		}()
		var got []string
		for {
			m, err := c.Read(t.Context())
			if _, bad := errors.AsType[*acp.ParseError](err); bad {
				got = append(got, "no message")
				continue
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("seed %d: behind %d messages: %v", seed, len(got), err)
			}
			got = append(got, fmt.Sprintf("%s of %d", m.Method(), len(m.Params())-4))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: read %q, want %q", seed, got, want)
		}
		_ = c.Close()
		_ = conn.Close()
		if said := <-control; !slices.Equal(said, append(pings, "8 \x03\xe8")) {
			t.Fatalf("seed %d: the server was sent %q, want %q and goodbye", seed, said, pings)
		}
	}
}

// What ends in the middle of a frame, is longer than it may be, or is no frame of a server, is an error, and no message.
func TestDial_BadFrames(t *testing.T) {
	text := func(n int) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s"}`, strings.Repeat("m", n)) }
	good := rawFrame(true, opText, text(1))
	masked := rawFrame(true, opText, text(1))
	masked[1] |= 0x80
	reserved := rawFrame(true, opText, text(1))
	reserved[0] |= 0x40
	endless := append([]byte{0x81, 127}, bytes.Repeat([]byte{0xff}, 100)...)
	tests := map[string][]byte{
		"nothing":                  {},
		"half a header":            good[:1],
		"half a long header":       rawFrame(true, opText, text(1000))[:3],
		"half a frame":             good[:9],
		"half a long frame":        rawFrame(true, opText, text(900))[:500],
		"half a frame of one kept": rawFrame(true, opBinary, text(900))[:500],
		"a masked one":             masked,
		"one with a reserved bit":  reserved,
		"one without an end":       endless,
		"one too long":             rawFrame(true, opText, text(1001)),
		"one too long for here":    rawFrame(true, opText, text(100_000)),
		"more without a beginning": rawFrame(true, opMore, text(1)),
	}
	for name, wire := range tests {
		t.Run(name, func(t *testing.T) {
			c, conn := dialRaw(t, DialOptions{MaxMessage: 1000})
			control := heard(conn)
			go func() {
				_, _ = conn.Write(append(slices.Clone(good), wire...))
				_ = conn.Close()
			}()
			if m, err := c.Read(t.Context()); err != nil || m.Method() != "m" {
				t.Fatalf("the message before is %s, %v", m.Frame(), err)
			}
			for range 2 { // it stays so
				if m, err := c.Read(t.Context()); err == nil || err == io.EOF {
					t.Errorf("%s, %v", m.Frame(), err)
				}
			}
			_ = conn.Close()
			<-control
		})
	}
}

// A client that leaves while it is sent much waits for goodbye, and what it reads until then is whole.
func TestDial_LeavesWhileItReads(t *testing.T) {
	for range 20 {
		c, conn := dialRaw(t, DialOptions{})
		control := heard(conn)
		var reading sync.WaitGroup
		some := make(chan struct{})
		reading.Go(func() {
			for i := 0; ; i++ {
				m, err := c.Read(context.Background())
				if err != nil {
					return
				}
				if want := fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("y", i%300)); string(m.Params()) != want {
					t.Errorf("message %d is %s", i, m.Params())
				}
				if i == 20 {
					close(some)
				}
			}
		})
		reading.Go(func() {
			for i := range 2000 {
				m := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"m","params":[%d,"%s"]}`, i, strings.Repeat("y", i%300))
				if _, err := conn.Write(rawFrame(true, opText, m)); err != nil {
					return
				}
			}
			_, _ = conn.Write(rawFrame(true, opClose, []byte{3, 232}))
		})
		<-some
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		reading.Wait()
		<-control
	}
}
