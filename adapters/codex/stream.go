package codex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// stream is the process's standard streams as jsonrpc2 wants them. What is no
// message is reported, and reading goes on.
type stream struct {
	child    *bridge.Child
	unparsed func(line []byte, reason error)
	// notified is given notifications, in their order among all messages. jsonrpc2 would
	// decode each three times, and encode it again.
	notified func(n *notification)
}

// notification is what the process says of its own accord.
type notification struct {
	ID     json.RawMessage `json:"id"` // of a request
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	At     int64           `json:"emittedAtMs"`
}

// notificationOf returns the notification in a line, nil when there is something else. The
// process writes a method first, and so other lines need not be looked at.
func notificationOf(line []byte) *notification {
	if !bytes.HasPrefix(line, []byte(`{"method":`)) {
		return nil
	}
	n := new(notification)
	if bridge.Lenient(line, n) != nil || n.Method == "" || len(n.ID) > 0 && string(n.ID) != "null" {
		return nil
	}
	return n
}

var _ jsonrpc2.ObjectStream = (*stream)(nil)

func (s *stream) WriteObject(v any) error {
	b, err := schema.Encode(v)
	if err != nil {
		return fmt.Errorf("encode a message for codex: %w", err)
	}
	ctx, cancel := bridge.Within(context.Background(), callBound)
	defer cancel()
	return s.child.WriteLine(ctx, b)
}

func (s *stream) ReadObject(v any) error {
	for {
		line, err := s.child.ReadLine()
		if tooLong, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			s.unparsed(line, tooLong)
			continue
		}
		if err != nil {
			return err
		}
		if n := notificationOf(line); n != nil {
			s.notified(n)
			continue
		}
		if err := json.Unmarshal(line, v); err != nil {
			s.unparsed(line, err)
			continue
		}
		return nil
	}
}

// Close does nothing: who started the process ends it.
func (s *stream) Close() error { return nil }
