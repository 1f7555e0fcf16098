package opencode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
)

// unsupported names a wish that had no effect.
type unsupported struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// wishes are what a client asks for when it sets up a session.
type wishes struct {
	PermissionMode string          `json:"permissionMode"`
	Instructions   string          `json:"instructions"`
	Append         string          `json:"appendSystemPrompt"`
	Skills         json.RawMessage `json:"skills"`
	MCP            json.RawMessage `json:"mcp"`
	Directories    []string        `json:"additionalDirectories"`
	Specific       json.RawMessage `json:"agentSpecific"`
}

// request has the members that the requests which set up a session share.
type request struct {
	cwd         string
	directories []string
	servers     []acp.MCPServer
	system      *acp.SystemPrompt
	meta        map[string]json.RawMessage
}

// setup is how a session is opened.
type setup struct {
	cwd         string
	kind        kind
	rules       []rule // of the session and, by OpenCode, of its subagents
	grant       grant
	texts       []string // that every prompt adds to the system prompt
	skills      []skill
	servers     []mcpServer
	unsupported []unsupported
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

// newSetup maps what a client asks for. What cannot be had is listed, not
// dropped.
func newSetup(r request) (*setup, error) {
	if !filepath.IsAbs(r.cwd) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd must be an absolute path, not %q", r.cwd)
	}
	// OpenCode takes directories that do not exist.
	if info, err := os.Stat(r.cwd); err != nil || !info.IsDir() {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd %s is not a directory on the agent's machine", r.cwd)
	}
	var w wishes
	if raw := r.meta[acp.MetaKey]; raw != nil {
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta[%q]: %v", acp.MetaKey, err)
		}
	}
	s := &setup{cwd: filepath.Clean(r.cwd)}
	switch w.PermissionMode {
	case "", "default":
	case "readonly":
		s.rules = append(s.rules, rule{"edit", "*", "deny"}, rule{"bash", "*", "deny"})
	case "write":
		s.kind, s.grant.edits = asksCommands, true
	case "bypass":
		s.grant.all = true
	default:
		s.cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", w.PermissionMode)
	}
	for _, d := range slices.Concat(r.directories, w.Directories) {
		if !filepath.IsAbs(d) {
			return nil, acp.Errorf(acp.CodeInvalidParams, "additionalDirectories: %q is not an absolute path", d)
		}
		s.open(filepath.Clean(d))
		s.texts = append(s.texts, "Another directory of this workspace, which you may use like the working directory: "+d)
	}
	if w.Instructions != "" {
		s.texts = append(s.texts, "# Project instructions\n\n"+w.Instructions)
	}
	if w.Append != "" {
		s.texts = append(s.texts, w.Append)
	}
	s.prompt(r.system)
	if err := s.mcp(w.MCP, r.servers); err != nil {
		return nil, err
	}
	s.findSkills(w.Skills)
	if own, ok := acp.Member(w.Specific, ID); ok {
		s.specific(own)
	}
	return s, nil
}

func (s *setup) cannot(field, format string, args ...any) {
	s.unsupported = append(s.unsupported, unsupported{field, fmt.Sprintf(format, args...)})
}

// open allows the use of a directory outside of the working directory.
// Subagents inherit such rules.
func (s *setup) open(dir string) {
	s.grant.dirs = append(s.grant.dirs, dir)
	s.rules = append(s.rules, rule{"external_directory", filepath.Join(dir, "*"), "allow"})
}

// system is what every prompt adds to the system prompt.
func (s *setup) system() string { return strings.Join(s.texts, "\n\n") }

func (s *setup) prompt(p *acp.SystemPrompt) {
	if p == nil {
		return
	}
	if p.Mode == acp.SystemPromptModeOverride {
		s.cannot("systemPrompt.mode", "opencode's own prompt cannot be replaced; the text is added to it")
	}
	for _, b := range p.Content {
		if b.Text == nil {
			s.cannot("systemPrompt", "only its text blocks are used")
			continue
		}
		s.texts = append(s.texts, b.Text.Text)
	}
}

// specific takes agentSpecific.opencode.
func (s *setup) specific(own json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(own, &members) != nil {
		s.cannot("agentSpecific.opencode", "it is no object")
		return
	}
	for name, raw := range members {
		if name != "permission" {
			s.cannot("agentSpecific.opencode."+name, "it is none of permission")
			continue
		}
		var rules []rule
		if json.Unmarshal(raw, &rules) != nil || slices.ContainsFunc(rules, func(r rule) bool {
			return r.Permission == "" || r.Pattern == "" || r.Action != "allow" && r.Action != "ask" && r.Action != "deny"
		}) {
			s.cannot("agentSpecific.opencode.permission", `it is a list of {"permission", "pattern", "action": "allow", "ask" or "deny"}`)
			continue
		}
		s.rules = append(s.rules, rules...)
	}
}
