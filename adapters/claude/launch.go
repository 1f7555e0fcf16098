package claude

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// unsupported names a wish that had no effect.
type unsupported struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// wishes are what a client asks for when it sets up a session.
type wishes struct {
	Title          string          `json:"title"`
	PermissionMode string          `json:"permissionMode"`
	Instructions   string          `json:"instructions"`
	Append         string          `json:"appendSystemPrompt"`
	Skills         json.RawMessage `json:"skills"`
	MCP            json.RawMessage `json:"mcp"`
	Directories    []string        `json:"additionalDirectories"`
	Specific       json.RawMessage `json:"agentSpecific"`
}

// launch is how a session's program is started. Nothing secret is in args.
type launch struct {
	cwd         string
	args        []string
	initialize  map[string]any
	servers     map[string]any // MCP servers
	skills      []string       // folders with a SKILL.md
	settings    json.RawMessage
	unsupported []unsupported
}

// setup has the members that the requests which set up a session share.
type setup struct {
	cwd         string
	directories []string
	servers     []acp.MCPServer
	system      *acp.SystemPrompt
	meta        map[string]json.RawMessage
}

// baseArgs make the program speak its line protocol.
var baseArgs = []string{
	"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
	"--include-partial-messages", "--permission-prompt-tool", "stdio",
}

// newLaunch maps what a client asks for. What cannot be had is listed, not
// dropped. bypass says that the program may be told to allow everything.
func newLaunch(s setup, bypass bool) (*launch, error) {
	if !filepath.IsAbs(s.cwd) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd must be an absolute path, not %q", s.cwd)
	}
	if info, err := os.Stat(s.cwd); err != nil || !info.IsDir() {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd %s is not a directory on the agent's machine", s.cwd)
	}
	var w wishes
	if raw := s.meta[acp.MetaKey]; raw != nil {
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta[%q]: %v", acp.MetaKey, err)
		}
	}
	l := &launch{cwd: s.cwd, args: slices.Clone(baseArgs), servers: map[string]any{}}
	l.initialize = map[string]any{"subtype": "initialize", "forwardSubagentText": true}
	if bypass {
		l.args = append(l.args, "--allow-dangerously-skip-permissions")
	}
	l.permissionMode(w.PermissionMode, bypass)
	for _, d := range slices.Concat(s.directories, w.Directories) {
		if !filepath.IsAbs(d) {
			return nil, acp.Errorf(acp.CodeInvalidParams, "additionalDirectories: %q is not an absolute path", d)
		}
		l.args = append(l.args, "--add-dir", d)
	}
	if w.Title != "" {
		l.initialize["title"] = w.Title
	}
	l.systemPrompt(s.system, w)
	if err := l.mcp(w.MCP, s.servers); err != nil {
		return nil, err
	}
	l.findSkills(w.Skills)
	l.specific(w.Specific)
	return l, nil
}

func (l *launch) cannot(field, format string, args ...any) {
	l.unsupported = append(l.unsupported, unsupported{field, fmt.Sprintf(format, args...)})
}

// permissionMode maps the gateway's names of modes to the program's.
func (l *launch) permissionMode(mode string, bypass bool) {
	switch mode {
	case "", "default":
	case "readonly":
		l.args = append(l.args, "--permission-mode", modeDontAsk, "--disallowedTools", "Edit,Write,NotebookEdit")
	case "write":
		l.args = append(l.args, "--permission-mode", modeAcceptEdits)
	case "bypass":
		if !bypass {
			l.cannot("permissionMode", "claude refuses bypass as root unless IS_SANDBOX=1 is in its environment")
			return
		}
		l.args = append(l.args, "--permission-mode", modeBypass)
	default:
		l.cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", mode)
	}
}

// chosen are the flags that restore what was chosen of a session before.
func (l *launch) chosen(r record) []string {
	var args []string
	if r.Mode != "" && (r.Mode != modeBypass || flagOf(l.args, "--allow-dangerously-skip-permissions") != "") {
		args = append(args, "--permission-mode="+r.Mode)
	}
	if r.Model != "" && r.Model != "default" {
		args = append(args, "--model="+r.Model)
	}
	if r.Effort != "" {
		args = append(args, "--effort="+r.Effort)
	}
	return args
}

// systemPrompt passes instructions on stdin, where nobody else can read them.
func (l *launch) systemPrompt(p *acp.SystemPrompt, w wishes) {
	var more []string
	if w.Instructions != "" {
		more = append(more, "# Project instructions\n\n"+w.Instructions)
	}
	if w.Append != "" {
		more = append(more, w.Append)
	}
	if p != nil {
		var parts []string
		for _, b := range p.Content {
			if b.Text == nil {
				l.cannot("systemPrompt", "only its text blocks are used")
				continue
			}
			parts = append(parts, b.Text.Text)
		}
		if s := strings.Join(parts, "\n"); p.Mode == acp.SystemPromptModeOverride {
			l.initialize["systemPrompt"] = s
		} else if s != "" {
			more = append(more, s)
		}
	}
	if len(more) > 0 {
		l.initialize["appendSystemPrompt"] = strings.Join(more, "\n\n")
	}
}

