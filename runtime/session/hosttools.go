package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// HostTools carries out agents' requests about files and terminals on this
// machine, for sessions whose clients offer none. Its methods are safe for
// concurrent use.
type HostTools interface {
	// Call carries out one. cwd is the session's directory. ctx ends when the
	// agent does not want it any more, or does not work for the session any more: what was begun must be ended then.
	// What it returns is encoded as the result; its errors are problems. params are valid until it returns.
	Call(ctx context.Context, session, cwd, method string, params json.RawMessage) (any, error)
	// End ends what an agent has left running for a session, whose calls' contexts have ended. It does not wait.
	End(session string)
	// Wait waits until nothing is left of that, and of those calls, or ctx ends.
	Wait(ctx context.Context, session string)
}

// toolBound is how long who stops a session waits for what its agent has left running: longer than the most that programs are
// given to end.
const toolBound = 90 * time.Second

// awaitToolsLocked has what is done next wait until nothing is left of what the agent has had the host do: who is told that
// the session has stopped may use its folder.
func (s *Session) awaitToolsLocked(x *after) {
	h := s.set.o.HostTools
	if h == nil {
		return
	}
	x.slow = true
	x.then(func() {
		ctx, cancel := awake.WithTimeoutCause(s.set.o.Life, toolBound, context.DeadlineExceeded)
		defer cancel()
		h.Wait(ctx, s.id)
	})
}

// isTool reports whether a method is one that the host can answer.
func isTool(method string) bool {
	switch method {
	case acp.MethodFSReadTextFile, acp.MethodFSWriteTextFile, acp.MethodTerminalCreate, acp.MethodTerminalOutput,
		acp.MethodTerminalWaitForExit, acp.MethodTerminalKill, acp.MethodTerminalRelease:
		return true
	}
	return false
}

// alters reports whether by a method the host, or a client, changes something for the agent.
func alters(method string) bool {
	return method == acp.MethodFSWriteTextFile || method == acp.MethodTerminalCreate
}

// Offered returns what an agent is told of client capabilities: the client's
// own, and those that the host has in its place.
func (set *Set) Offered(caps json.RawMessage) json.RawMessage {
	if set.o.HostTools == nil {
		return caps
	}
	// In one order, so that those who are told the same share a process.
	fs := json.RawMessage("{}")
	if own, ok := rawjson.Member(caps, "fs"); ok && own[0] == '{' {
		fs = rawjson.DeleteMember(rawjson.DeleteMember(own, "readTextFile"), "writeTextFile")
	}
	fs = rawjson.SetMember(rawjson.SetMember(fs, []byte("true"), "readTextFile"), []byte("true"), "writeTextFile")
	caps = rawjson.DeleteMember(rawjson.DeleteMember(caps, "fs"), "terminal")
	caps = rawjson.SetMember(rawjson.SetMember(caps, fs, "fs"), []byte("true"), "terminal")
	return caps
}

// hostAnswers reports whether the host answers a request of the session's
// agent. One that a client offers is always that client's, and waits for it
// when it is away and nobody else is there.
func (s *Session) hostAnswers(method string) bool {
	if s.set.o.HostTools == nil || !isTool(method) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		if f.Client().Capabilities().Can(method, nil) {
			return false
		}
	}
	return s.attendedLocked() || !viewer.ReadCapabilities(s.rec.Capabilities).Can(method, nil)
}

// askHost has the host answer a request of the agent. It is called by the reader and
// does not wait.
func (s *Session) askHost(l *link, m *acp.Message) {
	own := m.Clone()
	s.mu.Lock()
	if s.m.link != l { // what the host did from now on, nobody would end
		s.mu.Unlock()
		l.p.Put(acp.NewError(own.ID(), acp.Errorf(acp.CodeCancelled, "the session is being closed")))
		return
	}
	if alters(own.Method()) && l.mayNotWorkLocked() {
		l.p.Put(acp.NewError(own.ID(), acp.Errorf(acp.CodeCancelled, "cancelled")))
		s.handleLocked(event{kind: works})
		return
	}
	if s.tools == nil {
		s.tools, s.endTools = context.WithCancel(s.set.o.Life)
	}
	ctx, cancel := context.WithCancel(s.tools)
	cwd, agent := s.rec.Cwd, s.rec.Agent
	s.mu.Unlock()
	if err := l.p.Host(own.ID(), cancel); err != nil {
		cancel()
		l.p.Put(acp.NewError(own.ID(), err))
		return
	}
	s.logger().Debug("host tool", "agent", agent, "method", own.Method())
	s.set.o.Tasks.Go(func() {
		defer cancel()
		result, err := s.set.o.HostTools.Call(ctx, s.id, cwd, own.Method(), own.Params())
		l.p.Hosted(own.ID())
		var b []byte
		if err == nil {
			b, err = schema.Encode(result)
		}
		if err == nil {
			l.p.Put(acp.NewResult(own.ID(), b))
			return
		}
		failed := viewer.ErrorOf(err)
		if pr, ok := errors.AsType[*problem.Error](err); ok && pr.Kind == problem.NotFound {
			// The protocol's own words: agents look for them to tell a file that is
			// not there from one that cannot be read.
			failed = acp.Errorf(acp.CodeResourceNotFound, "Resource not found: %s", pr.Detail).WithData(pr)
		}
		if ctx.Err() != nil {
			failed = acp.Errorf(acp.CodeCancelled, "cancelled")
		}
		l.p.Put(acp.NewError(own.ID(), failed))
	})
}
