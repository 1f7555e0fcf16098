package claude

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// cancelCall stops the task that a call runs: a subagent, or a command that takes long.
func (a *agent) cancelCall(ctx context.Context, params json.RawMessage) (any, error) {
	id, call, err := bridge.CallToCancel(params)
	if err != nil {
		return nil, err
	}
	s, err := a.sessions.Get(id)
	if err != nil {
		return nil, err
	}
	s.out.Lock()
	task := s.tr.taskOf(call)
	s.out.Unlock()
	if task == "" {
		return nil, bridge.NotCancellable(call)
	}
	_, err = s.control(ctx, map[string]string{"subtype": "stop_task", "task_id": task})
	return nil, err
}

// taskOf returns the task that a call runs, "" for none.
func (t *translator) taskOf(call schema.ToolCallID) string {
	for _, task := range slices.Sorted(maps.Keys(t.tasks)) {
		if c := t.tools[t.tasks[task]]; c != nil && c.id == call && !c.over {
			return task
		}
	}
	return ""
}
