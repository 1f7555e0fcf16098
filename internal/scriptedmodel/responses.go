package scriptedmodel

import (
	"encoding/json"
	"strings"
)

// responses is OpenAI's Responses API.
type responses struct{}

type responsesTool struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Tools      []responsesTool `json:"tools"` // of a namespace
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	CallID    string          `json:"call_id"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Action    json.RawMessage `json:"action"`
	Summary   json.RawMessage `json:"summary"`
	Tools     []responsesTool `json:"tools"`
}

func (responses) decode(r *Request) error {
	r.Dialect = Responses
	var in struct {
		Model        string          `json:"model"`
		Stream       bool            `json:"stream"`
		Instructions string          `json:"instructions"`
		Input        json.RawMessage `json:"input"`
		Tools        []responsesTool `json:"tools"`
		Reasoning    struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Text struct {
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := unmarshal(r.Body, &in); err != nil {
		return err
	}
	r.Model, r.Stream, r.Effort, r.Schema = in.Model, in.Stream, in.Reasoning.Effort, in.Text.Format.Schema
	r.system(in.Instructions)
	r.responsesTools("", in.Tools)
	var items []responsesItem
	if len(in.Input) > 0 && in.Input[0] == '"' {
		items = []responsesItem{{Role: "user", Content: in.Input}}
	} else if err := unmarshal(in.Input, &items); err != nil {
		return err
	}
	for _, it := range items {
		if err := r.responsesItem(it); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) responsesTools(namespace string, tools []responsesTool) {
	for _, t := range tools {
		if t.Type == "namespace" {
			r.responsesTools(t.Name, t.Tools)
			continue
		}
		if t.Name == "" {
			t.Name = t.Type // a hosted tool
		}
		r.Tools = append(r.Tools, Tool{Name: t.Name, Namespace: namespace, Type: t.Type, Schema: t.Parameters})
	}
}

func (r *Request) responsesItem(it responsesItem) error {
	switch it.Type {
	case "", "message":
		texts, files, err := textOf(it.Content)
		if err != nil {
			return err
		}
		switch it.Role {
		case "system", "developer":
			for _, s := range texts {
				r.system(s)
			}
		case "assistant":
			m := r.message(Assistant)
			m.Texts = append(m.Texts, texts...)
		default:
			m := r.message(User)
			m.Texts = append(m.Texts, texts...)
			m.Files += files
		}
	case "additional_tools": // newer models of Codex have their tools in the conversation
		r.responsesTools("", it.Tools)
	case "reasoning":
		texts, _, err := textOf(it.Summary)
		r.message(Assistant).Thinking += join(texts)
		return err
	case "function_call", "custom_tool_call", "local_shell_call":
		m := r.message(Assistant)
		c := ToolCall{ID: it.CallID, Name: it.Name, Args: it.Arguments + it.Input}
		if it.Type == "local_shell_call" {
			c.Name, c.Args = "local_shell", string(it.Action)
		}
		m.Calls = append(m.Calls, c)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		texts, _, err := textOf(it.Output)
		if err != nil {
			return err
		}
		m := r.message(ToolRole)
		m.Results = append(m.Results, ToolResult{CallID: it.CallID, Text: join(texts)})
	}
	return nil
}

func join(texts []string) string { return strings.Join(texts, "\n") }

// item is a finished output item.
func (responses) item(id string, p part) map[string]any {
	switch {
	case p.kind == thought:
		return map[string]any{
			"type": "reasoning", "id": id, "encrypted_content": signature,
			"summary": []any{map[string]any{"type": "summary_text", "text": p.text}},
		}
	case p.kind == answer:
		return map[string]any{
			"type": "message", "id": id, "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": p.text, "annotations": []any{}}},
		}
	case p.tool.Type == "custom":
		return map[string]any{"type": "custom_tool_call", "id": id, "call_id": p.callID, "name": p.tool.Name, "input": p.text, "status": "completed"}
	case p.tool.Type == "local_shell":
		return map[string]any{
			"type": "local_shell_call", "id": id, "call_id": p.callID, "status": "completed",
			"action": map[string]any{"type": "exec", "command": commandLine(p.text), "env": map[string]any{}},
		}
	}
	it := map[string]any{"type": "function_call", "id": id, "call_id": p.callID, "name": p.tool.Name, "arguments": p.text, "status": "completed"}
	if p.tool.Namespace != "" {
		it["namespace"] = p.tool.Namespace
	}
	return it
}

// commandLine reads the argument of a hosted shell.
func commandLine(args string) []string {
	var in struct {
		Command json.RawMessage `json:"command"`
	}
	var line []string
	var text string
	if json.Unmarshal([]byte(args), &in) == nil && json.Unmarshal(in.Command, &line) == nil {
		return line
	}
	if json.Unmarshal(in.Command, &text) != nil {
		text = args
	}
	return []string{"bash", "-c", text}
}

// itemPrefix begins the ids of a part's items.
func itemPrefix(p part) string {
	switch {
	case p.kind == thought:
		return "rs"
	case p.kind == answer:
		return "msg"
	case p.tool.Type == "custom":
		return "ctc"
	case p.tool.Type == "local_shell":
		return "lsh"
	}
	return "fc"
}

// response is the object at the begin and the end of a stream.
func (responses) response(r *Request, id string, output []any, stop string, u *tokens) map[string]any {
	o := map[string]any{
		"id": id, "object": "response", "created_at": r.Received.Unix(), "model": r.Model, "output": output,
		"status": "in_progress", "error": nil, "incomplete_details": nil,
	}
	switch stop {
	case "":
	case endTurn, toolUse:
		o["status"] = "completed"
	case maxTokens:
		o["status"], o["incomplete_details"] = "incomplete", map[string]any{"reason": "max_output_tokens"}
	case refusal:
		o["status"], o["incomplete_details"] = "incomplete", map[string]any{"reason": "content_filter"}
	default:
		o["status"], o["incomplete_details"] = "incomplete", map[string]any{"reason": stop}
	}
	if u != nil {
		o["usage"] = map[string]any{
			"input_tokens": u.prompt(), "input_tokens_details": map[string]any{"cached_tokens": u.cacheRead},
			"output_tokens": u.out, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens": u.prompt() + u.out,
		}
	}
	return o
}

func (d responses) whole(r *Request, id func(string) string, parts []part, stop string, u tokens) any {
	output := []any{}
	for _, p := range parts {
		output = append(output, d.item(id(itemPrefix(p)), p))
	}
	return d.response(r, id("resp"), output, stop, &u)
}

func (responses) failure(status int, kind, message string) any {
	return openAIFailure(status, kind, message)
}

func (d responses) stream(e *events, r *Request, id func(string) string) stream {
	return &responsesStream{responses: d, e: e, r: r, newID: id, id: id("resp"), output: []any{}}
}

type responsesStream struct {
	responses
	e      *events
	r      *Request
	newID  func(string) string
	id     string
	seq    int
	output []any // finished items

	itemID string
	part   part
}

func (s *responsesStream) send(kind string, fields map[string]any) error {
	if s.seq == 0 && kind != "response.created" {
		if err := s.send("response.created", map[string]any{"response": s.response(s.r, s.id, []any{}, "", nil)}); err != nil {
			return err
		}
	}
	fields["type"], fields["sequence_number"] = kind, s.seq
	s.seq++
	return s.e.send(kind, fields)
}

// sendItem is send for events about the present item.
func (s *responsesStream) sendItem(kind string, fields map[string]any) error {
	fields["output_index"] = len(s.output)
	if fields["item"] == nil {
		fields["item_id"] = s.itemID
	}
	return s.send(kind, fields)
}

func (s *responsesStream) open(p part) error {
	s.part, s.itemID = p, s.newID(itemPrefix(p))
	it := s.item(s.itemID, p)
	switch p.kind {
	case thought:
		it["summary"] = []any{}
	case answer:
		it["content"], it["status"] = []any{}, "in_progress"
	case call:
		it["status"] = "in_progress"
	}
	if err := s.sendItem("response.output_item.added", map[string]any{"item": it}); err != nil {
		return err
	}
	switch p.kind {
	case thought:
		return s.sendItem("response.reasoning_summary_part.added", map[string]any{"summary_index": 0, "part": map[string]any{"type": "summary_text", "text": ""}})
	case answer:
		return s.sendItem("response.content_part.added", map[string]any{"content_index": 0, "part": map[string]any{"type": "output_text", "text": "", "annotations": []any{}}})
	}
	return nil
}

// event returns the name of the present item's events, without .delta and
// .done, and the fields that place them.
func (s *responsesStream) event() (string, map[string]any) {
	switch {
	case s.part.kind == thought:
		return "response.reasoning_summary_text", map[string]any{"summary_index": 0}
	case s.part.kind == answer:
		return "response.output_text", map[string]any{"content_index": 0}
	case s.part.tool.Type == "custom":
		return "response.custom_tool_call_input", map[string]any{}
	case s.part.tool.Type == "local_shell":
		return "", nil // comes whole
	}
	return "response.function_call_arguments", map[string]any{}
}

func (s *responsesStream) delta(text string) error {
	s.part.text += text
	name, fields := s.event()
	if name == "" {
		return nil
	}
	fields["delta"] = text
	return s.sendItem(name+".delta", fields)
}

func (s *responsesStream) shut() error {
	if name, fields := s.event(); name != "" {
		key := "text"
		switch {
		case s.part.kind == call && s.part.tool.Type == "custom":
			key = "input"
		case s.part.kind == call:
			key = "arguments"
		}
		fields[key] = s.part.text
		if err := s.sendItem(name+".done", fields); err != nil {
			return err
		}
	}
	var err error
	switch s.part.kind {
	case thought:
		err = s.sendItem("response.reasoning_summary_part.done", map[string]any{"summary_index": 0, "part": map[string]any{"type": "summary_text", "text": s.part.text}})
	case answer:
		err = s.sendItem("response.content_part.done", map[string]any{"content_index": 0, "part": map[string]any{"type": "output_text", "text": s.part.text, "annotations": []any{}}})
	}
	if err != nil {
		return err
	}
	it := s.item(s.itemID, s.part)
	if err := s.sendItem("response.output_item.done", map[string]any{"item": it}); err != nil {
		return err
	}
	s.output = append(s.output, it)
	return nil
}

func (s *responsesStream) finish(stop string, u tokens) error {
	o := s.response(s.r, s.id, s.output, stop, &u)
	if o["status"] == "incomplete" {
		return s.send("response.incomplete", map[string]any{"response": o})
	}
	return s.send("response.completed", map[string]any{"response": o})
}

func (s *responsesStream) broken(kind, message string) error {
	if kind == "" {
		kind = "server_error"
	}
	o := s.response(s.r, s.id, s.output, "", nil)
	o["status"], o["error"] = "failed", map[string]any{"code": kind, "message": message}
	return s.send("response.failed", map[string]any{"response": o})
}
