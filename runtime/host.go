package runtime

import (
	"context"
	"encoding/json"
	"errors"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// HostTools carries out agents' requests about files and terminals on this
// machine, for sessions whose clients offer none. Its methods are safe for
// concurrent use.
type HostTools interface {
	// Call carries out one. cwd is the session's directory. ctx ends when the
	// agent does not want it any more, or is gone. What it returns is encoded as
	// the result; its errors are problems. params are valid until it returns.
	Call(ctx context.Context, session, cwd, method string, params json.RawMessage) (any, error)
	// End ends what an agent has left running for a session. It does not wait.
	End(session string)
}

// maxHosted bounds the requests of one agent process that the host carries out
// at one time; more are refused.
const maxHosted = 256

// isTool reports whether a method is one that the host can answer.
func isTool(method string) bool {
	switch method {
	case acp.MethodFSReadTextFile, acp.MethodFSWriteTextFile, acp.MethodTerminalCreate, acp.MethodTerminalOutput,
		acp.MethodTerminalWaitForExit, acp.MethodTerminalKill, acp.MethodTerminalRelease:
		return true
	}
	return false
}

// offered returns what an agent is told of client capabilities: the client's
// own, and those that the host has in its place.
func (r *Runtime) offered(caps json.RawMessage) json.RawMessage {
	if r.o.HostTools == nil {
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
	if s.r.o.HostTools == nil || !isTool(method) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		if f.client.caps.can(method) {
			return false
		}
	}
	return len(s.feeds) > 0 || !readClientCaps(s.rec.Capabilities).can(method)
}

// askHost has the host answer a request of the agent. It runs on the pump and
// does not wait.
func (s *Session) askHost(p *proc, m *acp.Message) {
	s.mu.Lock()
	cwd := s.rec.Cwd
	s.mu.Unlock()
	own := m.Clone()
	id := string(own.ID())
	ctx, cancel := context.WithCancel(s.r.ctx)
	if err := p.host(id, cancel); err != nil {
		cancel()
		e := acp.NewError(own.ID(), err)
		p.trySend(e.Frame())
		return
	}
	s.r.log.Debug("host tool", "agent", p.agent.id, "session", s.id, "method", own.Method())
	s.r.work.Go(func() {
		defer cancel()
		result, err := s.r.o.HostTools.Call(ctx, s.id, cwd, own.Method(), own.Params())
		p.hostDone(id)
		var b []byte
		if err == nil {
			b, err = schema.Encode(result)
		}
		if err == nil {
			res := acp.NewResult(own.ID(), b)
			p.trySend(res.Frame())
			return
		}
		failed := callError(err)
		if pr, ok := errors.AsType[*problem.Error](err); ok && pr.Kind == problem.NotFound {
			// The protocol's own words: agents look for them to tell a file that is
			// not there from one that cannot be read.
			failed = acp.Errorf(acp.CodeResourceNotFound, "Resource not found: %s", pr.Detail).WithData(pr)
		}
		if ctx.Err() != nil {
			failed = acp.Errorf(acp.CodeCancelled, "cancelled")
		}
		e := acp.NewError(own.ID(), failed)
		p.trySend(e.Frame())
	})
}

// host notes a request that the host carries out.
func (p *proc) host(id string, cancel context.CancelFunc) *acp.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cause != nil:
		return acp.Errorf(acp.CodeInternal, "the agent is being ended")
	case len(p.hosted) >= maxHosted:
		return acp.Errorf(acp.CodeInternal, "%d requests are being carried out for this agent, which is the most at one time", maxHosted)
	case p.hosted[id] != nil:
		return acp.Errorf(acp.CodeInvalidRequest, "a request with the id %s is open already", id)
	case p.hosted == nil:
		p.hosted = map[string]context.CancelFunc{}
	}
	p.hosted[id] = cancel
	return nil
}

func (p *proc) hostDone(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hosted, id)
}

// withdrawFromHost ends a request that the host carries out, and reports whether
// there was one. It is answered as cancelled.
func (p *proc) withdrawFromHost(id json.RawMessage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel := p.hosted[string(id)]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// endHostTools ends what the agent has left running on the host.
func (s *Session) endHostTools() {
	if s.r.o.HostTools != nil {
		s.r.o.HostTools.End(s.id)
	}
}
