package opencode

import (
	"slices"
	"strings"
	"unicode"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// builtins are commands that OpenCode has requests for.
var builtins = []struct{ name, about string }{
	{"compact", "Summarize the conversation so that it needs less context"},
	{"undo", "Take back the last prompt with its answer and its changes of files"},
	{"redo", "Bring back what undo took away"},
}

// command turns a prompt that is a command into OpenCode's request. It returns
// nil for one that is none.
func (s *session) command(said string, more []schema.ContentBlock) (*call, error) {
	said = strings.TrimSpace(said)
	name, rest := said, ""
	if i := strings.IndexFunc(said, unicode.IsSpace); i >= 0 {
		name, rest = said[:i], strings.TrimSpace(said[i:])
	}
	name, ok := strings.CutPrefix(name, "/")
	if !ok || name == "" {
		return nil, nil
	}
	s.mu.Lock()
	known := slices.ContainsFunc(s.set.commands, func(c command) bool { return c.Name == name })
	i := slices.IndexFunc(s.skills, func(one bridge.Skill) bool { return one.Name == name })
	s.mu.Unlock()
	more = slices.DeleteFunc(slices.Clone(more), func(b schema.ContentBlock) bool {
		return b.Text != nil && strings.TrimSpace(b.Text.Text) == ""
	})
	// Editors add what is open in them to every prompt.
	var parts []any
	if len(more) > 0 {
		var err error
		if parts, err = content.Parts(more); err != nil {
			return nil, err
		}
	}
	switch {
	case known:
		// A command takes files beside its arguments; words and embedded texts become
		// a part of them.
		arguments, files := []string{rest}, []any{}
		for _, p := range parts {
			if one := p.(map[string]any); one["type"] == "text" {
				arguments = append(arguments, one["text"].(string))
			} else {
				files = append(files, p)
			}
		}
		body := map[string]any{"command": name, "arguments": strings.TrimSpace(strings.Join(arguments, "\n"))}
		if len(files) > 0 {
			body["parts"] = files
		}
		return &call{path: "/command", body: body, turn: true}, nil
	case i >= 0:
		use := map[string]any{"type": "text", "text": strings.TrimSpace("Use the skill " + s.skills[i].Name + " (" + s.skills[i].Path + "). " + rest)}
		return &call{path: "/message", body: map[string]any{"parts": append([]any{use}, parts...), "system": s.system}, turn: true}, nil
	case slices.ContainsFunc(more, func(b schema.ContentBlock) bool { return b.Text != nil }):
		return nil, nil // more than these commands say
	case name == "compact":
		return &call{path: "/summarize", body: map[string]any{}}, nil
	case name == "undo":
		return &call{path: "/revert", body: map[string]any{}, done: "The last prompt was taken back.\n"}, nil
	case name == "redo":
		return &call{path: "/unrevert", done: "What was taken back is there again.\n"}, nil
	}
	return nil, nil
}

func (s *session) commandsUpdate() []schema.SessionUpdate {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []schema.AvailableCommand{}
	add := func(name, about, hint string) {
		if slices.ContainsFunc(list, func(c schema.AvailableCommand) bool { return c.Name == name }) {
			return
		}
		c := schema.AvailableCommand{Name: name, Description: bridge.FirstOf(about, name)}
		if hint != "" {
			c.Input = &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: hint}}
		}
		list = append(list, c)
	}
	for _, c := range s.set.commands {
		add(c.Name, c.Description, bridge.FirstOf(strings.Join(c.Hints, " "), "arguments"))
	}
	for _, b := range builtins {
		add(b.name, b.about, "")
	}
	for _, one := range s.skills {
		add(one.Name, one.About, "what to do with the skill")
	}
	return []schema.SessionUpdate{{AvailableCommandsUpdate: &schema.AvailableCommandsUpdate{AvailableCommands: list}}}
}
