package session

import (
	"context"
	"fmt"
	"io"

	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
)

// includeRaw is the field by which a session asks for a recording of what its agent and the
// gateway say to each other in the agent's own language.
const includeRaw = "includeRaw"

// noFiles is why such a session has none.
const noFiles = "this gateway keeps sessions in memory, and a recording is a file: start it without --ephemeral"

// record has the process's recording, if there is one, go to the session's folder, which must
// exist.
func (s *Session) record(p *agents.Process) {
	raw := p.Raw()
	switch {
	case raw == nil:
		return
	case s.set.store.dir == "":
		raw.Close()
		return
	}
	gone := s.inFolder(func() error {
		s.mu.Lock()
		before := s.raw
		s.raw = raw
		s.mu.Unlock()
		if before != nil && before != raw {
			before.Close() // two would write one file
		}
		raw.Into(s.set.store.path(s.id), func(err error) {
			s.logger().Warn("the recording of the agent's traffic has ended", "err", err)
			s.set.o.Tasks.Go(func() {
				s.tellUnsupported([]Unsupported{{includeRaw, fmt.Sprintf("the recording has ended, and the session goes on: %v", err)}})
			})
		})
		return nil
	})
	if gone != nil {
		raw.Close()
	}
}

// Raw returns what was recorded of the agent's traffic, nil when nothing was. The caller
// closes it.
func (s *Session) Raw(ctx context.Context) (io.ReadCloser, error) {
	if s.set.store.dir == "" {
		return nil, nil
	}
	s.mu.Lock()
	raw := s.raw
	s.mu.Unlock()
	if raw != nil {
		if err := raw.Flush(ctx); err != nil {
			return nil, err
		}
	}
	var recorded io.ReadCloser
	err := s.inFolder(func() (err error) {
		recorded, err = traffic.Read(s.set.store.path(s.id))
		return err
	})
	return recorded, err
}

// stopRaw ends the recording, so that nothing is written to the session's folder any more.
func (s *Session) stopRaw() {
	s.mu.Lock()
	raw := s.raw
	s.raw = nil
	s.mu.Unlock()
	if raw != nil {
		raw.Close()
	}
}
