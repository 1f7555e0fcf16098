package scriptedmodel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// anthropic is the Messages API.
type anthropic struct{}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// anthropicBlocks reads content that is a text or a list of blocks.
func anthropicBlocks(raw json.RawMessage) ([]anthropicBlock, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		b := []anthropicBlock{{Type: "text"}}
		return b, unmarshal(raw, &b[0].Text)
	}
	var b []anthropicBlock
	return b, unmarshal(raw, &b)
}

func (anthropic) decode(r *Request) error {
	r.Dialect = Anthropic
	var in struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name   string          `json:"name"`
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		Thinking struct {
			Budget int `json:"budget_tokens"`
		} `json:"thinking"`
		Output struct {
			Effort string `json:"effort"`
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"output_config"`
	}
	if err := unmarshal(r.Body, &in); err != nil {
		return err
	}
	r.Model, r.Stream, r.Effort, r.Schema = in.Model, in.Stream, in.Output.Effort, in.Output.Format.Schema
	if r.Effort == "" && in.Thinking.Budget > 0 {
		r.Effort = fmt.Sprintf("budget %d", in.Thinking.Budget)
	}
	system, err := anthropicBlocks(in.System)
	if err != nil {
		return err
	}
	for _, b := range system {
		r.system(b.Text)
	}
	for _, t := range in.Tools {
		if t.Type == "" || t.Type == "custom" {
			t.Type = "function"
		}
		r.Tools = append(r.Tools, Tool{Name: t.Name, Type: t.Type, Schema: t.Schema})
	}
	for _, m := range in.Messages {
		blocks, err := anthropicBlocks(m.Content)
		if err != nil {
			return err
		}
		for _, b := range blocks {
			if err := r.anthropicBlock(m.Role, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Request) anthropicBlock(role string, b anthropicBlock) error {
	switch {
	case b.Type == "tool_result":
		inner, err := anthropicBlocks(b.Content)
		if err != nil {
			return err
		}
		var texts []string
		for _, i := range inner {
			texts = append(texts, i.Text)
		}
		m := r.message(ToolRole)
		m.Results = append(m.Results, ToolResult{CallID: b.ToolUseID, Text: strings.Join(texts, "\n"), Failed: b.IsError})
	case role == "system":
		r.system(b.Text)
	case role == "user" && b.Type == "text":
		m := r.message(User)
		m.Texts = append(m.Texts, b.Text)
	case role == "user":
		r.message(User).Files++
	default:
		m := r.message(Assistant)
		switch b.Type {
		case "text":
			m.Texts = append(m.Texts, b.Text)
		case "thinking":
			m.Thinking += b.Thinking
		case "tool_use":
			m.Calls = append(m.Calls, ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		}
	}
	return nil
}

// anthropicUsage is the usage object. The provider does not count cached tokens
// among the input tokens.
func anthropicUsage(u tokens) map[string]any {
	return map[string]any{
		"input_tokens": u.in, "output_tokens": u.out,
		"cache_read_input_tokens": u.cacheRead, "cache_creation_input_tokens": u.cacheWrite,
		"service_tier": "standard",
	}
}

const signature = "c2lnbmF0dXJl"

func (anthropic) whole(r *Request, id func(string) string, parts []part, stop string, u tokens) any {
	content := []any{}
	for _, p := range parts {
		switch p.kind {
		case thought:
			content = append(content, map[string]any{"type": "thinking", "thinking": p.text, "signature": signature})
		case answer:
			content = append(content, map[string]any{"type": "text", "text": p.text})
		case call:
			content = append(content, map[string]any{"type": "tool_use", "id": p.callID, "name": p.tool.Name, "input": json.RawMessage(p.text)})
		}
	}
	return map[string]any{
		"id": id("msg"), "type": "message", "role": "assistant", "model": r.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": anthropicUsage(u),
	}
}

func (anthropic) failure(status int, kind, message string) any {
	if kind == "" {
		kind = map[int]string{
			400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
			413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
		}[status]
	}
	if kind == "" {
		kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
}

func (d anthropic) stream(e *events, r *Request, id func(string) string) stream {
	return &anthropicStream{e: e, r: r, id: id, index: -1}
}

type anthropicStream struct {
	e     *events
	r     *Request
	id    func(string) string
	begun bool
	index int
	kind  partKind
}

func (s *anthropicStream) send(kind string, fields map[string]any) error {
	fields["type"] = kind
	return s.e.send(kind, fields)
}

func (s *anthropicStream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	usage := anthropicUsage(tokens{in: 100, out: 1})
	err := s.send("message_start", map[string]any{"message": map[string]any{
		"id": s.id("msg"), "type": "message", "role": "assistant", "model": s.r.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}})
	if err != nil {
		return err
	}
	return s.send("ping", map[string]any{})
}

func (s *anthropicStream) open(p part) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.index++
	s.kind = p.kind
	block := map[string]any{"type": "text", "text": ""}
	switch p.kind {
	case thought:
		block = map[string]any{"type": "thinking", "thinking": "", "signature": ""}
	case call:
		block = map[string]any{"type": "tool_use", "id": p.callID, "name": p.tool.Name, "input": map[string]any{}}
	}
	return s.send("content_block_start", map[string]any{"index": s.index, "content_block": block})
}

func (s *anthropicStream) delta(text string) error {
	d := map[string]any{"type": "text_delta", "text": text}
	switch s.kind {
	case thought:
		d = map[string]any{"type": "thinking_delta", "thinking": text}
	case call:
		d = map[string]any{"type": "input_json_delta", "partial_json": text}
	}
	return s.send("content_block_delta", map[string]any{"index": s.index, "delta": d})
}

func (s *anthropicStream) shut() error {
	if s.kind == thought {
		d := map[string]any{"type": "signature_delta", "signature": signature}
		if err := s.send("content_block_delta", map[string]any{"index": s.index, "delta": d}); err != nil {
			return err
		}
	}
	return s.send("content_block_stop", map[string]any{"index": s.index})
}

func (s *anthropicStream) finish(stop string, u tokens) error {
	if err := s.begin(); err != nil {
		return err
	}
	delta := map[string]any{"stop_reason": stop, "stop_sequence": nil}
	if err := s.send("message_delta", map[string]any{"delta": delta, "usage": anthropicUsage(u)}); err != nil {
		return err
	}
	return s.send("message_stop", map[string]any{})
}

func (s *anthropicStream) broken(kind, message string) error {
	if kind == "" {
		kind = "overloaded_error"
	}
	return s.send("error", map[string]any{"error": map[string]any{"type": kind, "message": message}})
}
