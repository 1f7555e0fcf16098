package claude

import (
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxEntries bounds a plan. Further entries are not shown.
const maxEntries = 1000

// plan is the agent's list of things to do. There are two kinds of tools for it:
// one writes the whole list, the others change single tasks.
type plan struct {
	entries []planEntry
}

type planEntry struct {
	id     string // of a task; "" in a list that is written as a whole
	text   string
	status string
}

// write takes a whole list.
func (p *plan) write(input json.RawMessage) []schema.SessionUpdate {
	var in struct {
		Todos []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"todos"`
	}
	if len(input) == 0 || bridge.Lenient(input, &in) != nil || in.Todos == nil {
		return nil
	}
	p.entries = nil
	for _, todo := range in.Todos {
		p.add(planEntry{text: todo.Content, status: todo.Status})
	}
	return p.update()
}

// result takes the result of a call that changed a task.
func (p *plan) result(name string, input, output json.RawMessage) []schema.SessionUpdate {
	var in struct {
		TaskID  string `json:"taskId"`
		Subject string `json:"subject"`
		Status  string `json:"status"`
	}
	var out struct {
		Task struct {
			ID      string `json:"id"`
			Subject string `json:"subject"`
		} `json:"task"`
		Tasks []struct {
			ID      string `json:"id"`
			Subject string `json:"subject"`
			Status  string `json:"status"`
		} `json:"tasks"`
		Success *bool `json:"success"`
	}
	if name == "TodoWrite" {
		return p.write(input)
	}
	if len(output) == 0 || bridge.Lenient(output, &out) != nil {
		return nil
	}
	if len(input) > 0 {
		_ = bridge.Lenient(input, &in) // the result has what matters
	}
	switch name {
	case "TaskCreate":
		p.add(planEntry{id: out.Task.ID, text: bridge.FirstOf(out.Task.Subject, in.Subject), status: "pending"})
	case "TaskUpdate":
		if out.Success != nil && !*out.Success || in.TaskID == "" {
			return nil
		}
		p.change(in.TaskID, in.Subject, in.Status)
	case "TaskList":
		// Only for what is not known: it may have been made before a change that
		// was reported already.
		before := len(p.entries)
		for _, task := range out.Tasks {
			if p.find(task.ID) < 0 {
				p.add(planEntry{id: task.ID, text: task.Subject, status: task.Status})
			}
		}
		if len(p.entries) == before {
			return nil
		}
	default:
		return nil
	}
	return p.update()
}

func (p *plan) add(e planEntry) {
	if len(p.entries) < maxEntries && e.text != "" {
		p.entries = append(p.entries, e)
	}
}

func (p *plan) find(id string) int {
	return slices.IndexFunc(p.entries, func(e planEntry) bool { return e.id == id && id != "" })
}

func (p *plan) change(id, text, status string) {
	i := p.find(id)
	if i < 0 {
		p.add(planEntry{id: id, text: bridge.FirstOf(text, "Task "+id), status: "pending"})
		if i = p.find(id); i < 0 {
			return
		}
	}
	if status == "deleted" {
		p.entries = slices.Delete(p.entries, i, i+1)
		return
	}
	p.entries[i].text = bridge.FirstOf(text, p.entries[i].text)
	p.entries[i].status = bridge.FirstOf(status, p.entries[i].status)
}

// clear empties a plan that was shown.
func (p *plan) clear() []schema.SessionUpdate {
	if len(p.entries) == 0 {
		return nil
	}
	p.entries = nil
	return p.update()
}

func (p *plan) update() []schema.SessionUpdate {
	out := make([]schema.PlanEntry, 0, len(p.entries))
	for _, e := range p.entries {
		status := schema.PlanEntryStatus(e.status)
		switch status {
		case schema.PlanEntryStatusInProgress, schema.PlanEntryStatusCompleted:
		default:
			status = schema.PlanEntryStatusPending
		}
		out = append(out, schema.PlanEntry{Content: e.text, Priority: schema.PlanEntryPriorityMedium, Status: status})
	}
	return []schema.SessionUpdate{{Plan: &schema.Plan{Entries: out}}}
}
