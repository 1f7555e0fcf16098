package acpstdio

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// gateway has one client, which notes that its stream was opened.
type gateway struct {
	acp.Client
	opened atomic.Bool
}

func (g *gateway) Connect(_ context.Context, m acp.Message, _ acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	answer := acp.NewResult(m.ID(), []byte(`{}`))
	return g, acp.Reply{Frame: answer.Frame()}, nil
}

func (g *gateway) Stream(string, *uint64) (acp.Stream, error) {
	g.opened.Store(true)
	return silent{}, nil
}

func (*gateway) Close()                {}
func (*gateway) Done() <-chan struct{} { return nil }

// silent is a stream in which nothing comes.
type silent struct{ acp.Stream }

func (silent) Wake() <-chan struct{}                    { return nil }
func (silent) Done() <-chan struct{}                    { return nil }
func (silent) Poll(int) ([]acp.Event, error)            { return nil, nil }
func (silent) Room(func(int) error)                     {}
func (silent) Push(func() bool)                         {}
func (silent) Written()                                 {}
func (silent) Close()                                   {}
func (silent) PollSmall(int) ([]acp.Event, bool, error) { return nil, false, nil }

// editor takes what is written to it.
type editor func(p []byte)

func (e editor) Write(p []byte) (int, error) {
	e(p)
	return len(p), nil
}

// Who has the answer to initialize may ask for what is answered behind a replay. It would not wait for that without a stream.
func TestServe_TheStreamIsOpenBeforeAnythingIsAsked(t *testing.T) {
	for range 100 {
		g := &gateway{}
		var answered atomic.Int32
		out := editor(func([]byte) {
			if answered.Add(1); !g.opened.Load() {
				t.Error("initialize was answered before the stream was open")
			}
		})
		if err := Serve(t.Context(), g, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`+"\n"), out, Options{}); err != nil {
			t.Fatal(err)
		}
		if answered.Load() != 1 {
			t.Fatalf("%d writes", answered.Load())
		}
	}
}
