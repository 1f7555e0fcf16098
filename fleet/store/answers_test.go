package store_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// deaf is a way to a NATS server that breaks behind the first message that begins so: the server has it, and its answer
// does not come.
type deaf struct {
	url    string
	begins []byte
	mu     sync.Mutex
	broken bool
	shut   bool // nobody comes in
}

func newDeaf(t *testing.T, url, begins string) *deaf {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{url: "nats://" + listener.Addr().String(), begins: []byte(begins)}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	all.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			shut := d.shut
			d.mu.Unlock()
			out, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if shut || err != nil {
				_ = in.Close()
				if err == nil {
					_ = out.Close()
				}
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(in, out)
				_ = in.Close()
			})
			all.Go(func() {
				d.pass(out, in)
				_ = in.Close()
				_ = out.(*net.TCPConn).CloseWrite() // what it was sent is read to its end
			})
		}
	})
	return d
}

// pass copies until the message has passed. Who sends it hears nothing more when the server gets the end of it.
func (d *deaf) pass(to io.Writer, from net.Conn) {
	var seen []byte // from where the message begins, or could
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		seen = append(seen, buf[:n]...)
		at := bytes.Index(seen, d.begins)
		if at < 0 {
			at = max(0, len(seen)-len(d.begins))
		}
		if seen = seen[at:]; d.broken {
			seen = nil
		}
		breaks := !d.broken && bytes.HasPrefix(seen, d.begins) && bytes.Contains(seen, []byte("}\r\n"))
		d.broken = d.broken || breaks
		d.mu.Unlock()
		if breaks {
			_ = from.Close()
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil || breaks {
			return
		}
	}
}

func (d *deaf) hasBroken() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

func (d *deaf) lets(in bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = !in
}

// A bundle of which the store has taken all, and whose last answer was lost, is there: at once, or when there is a store
// again. What comes after it removes nothing of it.
func TestBundles_TheLastAnswerIsLost(t *testing.T) {
	for what, away := range map[string]bool{"the store is there again at once": false, "the store is away for a while": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // it waits more than it computes
			d := newDeaf(t, natsServer(t), "HPUB $O.sa_bundles.M.")
			d.broken = true // not yet
			s := open(t, "hub", store.Options{URL: d.url}, nil)
			defer s.Close()
			id, other := store.ReplicaID{Node: "box", Session: "s", Epoch: 1}, store.ReplicaID{Node: "box", Session: "other", Epoch: 1}
			if _, err := s.PutBundle(t.Context(), id, 1, strings.NewReader("earlier")); err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte("new"), 1<<17)
			d.mu.Lock()
			d.broken, d.shut = false, away
			d.mu.Unlock()
			if _, err := s.PutBundle(t.Context(), id, 2, bytes.NewReader(want)); (err != nil) != away {
				t.Errorf("it ended with %v", err)
			}
			if !d.hasBroken() {
				t.Fatal("the answer was not lost")
			}
			d.lets(true)
			await(t, "the store is there", func() bool { return s.Ready() == nil })
			for last := range uint64(2) {
				if _, err := s.PutBundle(t.Context(), other, last+1, strings.NewReader("another")); err != nil {
					t.Fatal(err)
				}
			}
			b, body, err := s.Bundle(t.Context(), id)
			if err != nil || b == nil || b.LastSeq != 2 {
				t.Fatalf("%+v, %v", b, err)
			}
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes and not %d: %v", len(got), len(want), err)
			}
		})
	}
}
