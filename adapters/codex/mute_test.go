package codex

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// What is to be said to a process whose output has ended is not written, and may be said to another.
func TestServer_OutputHasEnded(t *testing.T) {
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/sh", Args: []string{"-c", "exec 1>&-; exec cat >/dev/null"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{log: slog.New(slog.DiscardHandler), child: child, ended: make(chan struct{})}
	s.rpc = jsonrpc2.NewConn(context.Background(), &stream{child: child, unparsed: s.unparsed, notified: s.notified}, handler{s})
	<-s.rpc.DisconnectNotify()
	s.exit = child.End(process.DefaultLadder)
	close(s.ended)
	if err := s.call(t.Context(), "turn/start", nil, nil); !errors.Is(err, bridge.ErrUnwritten) {
		t.Errorf("it was told to a process that answers nobody: %v", err)
	}
}
