package scriptedmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
)

// gemini is Google's generateContent.
type gemini struct{}

type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text    *string `json:"text"`
		Thought bool    `json:"thought"`
		Call    *struct {
			ID   string          `json:"id"`
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"functionCall"`
		Response *struct {
			ID       string          `json:"id"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

func (gemini) decode(r *Request) error {
	r.Dialect = Gemini
	name, op, _ := strings.Cut(path.Base(r.Path), ":")
	r.Model, r.Stream = name, op == "streamGenerateContent"
	var in struct {
		System   geminiContent   `json:"systemInstruction"`
		Contents []geminiContent `json:"contents"`
		Tools    []struct {
			Functions []struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
				Schema     json.RawMessage `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			MIME       string          `json:"responseMimeType"`
			Schema     json.RawMessage `json:"responseSchema"`
			JSONSchema json.RawMessage `json:"responseJsonSchema"`
			Thinking   struct {
				Budget *int   `json:"thinkingBudget"`
				Level  string `json:"thinkingLevel"`
			} `json:"thinkingConfig"`
		} `json:"generationConfig"`
	}
	if err := unmarshal(r.Body, &in); err != nil {
		return err
	}
	r.Effort = in.Config.Thinking.Level
	if b := in.Config.Thinking.Budget; r.Effort == "" && b != nil {
		r.Effort = fmt.Sprintf("budget %d", *b)
	}
	switch {
	case len(in.Config.JSONSchema) > 0:
		r.Schema = in.Config.JSONSchema
	case len(in.Config.Schema) > 0:
		r.Schema = in.Config.Schema
	case in.Config.MIME == "application/json":
		r.Schema = json.RawMessage(`{"type":"object"}`)
	}
	for _, p := range in.System.Parts {
		if p.Text != nil {
			r.system(*p.Text)
		}
	}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			if len(f.Schema) == 0 {
				f.Schema = f.Parameters
			}
			r.Tools = append(r.Tools, Tool{Name: f.Name, Type: "function", Schema: f.Schema})
		}
	}
	for _, c := range in.Contents {
		r.geminiContent(c)
	}
	return nil
}

func (r *Request) geminiContent(c geminiContent) {
	for _, p := range c.Parts {
		switch {
		case p.Response != nil:
			m := r.message(ToolRole)
			m.Results = append(m.Results, ToolResult{CallID: p.Response.ID, Text: responseText(p.Response.Response)})
		case p.Call != nil:
			m := r.message(Assistant)
			m.Calls = append(m.Calls, ToolCall{ID: p.Call.ID, Name: p.Call.Name, Args: string(p.Call.Args)})
		case c.Role == "model" && p.Text != nil && p.Thought:
			r.message(Assistant).Thinking += *p.Text
		case c.Role == "model" && p.Text != nil:
			m := r.message(Assistant)
			m.Texts = append(m.Texts, *p.Text)
		case p.Text != nil:
			m := r.message(User)
			m.Texts = append(m.Texts, *p.Text)
		case c.Role != "model":
			r.message(User).Files++
		}
	}
}

// responseText returns the output or error of a function's response, or the
// whole object.
func responseText(raw json.RawMessage) string {
	var known struct {
		Output *string `json:"output"`
		Error  *string `json:"error"`
	}
	if json.Unmarshal(raw, &known) == nil {
		switch {
		case known.Output != nil:
			return *known.Output
		case known.Error != nil:
			return *known.Error
		}
	}
	return string(raw)
}

// chunk is one GenerateContentResponse.
func (gemini) chunk(r *Request, id string, parts []any, finish string, u *tokens) map[string]any {
	c := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if s, ok := map[string]string{endTurn: "STOP", toolUse: "STOP", maxTokens: "MAX_TOKENS", refusal: "SAFETY"}[finish]; ok {
		finish = s
	}
	if finish != "" {
		c["finishReason"] = finish
	}
	out := map[string]any{"candidates": []any{c}, "modelVersion": r.Model, "responseId": id}
	if u != nil {
		out["usageMetadata"] = map[string]any{
			"promptTokenCount": u.prompt(), "candidatesTokenCount": u.out, "totalTokenCount": u.prompt() + u.out,
			"cachedContentTokenCount": u.cacheRead,
		}
	}
	return out
}

func (gemini) text(kind partKind, s string) any {
	if kind == thought {
		return map[string]any{"text": s, "thought": true}
	}
	return map[string]any{"text": s}
}

func (gemini) call(p part) any {
	args := json.RawMessage(p.text)
	if !json.Valid(args) {
		args, _ = encode(map[string]string{"input": p.text}) // this dialect has objects only
	}
	return map[string]any{"functionCall": map[string]any{"name": p.tool.Name, "args": args}, "thoughtSignature": signature}
}

func (d gemini) whole(r *Request, id func(string) string, parts []part, stop string, u tokens) any {
	out := []any{}
	for _, p := range parts {
		if p.kind == call {
			out = append(out, d.call(p))
		} else {
			out = append(out, d.text(p.kind, p.text))
		}
	}
	return d.chunk(r, id("resp"), out, stop, &u)
}

func (gemini) failure(status int, kind, message string) any {
	if kind == "" {
		kind = map[int]string{
			400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
			429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
		}[status]
	}
	if kind == "" {
		kind = "UNKNOWN"
	}
	return map[string]any{"error": map[string]any{"code": status, "message": message, "status": kind}}
}

func (d gemini) stream(e *events, r *Request, id func(string) string) stream {
	return &geminiStream{gemini: d, e: e, r: r, id: id("resp")}
}

type geminiStream struct {
	gemini
	e    *events
	r    *Request
	id   string
	part part
}

func (s *geminiStream) open(p part) error { s.part = p; return nil }

func (s *geminiStream) delta(text string) error {
	if s.part.kind == call {
		s.part.text += text // a call is one piece in this dialect
		return nil
	}
	return s.e.send("", s.chunk(s.r, s.id, []any{s.text(s.part.kind, text)}, "", nil))
}

func (s *geminiStream) shut() error {
	if s.part.kind != call {
		return nil
	}
	return s.e.send("", s.chunk(s.r, s.id, []any{s.gemini.call(s.part)}, "", nil))
}

func (s *geminiStream) finish(stop string, u tokens) error {
	return s.e.send("", s.chunk(s.r, s.id, []any{s.text(answer, "")}, stop, &u))
}

func (s *geminiStream) broken(kind, message string) error {
	return s.e.send("", s.failure(http.StatusServiceUnavailable, kind, message))
}
