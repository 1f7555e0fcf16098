package codex

import (
	"encoding/json"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// execEvent is a line of `codex exec --json`.
type execEvent struct {
	Type    string     `json:"type"`
	Thread  string     `json:"thread_id"`
	Item    *execItem  `json:"item"`
	Usage   *execUsage `json:"usage"`
	Error   *turnError `json:"error"`   // turn.failed
	Message string     `json:"message"` // error
}

// execItem is a piece of a turn. Its ids begin anew with each run.
type execItem struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Old  string `json:"item_type"` // the type, in early versions

	Text     string  `json:"text"`
	Command  string  `json:"command"`
	Output   *string `json:"aggregated_output"`
	ExitCode *int    `json:"exit_code"`
	Status   string  `json:"status"`
	Changes  []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    *struct {
		Content    json.RawMessage `json:"content"`
		Structured json.RawMessage `json:"structured_content"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Query   string `json:"query"`
	Message string `json:"message"`
	Items   []struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	} `json:"items"`
}

// execUsage counts the tokens of a thread. Early versions, which do not tell of
// reasoning, count those of the run only.
type execUsage struct {
	Input     uint64  `json:"input_tokens"`
	Cached    uint64  `json:"cached_input_tokens"`
	Written   uint64  `json:"cache_write_input_tokens"`
	Output    uint64  `json:"output_tokens"`
	Reasoning *uint64 `json:"reasoning_output_tokens"`
}

// since returns what was used since total, and makes total what is used now.
func (u *execUsage) since(total *tokens) *schema.Usage {
	now := tokens{Total: u.Input + u.Output, Input: u.Input, Cached: u.Cached, Written: u.Written, Output: u.Output}
	if u.Reasoning == nil {
		*total = tokens{}
	} else {
		now.Reasoning = *u.Reasoning
	}
	state := usageState{total: now, before: *total}
	*total = now
	return state.ofTurn()
}

// execRun is one run of the program.
type execRun struct {
	id      string // names its items
	cwd     string
	done    bool // it has said that the turn is over
	failed  *turnError
	foreign string // the thread that it went on with, when it is not the session's
	problem string // that it reported last; the turn may end with it
	usage   *schema.Usage
}

// translate returns the updates that a line means. What it says of items is put
// in the app-server's words, which are translated already.
func (r *execRun) translate(t *translator, e *execEvent) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	if r.problem != "" && e.Type != "turn.failed" {
		out = t.say(schema.NoticeSeverityWarning, bridge.OneLine(r.problem), r.problem)
	}
	r.problem = ""
	switch e.Type {
	case "turn.completed":
		r.done = true
	case "turn.failed":
		if r.failed = e.Error; r.failed == nil {
			r.failed = &turnError{Message: "the turn failed"}
		}
		if strings.Contains(r.failed.Message, "401 Unauthorized") {
			r.failed.Info = json.RawMessage(`"unauthorized"`) // nothing else tells
		}
	case "error":
		r.problem = e.Message
	case "item.started", "item.updated", "item.completed":
		if e.Item != nil {
			out = append(out, r.item(t, e.Type, e.Item)...)
		}
	}
	return out
}

func (r *execRun) item(t *translator, what string, raw *execItem) []schema.SessionUpdate {
	it := &item{
		ID: r.id + "-" + raw.ID, Text: raw.Text, Command: raw.Command, Cwd: r.cwd, Output: raw.Output, ExitCode: raw.ExitCode, Status: raw.Status,
		Server: raw.Server, Tool: raw.Tool, Arguments: raw.Arguments, Query: raw.Query, Error: raw.Error,
	}
	switch kind := bridge.FirstOf(raw.Type, raw.Old); kind {
	case "agent_message", "assistant_message":
		it.Type = "agentMessage"
	case "reasoning":
		it.Type, it.Summary = "reasoning", []string{raw.Text}
	case "command_execution":
		it.Type = "commandExecution"
	case "file_change":
		return r.files(t, what, it, raw)
	case "mcp_tool_call":
		it.Type = "mcpToolCall"
		if res := raw.Result; res != nil {
			it.Result = &struct {
				Content    json.RawMessage `json:"content"`
				Structured json.RawMessage `json:"structuredContent"`
			}{res.Content, res.Structured}
		}
	case "web_search":
		it.Type = "webSearch"
	case "todo_list":
		plan := &event{Method: "turn/plan/updated", Thread: t.thread}
		for _, one := range raw.Items {
			step := planStep{Step: one.Text, Status: "pending"}
			if one.Completed {
				step.Status = "completed"
			}
			plan.Plan = append(plan.Plan, step)
		}
		return t.translate(plan)
	case "error":
		return t.say(schema.NoticeSeverityWarning, bridge.OneLine(raw.Message), raw.Message)
	default:
		it.Type = bridge.FirstOf(kind, "item")
	}
	return r.native(t, what, it)
}

// native translates an item as if the app-server had sent it.
func (r *execRun) native(t *translator, what string, it *item) []schema.SessionUpdate {
	e := &event{Method: "item/completed", Thread: t.thread, TurnID: r.id, Item: it}
	if what != "item.completed" {
		e.Method = "item/started"
	}
	return t.translate(e)
}

// files shows a change of files, of which only the paths are known.
func (r *execRun) files(t *translator, what string, it *item, raw *execItem) []schema.SessionUpdate {
	it.Type = "fileChange"
	for _, c := range raw.Changes {
		one := change{Path: c.Path}
		one.Kind.Type = c.Kind
		it.Changes = append(it.Changes, one)
	}
	out := r.native(t, what, it)
	for _, u := range out {
		if u.ToolCall != nil {
			u.ToolCall.Content = nil
		}
		if u.ToolCallUpdate != nil {
			u.ToolCallUpdate.Content = nil
		}
	}
	return out
}
