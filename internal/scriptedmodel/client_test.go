package scriptedmodel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// obj is a JSON object, as clients of the providers read it.
type obj = map[string]any

// said is one thing of a conversation that a client sends.
type said struct {
	user, assistant string
	calls           []callOf // with their results
}

type callOf struct{ id, name, args, result string }

// reply is an answer in no dialect's terms.
type reply struct {
	Thought, Text string
	Calls         []callOf // without results
	Stop          string
	In, Out       int // In counts cached tokens
	Cached        int
	Error         string
	Done          bool // the stream ended as its dialect says
}

// client is the other side of a dialect, written after the provider's documents.
type client struct {
	dialect scriptedmodel.Dialect
	path    func(stream bool) string
	body    func(stream bool, system string, talk []said, tools []string) obj
	events  func(t *testing.T, events []event) reply
	whole   func(o obj) reply
	stops   map[string]string // neutral to the dialect's
}

// event is one server-sent event.
type event struct {
	name string
	raw  string
	data obj
}

func parseEvents(t *testing.T, b []byte) []event {
	t.Helper()
	var out []event
	for block := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "event":
				e.name = value
			case "data":
				e.raw = value
			default:
				t.Errorf("line %q in an event", line)
			}
		}
		if e.raw != "[DONE]" {
			if err := json.Unmarshal([]byte(e.raw), &e.data); err != nil {
				t.Errorf("event %q: %v", e.raw, err)
			}
		}
		out = append(out, e)
	}
	return out
}

// at follows keys and indexes into a JSON value; it is nil where there is none.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(obj)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func str(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

func num(v any, path ...any) int {
	f, _ := at(v, path...).(float64)
	return int(f)
}

