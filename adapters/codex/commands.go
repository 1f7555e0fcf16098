package codex

import (
	"context"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// initPrompt is what the command init asks the model.
const initPrompt = `Generate a file named AGENTS.md that serves as a contributor guide for this repository.
Title it "Repository Guidelines". Keep it short, 200 to 400 words, with headings for the project's structure,
build and test commands, style, tests, and commits and pull requests. Describe what is there, with examples.
If AGENTS.md exists already, improve it instead of replacing it.`

// methodCompact begins a turn that is a compaction. Whatever turn of the thread runs is broken off for it.
const methodCompact = "thread/compact/start"

var builtins = []struct{ name, about, hint string }{
	{"compact", "Summarize the conversation so that it needs less context", ""},
	{"review", "Review changes: of the working tree, or as the argument says", "[base BRANCH | commit SHA | instructions]"},
	{"init", "Write an AGENTS.md with instructions for agents", ""},
}

// command turns a prompt that is a command into codex's request.
func (s *session) command(said string) (*call, bool, error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
	name, ok := strings.CutPrefix(name, "/")
	if !ok {
		return nil, false, nil
	}
	rest = strings.TrimSpace(rest)
	switch name {
	case "compact":
		return &call{methodCompact, map[string]any{}}, true, nil
	case "review":
		target := map[string]any{"type": "uncommittedChanges"}
		kind, what, _ := strings.Cut(rest, " ")
		switch what = strings.TrimSpace(what); {
		case rest == "":
		case kind == "base" && what != "" && !strings.Contains(what, " "):
			target = map[string]any{"type": "baseBranch", "branch": what}
		case kind == "commit" && what != "" && !strings.Contains(what, " "):
			target = map[string]any{"type": "commit", "sha": what}
		default:
			target = map[string]any{"type": "custom", "instructions": rest}
		}
		return &call{"review/start", map[string]any{"target": target}}, true, nil
	case "init":
		in := map[string]any{"type": "text", "text": strings.TrimSpace(initPrompt + "\n" + rest), "text_elements": []any{}}
		return &call{"turn/start", map[string]any{"input": []any{in}}}, true, nil
	}
	return nil, false, nil
}

// skillName finds $name, and /name at the begin.
var skillName = pattern.New(`(?:^\s*/|\$)([A-Za-z0-9][\w.:-]*)`)

// mentioned are the skills that a text names.
func (s *session) mentioned(said string) []skill {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []skill
	for _, m := range skillName.FindAllStringSubmatch(said, -1) {
		i := slices.IndexFunc(s.skills, func(one skill) bool { return one.Name == strings.TrimRight(m[1], ".:-") })
		if i >= 0 && !slices.Contains(out, s.skills[i]) {
			out = append(out, s.skills[i])
		}
	}
	return out
}

// listSkills asks codex for the skills of the session's folder.
func (s *session) listSkills(ctx context.Context) {
	var list struct {
		Data []struct {
			Skills []skill `json:"skills"`
		} `json:"data"`
	}
	if err := s.srv.call(ctx, "skills/list", map[string]any{"cwds": []string{s.cwd}, "forceReload": true}, &list); err != nil {
		s.log.Debug("list the skills", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skills = slices.Clone(s.own)
	for _, d := range list.Data {
		for _, one := range d.Skills {
			if one.Enabled && !slices.ContainsFunc(s.skills, func(k skill) bool { return k.Name == one.Name }) {
				s.skills = append(s.skills, one)
			}
		}
	}
}

func (s *session) commandsUpdate() []schema.SessionUpdate {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []schema.AvailableCommand{}
	for _, b := range builtins {
		c := schema.AvailableCommand{Name: b.name, Description: b.about}
		if b.hint != "" {
			c.Input = &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: b.hint}}
		}
		list = append(list, c)
	}
	for _, one := range s.skills {
		list = append(list, schema.AvailableCommand{
			Name: one.Name, Description: one.Description,
			Input: &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: "what to do with the skill"}},
		})
	}
	return []schema.SessionUpdate{{AvailableCommandsUpdate: &schema.AvailableCommandsUpdate{AvailableCommands: list}}}
}
