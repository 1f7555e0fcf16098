package agent

import (
	"encoding/json"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp"
)

func textContent(s string) acp.ToolCallContent {
	return acp.ToolCallContent{Content: &acp.Content{Content: acp.TextBlock(s)}}
}

// progress sends an update of a tool call's status.
func (t *turn) progress(id acp.ToolCallID, status acp.ToolCallStatus) error {
	return t.send(acp.SessionUpdate{ToolCallUpdate: &acp.ToolCallUpdate{ToolCallID: id, Status: status}})
}

// sendAll sends updates in order.
func (t *turn) sendAll(updates ...acp.SessionUpdate) (acp.StopReason, error) {
	for _, u := range updates {
		if err := t.send(u); err != nil {
			return "", err
		}
	}
	return acp.StopReasonEndTurn, nil
}

func (t *turn) tool(string) (acp.StopReason, error) {
	id, path := t.newCall(), filepath.Join(t.s.cwd(), "notes.txt")
	return t.sendAll(
		acp.SessionUpdate{ToolCall: &acp.ToolCall{
			ToolCallID: id, Title: "Read notes.txt", Kind: acp.ToolKindRead, Status: acp.ToolCallStatusPending,
			RawInput: json.RawMessage(`{"path":"notes.txt","limit":2}`),
		}},
		acp.SessionUpdate{ToolCallUpdate: &acp.ToolCallUpdate{ToolCallID: id, Status: acp.ToolCallStatusInProgress}},
		acp.SessionUpdate{ToolCallUpdate: &acp.ToolCallUpdate{
			ToolCallID: id, Status: acp.ToolCallStatusCompleted,
			Content:   []acp.ToolCallContent{textContent("first line\nsecond line\n")},
			Locations: []acp.ToolCallLocation{{Path: path, Line: new(uint32(1))}},
			RawOutput: json.RawMessage(`{"lines":2}`),
		}},
		acp.AgentMessage(acp.TextBlock("I read notes.txt.")),
	)
}

func (t *turn) diff(string) (acp.StopReason, error) {
	id, path := t.newCall(), filepath.Join(t.s.cwd(), "notes.txt")
	return t.sendAll(
		acp.SessionUpdate{ToolCall: &acp.ToolCall{
			ToolCallID: id, Title: "Edit notes.txt", Kind: acp.ToolKindEdit, Status: acp.ToolCallStatusInProgress,
			Locations: []acp.ToolCallLocation{{Path: path}},
			Content: []acp.ToolCallContent{{Diff: &acp.Diff{
				Path: path, OldText: new("first line\n"), NewText: "first line\nsecond line\n",
			}}},
		}},
		acp.SessionUpdate{ToolCallUpdate: &acp.ToolCallUpdate{ToolCallID: id, Status: acp.ToolCallStatusCompleted}},
		acp.AgentMessage(acp.TextBlock("I edited notes.txt.")),
	)
}

func (t *turn) plan(string) (acp.StopReason, error) {
	steps := []string{"Look around", "Pretend to work", "Report"}
	for done := range len(steps) + 1 {
		p := &acp.Plan{}
		for i, step := range steps {
			e := acp.PlanEntry{Content: step, Priority: acp.PlanEntryPriorityMedium, Status: acp.PlanEntryStatusPending}
			switch {
			case i < done:
				e.Status = acp.PlanEntryStatusCompleted
			case i == done:
				e.Status = acp.PlanEntryStatusInProgress
			}
			p.Entries = append(p.Entries, e)
		}
		if err := t.send(acp.SessionUpdate{Plan: p}); err != nil {
			return "", err
		}
	}
	return acp.StopReasonEndTurn, nil
}

func (t *turn) usage(string) (acp.StopReason, error) {
	return t.sendAll(acp.SessionUpdate{UsageUpdate: &acp.UsageUpdate{
		Used: 12345, Size: 200000, Cost: &acp.Cost{Amount: 0.42, Currency: "USD"},
	}})
}

func (t *turn) commandList(string) (acp.StopReason, error) {
	return t.sendAll(acp.SessionUpdate{AvailableCommandsUpdate: &acp.AvailableCommandsUpdate{
		AvailableCommands: []acp.AvailableCommand{
			{Name: "hello", Description: "Says hello"},
			{
				Name: "echo", Description: "Repeats a text",
				Input: &acp.AvailableCommandInput{Unstructured: &acp.UnstructuredCommandInput{Hint: "text"}},
			},
		},
	}})
}

func (t *turn) title(rest string) (acp.StopReason, error) {
	if err := t.s.change(func(in *info) { in.Title = rest }); err != nil {
		return "", err
	}
	return t.sendAll(acp.SessionUpdate{SessionInfoUpdate: &acp.SessionInfoUpdate{Title: &rest}})
}
