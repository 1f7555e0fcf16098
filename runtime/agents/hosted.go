package agents

import (
	"context"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// maxHosted bounds the requests of one agent process that the host carries out
// at one time; more are refused.
const maxHosted = 256

// Host notes a request of the agent that the host carries out; cancel ends it when
// the agent withdraws it or is gone. The caller calls Hosted when it is over.
func (p *Process) Host(id acp.ID, cancel context.CancelFunc) *acp.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state >= ending:
		return acp.Errorf(acp.CodeInternal, "the agent is being ended")
	case len(p.hosted) >= maxHosted:
		return acp.Errorf(acp.CodeInternal, "%d requests are being carried out for this agent, which is the most at one time", maxHosted)
	case p.hosted[string(id)] != nil:
		return acp.Errorf(acp.CodeInvalidRequest, "a request with the id %s is open already", id)
	case p.hosted == nil:
		p.hosted = map[string]context.CancelFunc{}
	}
	p.hosted[string(id)] = cancel
	return nil
}

// Hosted says that a request that the host carried out is over.
func (p *Process) Hosted(id acp.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hosted, string(id))
}

// CancelHosted ends the request that the agent's $/cancel_request names, and reports
// whether the host carries it out. It is answered as cancelled.
func (p *Process) CancelHosted(m *acp.Message) bool {
	id, _ := rawjson.Member(m.Params(), "requestId")
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel := p.hosted[string(id)]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}
