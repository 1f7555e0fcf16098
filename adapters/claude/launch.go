package claude

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// launch is how a session's program is started. Nothing secret is in args.
type launch struct {
	*bridge.Setup
	args       []string
	initialize map[string]any
	servers    map[string]any // MCP servers
	skills     []string       // folders with a SKILL.md
	settings   json.RawMessage
	anew       bool // a session that is opened again has nothing to go on with
}

// baseArgs make the program speak its line protocol.
var baseArgs = []string{
	"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
	"--include-partial-messages", "--permission-prompt-tool", "stdio",
}

// newLaunch maps what a client asks for. What cannot be had is listed, not
// dropped. bypass says that the program may be told to allow everything.
func newLaunch(r bridge.Request, bypass bool) (*launch, error) {
	asked, err := bridge.NewSetup(r)
	if err != nil {
		return nil, err
	}
	l := &launch{Setup: asked, args: slices.Clone(baseArgs), servers: map[string]any{}}
	l.initialize = map[string]any{"subtype": "initialize", "forwardSubagentText": true}
	if bypass {
		l.args = append(l.args, "--allow-dangerously-skip-permissions")
	}
	l.permissionMode(l.PermissionMode, bypass)
	for _, d := range l.Roots {
		l.args = append(l.args, "--add-dir", d)
	}
	if l.Title != "" {
		l.initialize["title"] = l.Title
	}
	l.systemPrompt()
	if err := l.mcp(); err != nil {
		return nil, err
	}
	for _, f := range l.SkillFiles() {
		l.skills = append(l.skills, filepath.Dir(f))
	}
	l.specific()
	return l, nil
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
			l.Cannot("permissionMode", "claude refuses bypass as root unless IS_SANDBOX=1 is in its environment")
			return
		}
		l.args = append(l.args, "--permission-mode", modeBypass)
	default:
		l.Cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", mode)
	}
}

// chosen are the flags that restore what was chosen of a session before. Rules go into
// the settings: commands may hold secrets.
func (l *launch) chosen(r record) []string {
	var args []string
	if rules := r.rules(); len(rules) > 0 && l.PermissionMode != "readonly" { // what is not allowed already is denied then
		l.allowed(rules)
	}
	for _, d := range r.folders() {
		args = append(args, "--add-dir", d)
	}
	if mode := r.Again(l.PermissionMode); mode != "" && (mode != modeBypass || flagOf(l.args, "--allow-dangerously-skip-permissions") != "") {
		args = append(args, "--permission-mode="+mode)
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
func (l *launch) systemPrompt() {
	instead, more := l.SystemPrompt()
	if instead != nil {
		l.initialize["systemPrompt"] = *instead
	}
	if len(more) > 0 {
		l.initialize["appendSystemPrompt"] = strings.Join(more, "\n\n")
	}
}

// mcp lists the MCP servers.
func (l *launch) mcp() error {
	servers, err := l.MCPServers("claude", "stdio", "http", "sse")
	for _, one := range servers {
		switch {
		case one.Wished != nil:
			l.servers[one.Name] = one.Wished
		case one.URL != "":
			l.servers[one.Name] = map[string]any{"type": one.Type, "url": one.URL, "headers": one.Headers}
		default:
			l.servers[one.Name] = map[string]any{"type": one.Type, "command": one.Command, "args": one.Args, "env": one.Env}
		}
	}
	return err
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
func (l *launch) specific() {
	members := l.OwnMembers(ID)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		flag, known := flags[name]
		v := members[name]
		switch {
		case !known:
			l.Cannot("agentSpecific.claude."+name, "it is none of %s", strings.Join(slices.Sorted(maps.Keys(flags)), ", "))
		case name == "permissionMode" && l.PermissionMode == "readonly":
			l.Cannot("agentSpecific.claude.permissionMode", "the permissionMode readonly counts for more")
		case name == "settings":
			l.settings = v
		case name == "hooks":
			l.Cannot("agentSpecific.claude.hooks", "put hooks into settings")
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
				l.Cannot("agentSpecific.claude."+name, "it is no list of strings")
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
		l.Cannot("agentSpecific.claude."+name, "it is a value, a list of strings, or a flag that is true")
	}
}

// redirect has the program use a provider's address, whatever the user's own settings
// say, which go before the environment.
func (l *launch) redirect(url string) {
	if url == "" {
		return
	}
	if len(l.settings) == 0 {
		l.settings = json.RawMessage("{}")
	}
	l.settings = rawjson.SetMember(l.settings, rawjson.AppendQuoted(nil, url), "env", varURL)
}

// allowed adds rules to those of the session's settings.
func (l *launch) allowed(rules []string) {
	if len(l.settings) == 0 {
		l.settings = json.RawMessage("{}")
	}
	var all []string
	if own, ok := rawjson.Member(l.settings, "permissions", "allow"); ok && json.Unmarshal(own, &all) != nil {
		return // the program refuses such settings itself
	}
	if b, err := schema.Encode(append(all, rules...)); err == nil {
		l.settings = rawjson.SetMember(l.settings, b, "permissions", "allow")
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
			l.Cannot("skills", "%s: %v", s, err)
		}
	}
	l.args = append(l.args, "--plugin-dir", plugin)
	return nil
}
