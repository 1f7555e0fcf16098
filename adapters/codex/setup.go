package codex

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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

// setup is how a session's thread is opened.
type setup struct {
	cwd         string
	roots       []string // further folders
	params      map[string]any
	config      map[string]any
	append      []string // developer instructions
	mode        string   // "" for the one that is configured
	approval    string   // instead of the mode's own
	skills      []skill  // the session's own
	unsupported []unsupported
}

// request has the members that the requests which set up a session share.
type request struct {
	cwd         string
	directories []string
	servers     []acp.MCPServer
	system      *acp.SystemPrompt
	meta        map[string]json.RawMessage
}

// newSetup maps what a client asks for. What cannot be had is listed, not
// dropped.
func newSetup(r request) (*setup, error) {
	if !filepath.IsAbs(r.cwd) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd must be an absolute path, not %q", r.cwd)
	}
	if info, err := os.Stat(r.cwd); err != nil || !info.IsDir() {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd %s is not a directory on the agent's machine", r.cwd)
	}
	var w wishes
	if raw := r.meta[acp.MetaKey]; raw != nil {
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta[%q]: %v", acp.MetaKey, err)
		}
	}
	s := &setup{cwd: r.cwd, params: map[string]any{"cwd": r.cwd}, config: map[string]any{"tools.update_plan.enabled": true}}
	switch w.PermissionMode {
	case "", "default":
	case "readonly":
		s.mode, s.approval = modeReadOnly, approvalNever
	case "write":
		s.mode = modeAgent
	case "bypass":
		s.mode = modeFullAccess
	default:
		s.cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", w.PermissionMode)
	}
	for _, d := range slices.Concat(r.directories, w.Directories) {
		if !filepath.IsAbs(d) {
			return nil, acp.Errorf(acp.CodeInvalidParams, "additionalDirectories: %q is not an absolute path", d)
		}
		s.roots = append(s.roots, d)
	}
	if len(s.roots) > 0 {
		s.params["runtimeWorkspaceRoots"] = append([]string{r.cwd}, s.roots...)
	}
	s.specific(w.Specific)
	s.instructions(r.system, w)
	if err := s.mcp(w.MCP, r.servers); err != nil {
		return nil, err
	}
	s.findSkills(w.Skills)
	s.params["config"] = s.config
	return s, nil
}

func (s *setup) cannot(field, format string, args ...any) {
	s.unsupported = append(s.unsupported, unsupported{field, fmt.Sprintf(format, args...)})
}

func (s *setup) instructions(p *acp.SystemPrompt, w wishes) {
	if w.Instructions != "" {
		s.append = append(s.append, "# Project instructions\n\n"+w.Instructions)
	}
	if w.Append != "" {
		s.append = append(s.append, w.Append)
	}
	if p == nil {
		return
	}
	var parts []string
	for _, b := range p.Content {
		if b.Text == nil {
			s.cannot("systemPrompt", "only its text blocks are used")
			continue
		}
		parts = append(parts, b.Text.Text)
	}
	if all := strings.Join(parts, "\n"); p.Mode == acp.SystemPromptModeOverride {
		s.params["baseInstructions"] = all
	} else if all != "" {
		s.append = append(s.append, all)
	}
}

// serverName is what codex takes as the name of an MCP server.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// mcp lists the MCP servers: those of _meta in the form of a .mcp.json file, and
// ACP's own, which win. Their secrets go through the process's stdin.
func (s *setup) mcp(raw json.RawMessage, servers []acp.MCPServer) error {
	if len(raw) > 0 && string(raw) != "null" {
		if inner, ok := acp.Member(raw, "mcpServers"); ok {
			raw = inner
		}
		var named map[string]struct {
			Type    string            `json:"type"`
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
			URL     string            `json:"url"`
			Headers map[string]string `json:"headers"`
		}
		if err := json.Unmarshal(raw, &named); err != nil {
			return acp.Errorf(acp.CodeInvalidParams, "_meta mcp must be an object of servers by name: %v", err)
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			switch one := named[name]; {
			case one.Type == "sse":
				s.cannot("mcp."+name, "codex connects to servers of type stdio and http only")
			case one.URL != "":
				s.server(name, map[string]any{"url": one.URL, "http_headers": one.Headers})
			default:
				s.server(name, map[string]any{"command": one.Command, "args": one.Args, "env": one.Env})
			}
		}
	}
	for _, one := range servers {
		switch {
		case one.Stdio != nil:
			env := map[string]string{}
			for _, v := range one.Stdio.Env {
				env[v.Name] = v.Value
			}
			s.server(one.Stdio.Name, map[string]any{"command": one.Stdio.Command, "args": one.Stdio.Args, "env": env})
		case one.HTTP != nil:
			headers := map[string]string{}
			for _, h := range one.HTTP.Headers {
				headers[h.Name] = h.Value
			}
			s.server(one.HTTP.Name, map[string]any{"url": one.HTTP.URL, "http_headers": headers})
		default:
			s.cannot("mcpServers", "codex connects to servers of type stdio and http only")
		}
	}
	return nil
}