func list(v any, path ...any) []any {
	l, _ := at(v, path...).([]any)
	return l
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func schemaOf(string) obj {
	return obj{
		"type": "object", "required": []string{"file_path"},
		"properties": obj{"file_path": obj{"type": "string"}, "command": obj{"type": "string"}},
	}
}

var clients = []client{anthropicClient, responsesClient, chatClient, geminiClient}

var anthropicClient = client{
	dialect: scriptedmodel.Anthropic,
	path:    func(bool) string { return "/v1/messages" },
	stops:   map[string]string{"end_turn": "end_turn", "tool_use": "tool_use", "max_tokens": "max_tokens", "refusal": "refusal"},
	body: func(stream bool, system string, talk []said, tools []string) obj {
		var msgs, ts []any
		for _, s := range talk {
			if s.user != "" {
				msgs = append(msgs, obj{"role": "user", "content": []any{
					obj{"type": "text", "text": "<system-reminder>\nnot the user's\n</system-reminder>"}, obj{"type": "text", "text": s.user},
				}})
			}
			var out, in []any
			if s.assistant != "" {
				out = append(out, obj{"type": "text", "text": s.assistant})
			}
			for _, c := range s.calls {
				out = append(out, obj{"type": "tool_use", "id": c.id, "name": c.name, "input": raw(c.args)})
				in = append(in, obj{"type": "tool_result", "tool_use_id": c.id, "content": []any{obj{"type": "text", "text": c.result}}})
			}
			if out != nil {
				msgs = append(msgs, obj{"role": "assistant", "content": out})
			}
			if in != nil {
				msgs = append(msgs, obj{"role": "user", "content": append(in, obj{"type": "text", "text": "<system-reminder>more</system-reminder>"})})
			}
		}
		for _, n := range tools {
			ts = append(ts, obj{"name": n, "input_schema": schemaOf(n)})
		}
		return obj{"model": "m-1", "stream": stream, "system": []any{obj{"type": "text", "text": system}}, "messages": msgs, "tools": ts, "output_config": obj{"effort": "low"}}
	},
	events: func(t *testing.T, events []event) (r reply) {
		open, next, args := -1, 0, ""
		var block obj
		for i, e := range events {
			if e.name != str(e.data, "type") {
				t.Errorf("event %q has type %q", e.name, str(e.data, "type"))
			}
			if e.name == "error" {
				r.Error = str(e.data, "error", "type") + ": " + str(e.data, "error", "message")
				return r
			}
			if (i == 0) != (e.name == "message_start") || r.Done {
				t.Errorf("event %d is %s", i, e.name)
			}
			if strings.HasPrefix(e.name, "content_block_") && e.name != "content_block_start" && num(e.data, "index") != open {
				t.Errorf("%s for block %d, open is %d", e.name, num(e.data, "index"), open)
			}
			switch e.name {
			case "message_start":
				if at(e.data, "message", "stop_reason") != nil || str(e.data, "message", "model") != "m-1" || num(e.data, "message", "usage", "output_tokens") != 1 {
					t.Errorf("message_start %s", e.raw)
				}
			case "content_block_start":
				if open >= 0 || num(e.data, "index") != next {
					t.Errorf("block %d opens while %d is open and %d is next", num(e.data, "index"), open, next)
				}
				open, next, args = next, next+1, ""
				block, _ = at(e.data, "content_block").(obj)
			case "content_block_delta":
				kind := str(block, "type") + " " + str(e.data, "delta", "type")
				switch kind {
				case "text text_delta":
					r.Text += str(e.data, "delta", "text")
				case "thinking thinking_delta":
					r.Thought += str(e.data, "delta", "thinking")
				case "thinking signature_delta":
				case "tool_use input_json_delta":
					args += str(e.data, "delta", "partial_json")
				default:
					t.Errorf("a delta %s", kind)
				}
			case "content_block_stop":
				if str(block, "type") == "tool_use" {
					r.Calls = append(r.Calls, callOf{id: str(block, "id"), name: str(block, "name"), args: args})
				}
				open = -1
			case "message_delta":
				r.Stop = str(e.data, "delta", "stop_reason")
				r.usage(at(e.data, "usage"))
			case "message_stop":
				r.Done = open < 0
			}
		}
		return r
	},
	whole: func(o obj) (r reply) {
		for _, b := range list(o, "content") {
			r.Thought += str(b, "thinking")
			r.Text += str(b, "text")
			if str(b, "type") == "tool_use" {
				args, _ := json.Marshal(at(b, "input"))
				r.Calls = append(r.Calls, callOf{id: str(b, "id"), name: str(b, "name"), args: string(args)})
			}
		}
		r.Stop, r.Done = str(o, "stop_reason"), true
		r.usage(at(o, "usage"))
		return r
	},
}

func (r *reply) usage(u any) {
	r.Cached = num(u, "cache_read_input_tokens")
	r.In = num(u, "input_tokens") + r.Cached + num(u, "cache_creation_input_tokens")
	r.Out = num(u, "output_tokens")
}

var responsesClient = client{
	dialect: scriptedmodel.Responses,
	path:    func(bool) string { return "/v1/responses" },
	stops:   map[string]string{"end_turn": "completed", "tool_use": "completed", "max_tokens": "max_output_tokens", "refusal": "content_filter"},
	body: func(stream bool, system string, talk []said, tools []string) obj {
		input := []any{obj{"type": "message", "role": "user", "content": []any{obj{"type": "input_text", "text": "<environment_context>\n</environment_context>"}}}}
		var ts []any
		for _, s := range talk {
			if s.user != "" {
				input = append(input, obj{"type": "message", "role": "user", "content": []any{obj{"type": "input_text", "text": s.user}}})
			}
			if s.assistant != "" {
				input = append(input, obj{"type": "message", "role": "assistant", "content": []any{obj{"type": "output_text", "text": s.assistant}}})
			}
			for _, c := range s.calls {
				input = append(input, obj{"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.args})
			}
			for _, c := range s.calls {
				input = append(input, obj{"type": "function_call_output", "call_id": c.id, "output": c.result})
			}
		}
		for _, n := range tools {
			ts = append(ts, obj{"type": "function", "name": n, "parameters": schemaOf(n)})
		}
		return obj{"model": "m-1", "stream": stream, "instructions": system, "input": input, "tools": ts, "reasoning": obj{"effort": "low"}}
	},
	events: func(t *testing.T, events []event) (r reply) {
		type item struct{ id, text string }
		var open *item
		done := 0
		for i, e := range events {
			if e.name != str(e.data, "type") || num(e.data, "sequence_number") != i {
				t.Errorf("event %d %q: %s", i, e.name, e.raw)
			}
			if (i == 0) != (e.name == "response.created") || r.Done {
				t.Errorf("event %d is %s", i, e.name)
			}
			if _, ok := e.data["output_index"]; ok && num(e.data, "output_index") != done {
				t.Errorf("%s for item %d, %d are done", e.name, num(e.data, "output_index"), done)
			}
			if id := str(e.data, "item_id"); id != "" && (open == nil || id != open.id) {
				t.Errorf("%s names item %s, open is %v", e.name, id, open)
			}
			switch {
			case e.name == "response.output_item.added":
				open = &item{id: str(e.data, "item", "id")}
			case strings.HasSuffix(e.name, ".delta"):
				open.text += str(e.data, "delta")
			case e.name == "response.output_item.done":
				if got := responsesItem(&r, at(e.data, "item")); got != open.text && str(e.data, "item", "type") != "local_shell_call" {
					t.Errorf("the item has %q, its deltas %q", got, open.text)
				}
				open = nil
				done++
			case e.name == "response.failed":
				r.Error = str(e.data, "response", "error", "code") + ": " + str(e.data, "response", "error", "message")
				return r
			case e.name == "response.completed", e.name == "response.incomplete":
				if n := len(list(e.data, "response", "output")); n != done || e.name != "response."+str(e.data, "response", "status") {
					t.Errorf("%s has %d items, %d were done", e.name, n, done)
				}
				responsesEnd(&r, at(e.data, "response"))
			}
		}
		return r
	},
	whole: func(o obj) (r reply) {
		for _, it := range list(o, "output") {
			responsesItem(&r, it)
		}
		responsesEnd(&r, o)
		return r
	},
}

// responsesItem adds a finished item and returns what its deltas must have been.
func responsesItem(r *reply, it any) string {
	switch str(it, "type") {
	case "reasoning":
		r.Thought += str(it, "summary", 0, "text")
		return str(it, "summary", 0, "text")
	case "message":
		r.Text += str(it, "content", 0, "text")
		return str(it, "content", 0, "text")
	}
	args := str(it, "arguments") + str(it, "input")
	if a := at(it, "action"); a != nil {
		args = fmt.Sprint(at(a, "command"))
	}
	name := strings.TrimPrefix(str(it, "namespace")+"/"+str(it, "name"), "/")
	r.Calls = append(r.Calls, callOf{id: str(it, "call_id"), name: name, args: args})
	return args
}

func responsesEnd(r *reply, o any) {
	r.Stop, r.Done = str(o, "status"), true
	if why := str(o, "incomplete_details", "reason"); why != "" {
		r.Stop = why
	}
	r.In, r.Out = num(o, "usage", "input_tokens"), num(o, "usage", "output_tokens")
	r.Cached = num(o, "usage", "input_tokens_details", "cached_tokens")
}

var chatClient = client{
	dialect: scriptedmodel.Chat,
	path:    func(bool) string { return "/v1/chat/completions" },
	stops:   map[string]string{"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"},
	body: func(stream bool, system string, talk []said, tools []string) obj {
		msgs := []any{obj{"role": "system", "content": system}}
		var ts []any
		for _, s := range talk {
			if s.user != "" {
				msgs = append(msgs, obj{"role": "user", "content": s.user})
			}
			if s.assistant != "" || s.calls != nil {
				var calls []any
				for _, c := range s.calls {
					calls = append(calls, obj{"id": c.id, "type": "function", "function": obj{"name": c.name, "arguments": c.args}})
				}
				msgs = append(msgs, obj{"role": "assistant", "content": s.assistant, "tool_calls": calls})
			}
			for _, c := range s.calls {
				msgs = append(msgs, obj{"role": "tool", "tool_call_id": c.id, "content": c.result})
			}
		}
		for _, n := range tools {
			ts = append(ts, obj{"type": "function", "function": obj{"name": n, "parameters": schemaOf(n)}})
		}
		return obj{"model": "m-1", "stream": stream, "messages": msgs, "tools": ts, "reasoning_effort": "low"}
	},
	events: func(t *testing.T, events []event) (r reply) {
		for i, e := range events {
			if e.raw == "[DONE]" {
				r.Done = i == len(events)-1
				continue
			}
			if err := at(e.data, "error"); err != nil {
				r.Error = str(err, "type") + ": " + str(err, "message")
				return r
			}
			if str(e.data, "object") != "chat.completion.chunk" || str(e.data, "id") != str(events[0].data, "id") {
				t.Errorf("chunk %s", e.raw)
			}
			if u := at(e.data, "usage"); u != nil {
				if len(list(e.data, "choices")) > 0 {
					t.Error("the usage chunk has choices")
				}
				chatUsage(&r, u)
				continue
			}
			d := at(e.data, "choices", 0, "delta")
			if (i == 0) != (str(d, "role") == "assistant") {
				t.Errorf("chunk %d has role %q", i, str(d, "role"))
			}
			r.Text += str(d, "content")
			r.Thought += str(d, "reasoning_content")
			for _, c := range list(d, "tool_calls") {
				if id := str(c, "id"); id != "" {
					r.Calls = append(r.Calls, callOf{id: id, name: str(c, "function", "name")})
				}
				r.Calls[num(c, "index")].args += str(c, "function", "arguments")
			}
			if s := str(e.data, "choices", 0, "finish_reason"); s != "" {
				r.Stop = s
			}
		}
		return r
	},
	whole: func(o obj) (r reply) {
		m := at(o, "choices", 0, "message")
		r.Text, r.Thought, r.Stop, r.Done = str(m, "content"), str(m, "reasoning_content"), str(o, "choices", 0, "finish_reason"), true
		for _, c := range list(m, "tool_calls") {
			r.Calls = append(r.Calls, callOf{id: str(c, "id"), name: str(c, "function", "name"), args: str(c, "function", "arguments")})
		}
		chatUsage(&r, at(o, "usage"))
		return r
	},
}

func chatUsage(r *reply, u any) {
	r.In, r.Out = num(u, "prompt_tokens"), num(u, "completion_tokens")
	r.Cached = num(u, "prompt_tokens_details", "cached_tokens")
}

var geminiClient = client{
	dialect: scriptedmodel.Gemini,
	stops:   map[string]string{"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"},
	path: func(stream bool) string {
		if stream {
			return "/v1beta/models/m-1:streamGenerateContent?alt=sse"
		}
		return "/v1beta/models/m-1:generateContent"
	},
	body: func(_ bool, system string, talk []said, tools []string) obj {
		var contents, fs []any
		add := func(role string, parts ...any) { contents = append(contents, obj{"role": role, "parts": parts}) }
		for _, s := range talk {
			if s.user != "" {
				add("user", obj{"text": s.user})
			}
			if s.assistant != "" {
				add("model", obj{"text": s.assistant})
			}
			var out, in []any
			for _, c := range s.calls {
				out = append(out, obj{"functionCall": obj{"name": c.name, "args": raw(c.args)}})
				in = append(in, obj{"functionResponse": obj{"name": c.name, "response": obj{"output": c.result}}})
			}
			if out != nil {
				add("model", out...)
				add("user", in...)
			}
		}
		for _, n := range tools {
			fs = append(fs, obj{"name": n, "parametersJsonSchema": schemaOf(n)})
		}
		o := obj{"systemInstruction": obj{"parts": []any{obj{"text": system}}}, "contents": contents, "generationConfig": obj{"thinkingConfig": obj{"thinkingLevel": "low"}}}
		if fs != nil {
			o["tools"] = []any{obj{"functionDeclarations": fs}}
		}
		return o
	},
	events: func(t *testing.T, events []event) (r reply) {
		for i, e := range events {
			if err := at(e.data, "error"); err != nil {
				r.Error = str(err, "status") + ": " + str(err, "message")
				return r
			}
			if r.Done || str(e.data, "candidates", 0, "content", "role") != "model" {
				t.Errorf("chunk %d: %s", i, e.raw)
			}
			geminiChunk(&r, e.data)
		}
		return r
	},
	whole: func(o obj) (r reply) {
		geminiChunk(&r, o)
		return r
	},
}

func geminiChunk(r *reply, o any) {
	for _, p := range list(o, "candidates", 0, "content", "parts") {
		switch f := at(p, "functionCall"); {
		case f != nil:
			args, _ := json.Marshal(at(f, "args"))
			r.Calls = append(r.Calls, callOf{name: str(f, "name"), args: string(args)})
		case at(p, "thought") == true:
			r.Thought += str(p, "text")
		default:
			r.Text += str(p, "text")
		}
	}
	if s := str(o, "candidates", 0, "finishReason"); s != "" {
		r.Stop, r.Done = s, true
		r.In, r.Out = num(o, "usageMetadata", "promptTokenCount"), num(o, "usageMetadata", "candidatesTokenCount")
		r.Cached = num(o, "usageMetadata", "cachedContentTokenCount")
	}
}

// compact makes arguments comparable.
func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}
