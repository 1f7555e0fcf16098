package opencode

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// setup is how a session is opened.
type setup struct {
	*bridge.Setup
	kind    kind
	rules   []rule // of the session and, by OpenCode, partly of its subagents
	denials []rule // of readonly: they come behind all others
	grant   grant
	texts   []string // that every prompt adds to the system prompt
	skills  []bridge.Skill
	agent   string // of OpenCode's configuration, with which a new session begins; "" for its usual one
	servers []mcpServer
}

// grant is what a session's setup allows without a question.
type grant struct {
	all   bool
	edits bool
	dirs  []string
}

// covers reports whether a question has its answer in the setup.
func (g *grant) covers(q *ask) bool {
	switch {
	case len(q.Questions) > 0 || q.Permission == "":
		return false
	case g.all, g.edits && q.Permission == "edit":
		return true
	case q.Permission != "external_directory" || len(q.Patterns) == 0:
		return false
	}
	for _, p := range q.Patterns {
		if !slices.ContainsFunc(g.dirs, func(d string) bool { return within(d, p) }) {
			return false
		}
	}
	return true
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, strings.TrimSuffix(path, "/*"))
	return err == nil && filepath.IsLocal(rel)
}

// newSetup maps what a client asks for. OpenCode takes directories that do not
// exist, so that they are looked for here.
func newSetup(r bridge.Request) (*setup, error) {
	base, err := bridge.NewSetup(r)
	if err != nil {
		return nil, err
	}
	s := &setup{Setup: base}
	// OpenCode knows directories by their real names.
	if s.Cwd, err = filepath.EvalSymlinks(s.Cwd); err != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd: %v", err)
	}
	switch s.PermissionMode {
	case "", "default":
	case "readonly":
		s.denials = []rule{{"edit", "*", "deny"}, {"bash", "*", "deny"}}
	case "write":
		s.kind, s.grant.edits = asksCommands, true
	case "bypass":
		s.grant.all = true
	default:
		s.Cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", s.PermissionMode)
	}
	for _, d := range s.Roots {
		s.open(filepath.Clean(d))
		s.texts = append(s.texts, "Another directory of this workspace, which you may use like the working directory: "+d)
	}
	instead, more := s.SystemPrompt()
	if instead != nil {
		s.Cannot("systemPrompt.mode", "opencode's own prompt cannot be replaced; the text is added to it")
		more = append(more, *instead)
	}
	s.texts = append(s.texts, more...)
	if err := s.mcp(); err != nil {
		return nil, err
	}
	s.findSkills()
	s.specific(s.OwnMembers(ID))
	s.rules = append(s.rules, s.denials...)
	return s, nil
}

// open allows the use of a directory outside of the working directory.
// Subagents inherit such rules.
func (s *setup) open(dir string) {
	s.grant.dirs = append(s.grant.dirs, dir)
	s.rules = append(s.rules, rule{"external_directory", filepath.Join(dir, "*"), "allow"})
}

// system is what every prompt adds to the system prompt.
func (s *setup) system() string { return strings.Join(s.texts, "\n\n") }

// findSkills reads the session's skills. OpenCode has folders of skills for all
// sessions only, so it is told of these in the system prompt, and may read them.
func (s *setup) findSkills() {
	for _, f := range s.SkillFiles() {
		one, err := bridge.ReadSkill(f)
		if err != nil {
			s.Cannot("skills", "%v", err)
			continue
		}
		s.open(filepath.Dir(f))
		s.skills = append(s.skills, one)
	}
	if len(s.skills) > 0 {
		s.texts = append(s.texts, bridge.SkillsText(s.skills))
	}
}

// specific takes agentSpecific.opencode.
func (s *setup) specific(members map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch name {
		case "permission":
		case "customAgent":
			if json.Unmarshal(members[name], &s.agent) != nil {
				s.Cannot("agentSpecific.opencode.customAgent", "it is the name of an agent of OpenCode's configuration")
			}
			continue
		default:
			s.Cannot("agentSpecific.opencode."+name, "it is none of customAgent, permission")
			continue
		}
		var rules []rule
		if json.Unmarshal(members[name], &rules) != nil || slices.ContainsFunc(rules, func(r rule) bool {
			return r.Permission == "" || r.Pattern == "" || r.Action != "allow" && r.Action != "ask" && r.Action != "deny"
		}) {
			s.Cannot("agentSpecific.opencode.permission", `it is a list of {"permission", "pattern", "action": "allow", "ask" or "deny"}`)
			continue
		}
		s.rules = append(s.rules, rules...)
	}
}

// mcp lists the MCP servers.
func (s *setup) mcp() error {
	servers, err := s.MCPServers("opencode", "stdio", "http", "sse")
	for _, one := range servers {
		config := map[string]any{"type": "local", "enabled": true}
		if one.URL != "" {
			config["type"], config["url"] = "remote", one.URL
			if len(one.Headers) > 0 {
				config["headers"] = one.Headers
			}
		} else {
			config["command"] = append([]string{one.Command}, one.Args...)
			if len(one.Env) > 0 {
				config["environment"] = one.Env
			}
		}
		if one.Timeout > 0 {
			config["timeout"] = one.Timeout
		}
		s.server(one.Name, config)
	}
	return err
}

func (s *setup) server(name string, config map[string]any) {
	b, err := schema.Encode(config) // maps are encoded in order
	if err != nil || name == "" {
		s.Cannot("mcpServers", "server %q has no name or cannot be encoded", name)
		return
	}
	s.servers = slices.DeleteFunc(s.servers, func(m mcpServer) bool { return m.name == name })
	s.servers = append(s.servers, mcpServer{name, b})
}