// mcp lists the MCP servers: those of _meta in the form of a .mcp.json file, and
// ACP's own, which win.
func (l *launch) mcp(raw json.RawMessage, servers []acp.MCPServer) error {
	if len(raw) > 0 && string(raw) != "null" {
		if inner, ok := acp.Member(raw, "mcpServers"); ok {
			raw = inner
		}
		var named map[string]json.RawMessage
		if err := json.Unmarshal(raw, &named); err != nil {
			return acp.Errorf(acp.CodeInvalidParams, "_meta mcp must be an object of servers by name: %v", err)
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			l.servers[name] = named[name]
		}
	}
	for _, s := range servers {
		switch {
		case s.Stdio != nil:
			env := map[string]string{}
			for _, v := range s.Stdio.Env {
				env[v.Name] = v.Value
			}
			l.servers[s.Stdio.Name] = map[string]any{"type": "stdio", "command": s.Stdio.Command, "args": nonNil(s.Stdio.Args), "env": env}
		case s.HTTP != nil:
			l.servers[s.HTTP.Name] = map[string]any{"type": "http", "url": s.HTTP.URL, "headers": headers(s.HTTP.Headers)}
		case s.SSE != nil:
			l.servers[s.SSE.Name] = map[string]any{"type": "sse", "url": s.SSE.URL, "headers": headers(s.SSE.Headers)}
		default:
			l.cannot("mcpServers", "claude connects to servers of type stdio, http and sse only")
		}
	}
	return nil
}

func headers(list []acp.HTTPHeader) map[string]string {
	out := map[string]string{}
	for _, h := range list {
		out[h.Name] = h.Value
	}
	return out
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// findSkills collects the folders of skills below the given paths. A path is a
// skill, or a folder of skills.
func (l *launch) findSkills(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	var s struct {
		Paths []string `json:"paths"`
	}
	if json.Unmarshal(raw, &s) != nil || len(s.Paths) == 0 {
		l.cannot("skills", `it has the form {"paths": [...]}`)
		return
	}
	for _, p := range s.Paths {
		found, _ := filepath.Glob(filepath.Join(p, "*", "SKILL.md"))
		if _, err := os.Stat(filepath.Join(p, "SKILL.md")); err == nil {
			found = []string{filepath.Join(p, "SKILL.md")}
		}
		if len(found) == 0 || !filepath.IsAbs(p) {
			l.cannot("skills", "%s is neither a folder with a SKILL.md nor a folder of such folders", p)
			continue
		}
		for _, f := range found {
			l.skills = append(l.skills, filepath.Dir(f))
		}
	}
}

// flags are the members of agentSpecific.claude that are flags of the program.
var flags = map[string]string{
	"agent": "--agent", "fallbackModel": "--fallback-model", "maxTurns": "--max-turns", "maxBudgetUsd": "--max-budget-usd",
	"maxThinkingTokens": "--max-thinking-tokens", "allowedTools": "--allowedTools", "disallowedTools": "--disallowedTools",
	"tools": "--tools", "settingSources": "--setting-sources", "betas": "--betas", "effort": "--effort", "model": "--model",
	"pluginDirs": "--plugin-dir", "strictMcpConfig": "--strict-mcp-config", "includeHookEvents": "--include-hook-events",
	"disableSlashCommands": "--disable-slash-commands", "permissionMode": "--permission-mode", "settings": "", "agents": "",
	"jsonSchema": "", "systemPrompt": "", "planModeInstructions": "", "hooks": "",
}

// specific takes agentSpecific.claude.
func (l *launch) specific(raw json.RawMessage) {
	own, ok := acp.Member(raw, "claude")
	if !ok {
		return
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(own, &members) != nil {
		l.cannot("agentSpecific.claude", "it is no object")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		flag, known := flags[name]
		v := members[name]
		switch {
		case !known:
			l.cannot("agentSpecific.claude."+name, "it is none of %s", strings.Join(slices.Sorted(maps.Keys(flags)), ", "))
		case name == "settings":
			l.settings = v
		case name == "hooks":
			l.cannot("agentSpecific.claude.hooks", "put hooks into settings")
		case flag == "":
			l.initialize[name] = v
		default:
			l.flag(name, flag, v)
		}
	}
}

// flag adds a flag of the program with a value of JSON.
func (l *launch) flag(name, flag string, raw json.RawMessage) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return
	}
	switch v := v.(type) {
	case bool:
		if v {
			l.args = append(l.args, flag)
		}
	case float64:
		l.args = append(l.args, flag+"="+string(raw))
	case string:
		l.args = append(l.args, flag+"="+v)
	case []any:
		var list []string
		for _, one := range v {
			s, ok := one.(string)
			if !ok {
				l.cannot("agentSpecific.claude."+name, "it is no list of strings")
				return
			}
			list = append(list, s)
		}
		if name == "pluginDirs" {
			for _, s := range list {
				l.args = append(l.args, flag+"="+s)
			}
			return
		}
		l.args = append(l.args, flag+"="+strings.Join(list, ","))
	default:
		l.cannot("agentSpecific.claude."+name, "it is a value, a list of strings, or a flag that is true")
	}
}

// files writes what the program reads from files into dir, which the session
// removes when it ends, and adds the flags that name them.
func (l *launch) files(dir string) error {
	if len(l.settings) > 0 {
		path := filepath.Join(dir, "settings.json")
		if err := bridge.WritePrivate(path, l.settings); err != nil {
			return err
		}
		l.args = append(l.args, "--settings", path)
	}
	if len(l.skills) == 0 {
		return nil
	}
	// A plugin of its own: nothing is written into the workspace.
	plugin := filepath.Join(dir, "plugin")
	manifest := []byte(`{"name":"session","description":"Skills of this session","version":"1.0.0"}`)
	if err := bridge.WritePrivate(filepath.Join(plugin, ".claude-plugin", "plugin.json"), manifest); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(plugin, "skills"), 0o700); err != nil {
		return fmt.Errorf("link skills: %w", err)
	}
	for _, s := range l.skills {
		if err := os.Symlink(s, filepath.Join(plugin, "skills", filepath.Base(s))); err != nil {
			l.cannot("skills", "%s: %v", s, err)
		}
	}
	l.args = append(l.args, "--plugin-dir", plugin)
	return nil
}
