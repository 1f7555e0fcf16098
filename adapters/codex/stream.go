package codex

import (
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
}

var _ jsonrpc2.ObjectStream = (*stream)(nil)

func (s *stream) WriteObject(v any) error {
	b, err := schema.Encode(v)
	if err != nil {
		return fmt.Errorf("encode a message for codex: %w", err)
	}
	return s.child.WriteLine(b)
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
		if err := json.Unmarshal(line, v); err != nil {
			s.unparsed(line, err)
			continue
		}
		return nil
	}
}

// Close does nothing: who started the process ends it.
func (s *stream) Close() error { return nil }