func (s *setup) server(name string, config map[string]any) {
	if !serverName.MatchString(name) {
		s.cannot("mcpServers."+name, "codex takes letters, digits, _ and - in a server's name")
		return
	}
	maps.DeleteFunc(config, func(_ string, v any) bool {
		switch v := v.(type) {
		case []string:
			return len(v) == 0
		case map[string]string:
			return len(v) == 0
		}
		return false
	})
	s.config["mcp_servers."+name] = config
}

// servers are the names of the session's own MCP servers.
func (s *setup) servers() map[string]bool {
	out := map[string]bool{}
	for name := range s.config {
		if server, ok := strings.CutPrefix(name, "mcp_servers."); ok && serverName.MatchString(server) {
			out[server] = true
		}
	}
	return out
}

// direct are the members of agentSpecific.codex that are members of codex's own
// request, by their names there.
var direct = []string{"baseInstructions", "modelProvider", "model", "serviceTier", "approvalPolicy", "approvalsReviewer", "personality", "ephemeral"}

// specific takes agentSpecific.codex.
func (s *setup) specific(raw json.RawMessage) {
	own, ok := acp.Member(raw, ID)
	if !ok {
		return
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(own, &members) != nil {
		s.cannot("agentSpecific.codex", "it is no object")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case name == "config":
			var more map[string]any
			if json.Unmarshal(members[name], &more) != nil {
				s.cannot("agentSpecific.codex.config", "it is no object of codex's settings by dotted name")
				continue
			}
			maps.Copy(s.config, more)
		case slices.Contains(direct, name):
			s.params[name] = members[name]
		default:
			s.cannot("agentSpecific.codex."+name, "it is none of config, %s", strings.Join(direct, ", "))
		}
	}
}

// skill is a folder with a SKILL.md.
type skill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Path        string `json:"path"` // of the SKILL.md
	Enabled     bool   `json:"enabled"`
	own         bool   // of the session; codex does not know it
}

// input is what a prompt that names the skill says besides.
func (s *skill) input() (any, error) {
	if !s.own {
		return map[string]any{"type": "skill", "name": s.Name, "path": s.Path}, nil
	}
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "skill %s cannot be read: %v", s.Name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSkill))
	if err != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "skill %s cannot be read: %v", s.Name, err)
	}
	said := fmt.Sprintf("<skill>\n<name>%s</name>\n<path>%s</path>\n%s\n</skill>", s.Name, s.Path, b)
	return map[string]any{"type": "text", "text": said, "text_elements": []any{}}, nil
}

// findSkills collects the skills below the given paths. A path is a skill, or a
// folder of skills. Codex is told of them in the developer instructions, since
// it has folders of skills for all threads only.
func (s *setup) findSkills(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	var list struct {
		Paths []string `json:"paths"`
	}
	if json.Unmarshal(raw, &list) != nil || len(list.Paths) == 0 {
		s.cannot("skills", `it has the form {"paths": [...]}`)
		return
	}
	for _, p := range list.Paths {
		found, _ := filepath.Glob(filepath.Join(p, "*", "SKILL.md"))
		if _, err := os.Stat(filepath.Join(p, "SKILL.md")); err == nil {
			found = []string{filepath.Join(p, "SKILL.md")}
		}
		if len(found) == 0 || !filepath.IsAbs(p) {
			s.cannot("skills", "%s is neither a folder with a SKILL.md nor a folder of such folders", p)
			continue
		}
		for _, f := range found {
			one, err := readSkill(f)
			if err != nil {
				s.cannot("skills", "%v", err)
				continue
			}
			s.skills = append(s.skills, one)
		}
	}
	if len(s.skills) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("# Skills of this session\n\nWhen a task fits one of these, read its file first and follow it.\n")
	for _, one := range s.skills {
		fmt.Fprintf(&b, "\n- %s: %s (file: %s)", one.Name, one.Description, one.Path)
	}
	s.append = append(s.append, b.String())
}

// maxSkill bounds the part of a SKILL.md that is read.
const maxSkill = 64 << 10

// readSkill reads the head of a SKILL.md.
func readSkill(path string) (skill, error) {
	one := skill{Name: filepath.Base(filepath.Dir(path)), Path: path, Enabled: true, own: true}
	b, err := os.ReadFile(path)
	if err != nil {
		return one, fmt.Errorf("read a skill: %w", err)
	}
	head, ok := strings.CutPrefix(string(b[:min(len(b), maxSkill)]), "---\n")
	head, _, closed := strings.Cut(head, "\n---")
	if !ok || !closed {
		return one, nil
	}
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch {
		case value == "":
		case key == "name":
			one.Name = value
		case key == "description":
			one.Description = value
		}
	}
	return one, nil
}
