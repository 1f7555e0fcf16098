package scriptedmodel

import (
	"encoding/json"
)

// chat is OpenAI's Chat Completions, with the reasoning_content of compatible
// providers.
type chat struct{}

// textOf returns the texts of content that is a text or a list of parts, and how
// many parts are no text. OpenAI's two dialects share it.
func textOf(raw json.RawMessage) (texts []string, files int, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, 0, nil
	}
	if raw[0] == '"' {
		var s string
		err = unmarshal(raw, &s)
		return []string{s}, 0, err
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := unmarshal(raw, &parts); err != nil {
		return nil, 0, err
	}
	for _, p := range parts {
		if p.Text == nil {
			files++
			continue
		}
		texts = append(texts, *p.Text)
	}
	return texts, files, nil
}

func (chat) decode(r *Request) error {
	r.Dialect = Chat
	type function struct {
		Name       string          `json:"name"`
		Arguments  string          `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Effort   string `json:"reasoning_effort"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			Reasoning string          `json:"reasoning_content"`
			CallID    string          `json:"tool_call_id"`
			ToolCalls []struct {
				ID       string   `json:"id"`
				Function function `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Type     string   `json:"type"`
			Function function `json:"function"`
		} `json:"tools"`
		Reasoning struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Format struct {
			Type   string `json:"type"`
			Schema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := unmarshal(r.Body, &in); err != nil {
		return err
	}
	r.Model, r.Stream, r.Effort, r.Schema = in.Model, in.Stream, in.Effort, in.Format.Schema.Schema
	if r.Effort == "" {
		r.Effort = in.Reasoning.Effort
	}
	if in.Format.Type == "json_object" {
		r.Schema = json.RawMessage(`{"type":"object"}`)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, Tool{Name: t.Function.Name, Type: t.Type, Schema: t.Function.Parameters})
	}
	for _, m := range in.Messages {
		texts, files, err := textOf(m.Content)
		if err != nil {
			return err
		}
		switch m.Role {
		case "system", "developer":
			for _, s := range texts {
				r.system(s)
			}
		case "tool":
			t := r.message(ToolRole)
			t.Results = append(t.Results, ToolResult{CallID: m.CallID, Text: join(texts)})
		case "assistant":
			a := r.message(Assistant)
			a.Texts = append(a.Texts, texts...)
			a.Thinking += m.Reasoning
			for _, c := range m.ToolCalls {
				a.Calls = append(a.Calls, ToolCall{ID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments})
			}
		default:
			u := r.message(User)
			u.Texts = append(u.Texts, texts...)
			u.Files += files
		}
	}
	return nil
}

// finishReason translates a stop reason.
func (chat) finishReason(stop string) string {
	if s, ok := map[string]string{endTurn: "stop", toolUse: "tool_calls", maxTokens: "length", refusal: "content_filter"}[stop]; ok {
		return s
	}
	return stop
}

// usage is the usage object; the provider counts cached tokens among the
// prompt's.
func (chat) usage(u tokens) map[string]any {
	return map[string]any{
		"prompt_tokens": u.prompt(), "completion_tokens": u.out, "total_tokens": u.prompt() + u.out,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.cacheRead},
		"completion_tokens_details": map[string]any{"reasoning_tokens": 0},
	}
}

func (d chat) whole(r *Request, id func(string) string, parts []part, stop string, u tokens) any {
	m := map[string]any{"role": "assistant", "content": nil}
	text, reasoning, calls := "", "", []any{}
	for _, p := range parts {
		switch p.kind {
		case thought:
			reasoning += p.text
		case answer:
			text += p.text
		case call:
			calls = append(calls, map[string]any{
				"id": p.callID, "type": "function",
				"function": map[string]any{"name": p.tool.Name, "arguments": p.text},
			})
		}
	}
	if text != "" || len(calls) == 0 {
		m["content"] = text
	}
	if reasoning != "" {
		m["reasoning_content"] = reasoning
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	choice := map[string]any{"index": 0, "message": m, "finish_reason": d.finishReason(stop)}
	return map[string]any{
		"id": id("chatcmpl"), "object": "chat.completion", "created": r.Received.Unix(), "model": r.Model,
		"choices": []any{choice}, "usage": d.usage(u),
	}
}

func (chat) failure(status int, kind, message string) any {
	return openAIFailure(status, kind, message)
}

// openAIFailure is the error body of OpenAI's dialects.
func openAIFailure(status int, kind, message string) any {
	code := any(nil)
	if kind == "" {
		kind = "server_error"
		switch {
		case status == 401:
			kind, code = "invalid_request_error", "invalid_api_key"
		case status == 429:
			kind, code = "requests", "rate_limit_exceeded"
		case status < 500:
			kind = "invalid_request_error"
		}
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "code": code, "param": nil}}
}

func (d chat) stream(e *events, r *Request, id func(string) string) stream {
	return &chatStream{chat: d, e: e, r: r, id: id("chatcmpl"), call: -1}
}

type chatStream struct {
	chat
	e     *events
	r     *Request
	id    string
	begun bool
	kind  partKind
	call  int // index of the present call
}

func (s *chatStream) chunk(choices []any, extra map[string]any) error {
	c := map[string]any{"id": s.id, "object": "chat.completion.chunk", "created": s.r.Received.Unix(), "model": s.r.Model, "choices": choices}
	for k, v := range extra {
		c[k] = v
	}
	return s.e.send("", c)
}

func (s *chatStream) send(delta map[string]any, finish any) error {
	if !s.begun {
		s.begun = true
		if err := s.send(map[string]any{"role": "assistant", "content": ""}, nil); err != nil {
			return err
		}
	}
	return s.chunk([]any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
}

func (s *chatStream) open(p part) error {
	s.kind = p.kind
	if p.kind != call {
		return nil
	}
	s.call++
	return s.send(map[string]any{"tool_calls": []any{map[string]any{
		"index": s.call, "id": p.callID, "type": "function",
		"function": map[string]any{"name": p.tool.Name, "arguments": ""},
	}}}, nil)
}

func (s *chatStream) delta(text string) error {
	switch s.kind {
	case thought:
		return s.send(map[string]any{"reasoning_content": text}, nil)
	case call:
		return s.send(map[string]any{"tool_calls": []any{map[string]any{"index": s.call, "function": map[string]any{"arguments": text}}}}, nil)
	default:
		return s.send(map[string]any{"content": text}, nil)
	}
}

func (s *chatStream) shut() error { return nil }

func (s *chatStream) finish(stop string, u tokens) error {
	if err := s.send(map[string]any{}, s.finishReason(stop)); err != nil {
		return err
	}
	// The provider sends usage on request only; clients that do not ask ignore it.
	if err := s.chunk([]any{}, map[string]any{"usage": s.usage(u)}); err != nil {
		return err
	}
	return s.e.raw("", []byte("[DONE]"))
}

func (s *chatStream) broken(kind, message string) error {
	return s.e.send("", openAIFailure(500, kind, message))
}
