package opencode

import (
	"context"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelCall breaks off what the subagent does that a call shows.
func (a *agent) cancelCall(ctx context.Context, params json.RawMessage) (any, error) {
	id, call, err := bridge.CallToCancel(params)
	if err != nil {
		return nil, err
	}
	s, err := a.session(id)
	if err != nil {
		return nil, err
	}
	s.out.Lock()
	child := s.tr.childOf(call)
	s.out.Unlock()
	if child == "" {
		return nil, bridge.NotCancellable(call)
	}
	ctx, cancel := bridge.Within(ctx, a.abortBound)
	defer cancel()
	if err := s.srv.call(ctx, "POST", at("/session/"+child+"/abort", s.cwd), nil, nil); err != nil {
		return nil, acp.Errorf(acp.CodeInternal, "opencode does not break off the subagent: %v", err)
	}
	return nil, nil
}

// childOf returns the session of the subagent that a call shows and that works, "" for none.
func (t *translator) childOf(call schema.ToolCallID) string {
	if s := t.parts[string(call)]; s == nil || s.over {
		return ""
	}
	for id, c := range t.children {
		if c.call == string(call) {
			return id
		}
	}
	return ""
}
