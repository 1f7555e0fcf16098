package scriptedmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ReadFile calls the agent's tool for reading a file, or its shell.
func ReadFile(path string) Action {
	return purpose{
		names:  []string{"Read", "read", "read_file", "view"},
		values: map[string]string{"path": path},
		shell:  "cat " + quote(path),
	}.action()
}

// WriteFile calls the agent's tool for creating or replacing a file, or its tool
// for patches, which creates.
func WriteFile(path, text string) Action {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return purpose{
		names:  []string{"Write", "write", "write_file", "create", "create_file"},
		values: map[string]string{"path": path, "content": text},
		patch:  "*** Begin Patch\n*** Add File: " + path + "\n+" + strings.Join(lines, "\n+") + "\n*** End Patch\n",
	}.action()
}

// EditFile calls the agent's tool for replacing a piece of a file, or its tool
// for patches. For the latter, before and after should be whole lines.
func EditFile(path, before, after string) Action {
	minus := strings.ReplaceAll(strings.TrimSuffix(before, "\n"), "\n", "\n-")
	plus := strings.ReplaceAll(strings.TrimSuffix(after, "\n"), "\n", "\n+")
	return purpose{
		names:  []string{"Edit", "edit", "replace", "edit_file"},
		values: map[string]string{"path": path, "old": before, "new": after},
		patch:  "*** Begin Patch\n*** Update File: " + path + "\n@@\n-" + minus + "\n+" + plus + "\n*** End Patch\n",
	}.action()
}

// Shell calls the agent's shell.
func Shell(command string) Action { return purpose{shell: command}.action() }

// purpose is what a test wants from a tool, whatever its name.
type purpose struct {
	names  []string          // of tools made for it, the best first
	values map[string]string // arguments by the keys of synonyms
	patch  string            // that does the same, if a patch can
	shell  string            // command that does the same, if one can
}

// synonyms are the names that agents' tools have for an argument.
var synonyms = map[string][]string{
	"path":    {"file_path", "filePath", "absolute_path", "path"},
	"content": {"content", "contents", "file_text"},
	"old":     {"old_string", "oldString", "oldText", "old_str"},
	"new":     {"new_string", "newString", "newText", "new_str"},
	"command": {"command", "cmd"},
	"patch":   {"patchText", "patch", "input"},
}

var (
	shells  = []string{"Bash", "bash", "exec_command", "shell_command", "run_shell_command", "shell", "local_shell"}
	patches = []string{"apply_patch"}
)

func (u purpose) action() Action {
	return act(func(p *player) error {
		if t, args, ok := u.find(p.req); ok {
			return p.call(t, args)
		}
		var offered []string
		for _, t := range p.req.Tools {
			offered = append(offered, t.Name)
		}
		return p.part(part{kind: answer}, []string{fmt.Sprintf("The scripted model found no tool for %q among %q.", slices.Concat(u.names, shells), offered)})
	})
}

// find returns the tool and its arguments.
func (u purpose) find(r *Request) (Tool, string, bool) {
	for _, name := range u.names {
		if t, ok := r.tool(name); ok && t.Type == "function" {
			return t, arguments(t.Schema, u.values), true
		}
	}
	if u.patch != "" {
		for _, name := range patches {
			switch t, ok := r.tool(name); {
			case ok && t.Type == "custom":
				return t, u.patch, true
			case ok:
				return t, arguments(t.Schema, map[string]string{"patch": u.patch}), true
			}
		}
	}
	for _, name := range shells {
		if t, ok := r.tool(name); ok && u.shell != "" {
			return t, arguments(t.Schema, map[string]string{"command": u.shell}), true
		}
	}
	// Codex's code mode has one freeform tool, whose text is a program.
	if t, ok := r.tool("exec"); ok && t.Type == "custom" {
		switch {
		case u.patch != "":
			return t, fmt.Sprintf("const r = await tools.apply_patch(%s); text(r);", literal(u.patch)), true
		case u.shell != "":
			return t, fmt.Sprintf("const r = await tools.exec_command({cmd:%s}); text(r.output);", literal(u.shell)), true
		}
	}
	return Tool{}, "", false
}

// tool returns an offered tool by its name.
func (r *Request) tool(name string) (Tool, bool) {
	i := slices.IndexFunc(r.Tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return r.Tools[i], true
}

// schema is what is needed of a JSON schema.
type schema struct {
	Type       json.RawMessage            `json:"type"` // a name, or several
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Items      json.RawMessage            `json:"items"`
	Enum       []json.RawMessage          `json:"enum"`
	Const      json.RawMessage            `json:"const"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
}

func parse(raw json.RawMessage) schema {
	var s schema
	_ = json.Unmarshal(raw, &s) // what cannot be read is a schema without conditions
	return s
}

// is reports whether the schema allows the type; Gemini writes types in capitals.
func (s *schema) is(name string) bool {
	return strings.Contains(strings.ToLower(string(s.Type)), `"`+name+`"`)
}

// arguments returns an object with the values under the names of the schema, and
// something valid for whatever else is required.
func arguments(raw json.RawMessage, values map[string]string) string {
	b, _ := encode(fill(parse(raw), values))
	return string(b)
}

func fill(s schema, values map[string]string) map[string]any {
	out := map[string]any{}
	for name, raw := range s.Properties {
		prop := parse(raw)
		if v, ok := known(name, values); ok {
			out[name] = v
			if prop.is("array") { // a command line
				out[name] = []string{"bash", "-c", v}
			}
		} else if slices.Contains(s.Required, name) {
			out[name] = instance(raw)
			// Arguments may be those of one element of a list.
			if inner := parse(prop.Items); prop.is("array") && len(inner.Properties) > 0 {
				out[name] = []any{fill(inner, values)}
			}
		}
	}
	if len(s.Properties) == 0 { // no schema: the names that are most usual
		for key, v := range values {
			out[synonyms[key][0]] = v
		}
	}
	return out
}

func known(name string, values map[string]string) (string, bool) {
	for key, v := range values {
		if slices.Contains(synonyms[key], name) {
			return v, true
		}
	}
	return "", false
}

// instance returns a small JSON value that satisfies the schema. Of choices that
// contain "user" it takes that one: asked who speaks next, a model that says
// otherwise makes an agent go on for ever.
func instance(raw json.RawMessage) json.RawMessage {
	s := parse(raw)
	var v any
	switch {
	case len(s.Const) > 0:
		return s.Const
	case len(s.Enum) > 0:
		i := slices.IndexFunc(s.Enum, func(e json.RawMessage) bool { return string(e) == `"user"` })
		return s.Enum[max(0, i)]
	case len(s.AnyOf) > 0:
		return instance(s.AnyOf[0])
	case s.is("object") || len(s.Properties) > 0:
		o := map[string]any{}
		for _, name := range s.Required {
			o[name] = instance(s.Properties[name])
		}
		v = o
	case s.is("array"):
		v = []any{}
	case s.is("string"):
		v = "scripted"
	case s.is("integer"), s.is("number"):
		v = 1
	case s.is("boolean"):
		v = false
	}
	b, _ := encode(v)
	return b
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// literal returns the text as a JavaScript string.
func literal(s string) string {
	b, _ := encode(s)
	return string(b)
}
