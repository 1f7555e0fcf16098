package codex

import (
	"context"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelCall ends the command that a call runs, or breaks off what the subagents do that it
// has made, and what they run.
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
	threads := s.tr.threadsOf(call)
	thread, process := s.tr.processOf(call)
	s.out.Unlock()
	switch {
	case process != "":
		return nil, s.endProcess(ctx, call, thread, process)
	case len(threads) == 0:
		return nil, bridge.NotCancellable(call)
	}
	for _, thread := range threads {
		if err := s.endThread(ctx, thread); err != nil {
			return nil, acp.Errorf(acp.CodeInternal, "codex does not break off the subagent: %v", err)
		}
	}
	return nil, nil
}

// endProcess ends the command that a call runs. Its item ends by that.
func (s *session) endProcess(ctx context.Context, call schema.ToolCallID, thread, process string) error {
	var done struct {
		Terminated bool `json:"terminated"`
	}
	err := s.srv.call(ctx, "thread/backgroundTerminals/terminate", map[string]string{"threadId": thread, "processId": process}, &done)
	switch {
	case err != nil:
		return acp.Errorf(acp.CodeInternal, "codex does not end the command: %v", err)
	case !done.Terminated:
		return bridge.NotCancellable(call)
	}
	return nil
}

// processOf returns the process of the command that a call runs, and its thread; "" for none.
func (t *translator) processOf(call schema.ToolCallID) (thread, process string) {
	for _, s := range t.items {
		if s.id == call && !s.over && s.item.Type == "commandExecution" {
			return s.thread, s.item.Process
		}
	}
	return "", ""
}

// endThread breaks off the turn of a subagent, and ends the commands that it runs. The error
// is that of the turn; a subagent without one may have commands that run.
func (s *session) endThread(ctx context.Context, thread string) error {
	err := s.srv.call(ctx, "turn/interrupt", map[string]string{"threadId": thread, "turnId": ""}, nil)
	if clean := s.srv.call(ctx, "thread/backgroundTerminals/clean", map[string]string{"threadId": thread}, nil); clean != nil {
		s.log.Debug("end the commands of a subagent", "err", clean)
	}
	return err
}

// threadsOf returns the threads of the subagents that a call has made and that work.
func (t *translator) threadsOf(call schema.ToolCallID) []string {
	var out []string
	for thread, native := range t.children {
		if s := t.items[native]; s != nil && !s.over && s.id == call {
			out = append(out, thread)
		}
	}
	return out
}
