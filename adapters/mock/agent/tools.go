package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

func textContent(s string) schema.ToolCallContent {
	return schema.ToolCallContent{Content: &schema.Content{Content: schema.TextBlock(s)}}
}

// progress sends an update of a tool call's status.
func (t *turn) progress(id schema.ToolCallID, status schema.ToolCallStatus) error {
	return t.send(schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: id, Status: status}})
}

// sendAll sends updates in order.
func (t *turn) sendAll(updates ...schema.SessionUpdate) (schema.StopReason, error) {
	for _, u := range updates {
		if err := t.send(u); err != nil {
			return "", err
		}
	}
	return schema.StopReasonEndTurn, nil
}

func (t *turn) tool(string) (schema.StopReason, error) {
	id, path := t.newCall(), filepath.Join(t.s.cwd(), "notes.txt")
	return t.sendAll(
		schema.SessionUpdate{ToolCall: &schema.ToolCall{
			ToolCallID: id, Title: "Read notes.txt", Kind: schema.ToolKindRead, Status: schema.ToolCallStatusPending,
			RawInput: json.RawMessage(`{"path":"notes.txt","limit":2}`),
		}},
		schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: id, Status: schema.ToolCallStatusInProgress}},
		schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{
			ToolCallID: id, Status: schema.ToolCallStatusCompleted,
			Content:   []schema.ToolCallContent{textContent("first line\nsecond line\n")},
			Locations: []schema.ToolCallLocation{{Path: path, Line: new(uint32(1))}},
			RawOutput: json.RawMessage(`{"lines":2}`),
		}},
		schema.AgentMessage(schema.TextBlock("I read notes.txt.")),
	)
}

// command shows a command as bridges do: as a call, whose content is the output so far.
func (t *turn) command(string) (schema.StopReason, error) {
	id := t.newCall()
	terminal := func(about map[string]any) map[string]json.RawMessage { return own(map[string]any{"terminal": about}) }
	says := func(output string, status schema.ToolCallStatus, about map[string]any) schema.SessionUpdate {
		about["output"] = true
		return schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{
			ToolCallID: id, Status: status, Content: []schema.ToolCallContent{textContent("```console\n" + output + "\n```")}, Meta: terminal(about),
		}}
	}
	return t.sendAll(
		schema.SessionUpdate{ToolCall: &schema.ToolCall{
			ToolCallID: id, Title: "count; exit 3", Kind: schema.ToolKindExecute, Status: schema.ToolCallStatusPending,
			RawInput: json.RawMessage(`{"command":"count; exit 3"}`), Meta: terminal(map[string]any{"command": "count; exit 3", "cwd": t.s.cwd()}),
		}},
		says("one", schema.ToolCallStatusInProgress, map[string]any{}),
		says("one\ntwo", schema.ToolCallStatusInProgress, map[string]any{}),
		says("one\ntwo\nthree", schema.ToolCallStatusFailed, map[string]any{"exitCode": 3}),
		schema.AgentMessage(schema.TextBlock("The command failed.")),
	)
}

func (t *turn) diff(string) (schema.StopReason, error) {
	id, path := t.newCall(), filepath.Join(t.s.cwd(), "notes.txt")
	return t.sendAll(
		schema.SessionUpdate{ToolCall: &schema.ToolCall{
			ToolCallID: id, Title: "Edit notes.txt", Kind: schema.ToolKindEdit, Status: schema.ToolCallStatusInProgress,
			Locations: []schema.ToolCallLocation{{Path: path}},
			Content: []schema.ToolCallContent{{Diff: &schema.Diff{
				Path: path, OldText: new("first line\n"), NewText: "first line\nsecond line\n",
			}}},
		}},
		schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: id, Status: schema.ToolCallStatusCompleted}},
		schema.AgentMessage(schema.TextBlock("I edited notes.txt.")),
	)
}

// write makes a file in the session's folder, if a client allows it.
func (t *turn) write(rest string) (schema.StopReason, error) {
	name, words, _ := strings.Cut(rest, " ")
	id, path, title, kind := t.newCall(), filepath.Join(t.s.cwd(), name), "Write "+name, schema.ToolKindEdit
	text := words + "\n"
	call := schema.ToolCall{
		ToolCallID: id, Title: title, Kind: kind, Status: schema.ToolCallStatusPending,
		Locations: []schema.ToolCallLocation{{Path: path}},
		Content:   []schema.ToolCallContent{{Diff: &schema.Diff{Path: path, NewText: text}}},
	}
	if err := t.send(schema.SessionUpdate{ToolCall: &call}); err != nil {
		return "", err
	}
	answer, err := t.allowed(kind, schema.ToolCallUpdate{ToolCallID: id, Title: &title, Kind: kind, Status: schema.ToolCallStatusPending})
	chosen := answer.Outcome.Selected
	switch {
	case err != nil:
		return "", err
	case chosen == nil:
		return schema.StopReasonCancelled, t.progress(id, schema.ToolCallStatusFailed)
	case !strings.HasPrefix(string(chosen.OptionID), "allow"):
		return endTurn(t.progress(id, schema.ToolCallStatusFailed))
	}
	said, status := "I wrote "+name+".", schema.ToolCallStatusCompleted
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		said, status = err.Error(), schema.ToolCallStatusFailed
	}
	if err := t.progress(id, status); err != nil {
		return "", err
	}
	return endTurn(t.say(said))
}

func (t *turn) plan(string) (schema.StopReason, error) {
	steps := []string{"Look around", "Pretend to work", "Report"}
	for done := range len(steps) + 1 {
		p := &schema.Plan{}
		for i, step := range steps {
			e := schema.PlanEntry{Content: step, Priority: schema.PlanEntryPriorityMedium, Status: schema.PlanEntryStatusPending}
			switch {
			case i < done:
				e.Status = schema.PlanEntryStatusCompleted
			case i == done:
				e.Status = schema.PlanEntryStatusInProgress
			}
			p.Entries = append(p.Entries, e)
		}
		if err := t.send(schema.SessionUpdate{Plan: p}); err != nil {
			return "", err
		}
	}
	return schema.StopReasonEndTurn, nil
}

func (t *turn) usage(string) (schema.StopReason, error) {
	return t.sendAll(schema.SessionUpdate{UsageUpdate: &schema.UsageUpdate{
		Used: 12345, Size: 200000, Cost: &schema.Cost{Amount: 0.42, Currency: "USD"},
	}})
}

func (t *turn) commandList(string) (schema.StopReason, error) {
	return t.sendAll(schema.SessionUpdate{AvailableCommandsUpdate: &schema.AvailableCommandsUpdate{
		AvailableCommands: []schema.AvailableCommand{
			{Name: "hello", Description: "Says hello"},
			{
				Name: "echo", Description: "Repeats a text",
				Input: &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: "text"}},
			},
		},
	}})
}

func (t *turn) title(rest string) (schema.StopReason, error) {
	if err := t.s.change(func(in *info) { in.Title = rest }); err != nil {
		return "", err
	}
	return t.sendAll(schema.SessionUpdate{SessionInfoUpdate: &schema.SessionInfoUpdate{Title: &rest}})
}
