package amp

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// launch is how a session's program is started. Nothing secret is in args.
type launch struct {
	*bridge.Setup
	permit  string
	mode    string // "" for the program's usual one
	system  string // what is added to its system prompt
	servers map[string]any
	skills  []string // folders with a SKILL.md
	own     settings // of agentSpecific
	rules   []rule   // of agentSpecific; they go before those of settings
	labels  []string
}

// newLaunch maps what a client asks for. What cannot be had is listed, not
// dropped.
func newLaunch(r bridge.Request) (*launch, error) {
	asked, err := bridge.NewSetup(r)
	if err != nil {
		return nil, err
	}
	l := &launch{Setup: asked, permit: permitDefault, servers: map[string]any{}, own: settings{}}
	switch asked.PermissionMode {
	case "":
	case permitDefault, permitReadonly, permitWrite, permitBypass:
		l.permit = asked.PermissionMode
	default:
		l.Cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", asked.PermissionMode)
	}
	instead, more := l.SystemPrompt()
	if instead != nil {
		l.Cannot("systemPrompt", "amp's own cannot be replaced; the text is added to it")
		more = append([]string{*instead}, more...)
	}
	l.system = strings.Join(more, "\n\n")
	if len(l.Roots) > 0 {
		l.Cannot("additionalDirectories", "amp has one workspace; its tools reach other files by their paths")
	}
	if err := l.mcp(); err != nil {
		return nil, err
	}
	for _, f := range l.SkillFiles() {
		l.skills = append(l.skills, filepath.Dir(f))
	}
	l.specific()
	return l, nil
}

// mcp lists the MCP servers.
func (l *launch) mcp() error {
	servers, err := l.MCPServers("amp", "stdio", "http", "sse")
	for _, one := range servers {
		switch {
		case one.Wished != nil:
			l.servers[one.Name] = one.Wished
		case one.Type == "sse":
			l.servers[one.Name] = map[string]any{"url": one.URL, "headers": one.Headers, "transport": "sse"}
		case one.URL != "":
			l.servers[one.Name] = map[string]any{"url": one.URL, "headers": one.Headers}
		default:
			l.servers[one.Name] = map[string]any{"command": one.Command, "args": one.Args, "env": one.Env}
		}
	}
	return err
}

// specific takes agentSpecific.amp.
func (l *launch) specific() {
	members := l.OwnMembers(ID)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		v := members[name]
		var err error
		switch name {
		case "mode":
			err = json.Unmarshal(v, &l.mode)
		case "labels":
			err = json.Unmarshal(v, &l.labels)
		case "settings":
			err = json.Unmarshal(v, &l.own)
			if _, there := l.own[setAllowAll]; there {
				delete(l.own, setAllowAll)
				l.Cannot("agentSpecific.amp.settings."+setAllowAll, "say permissionMode bypass instead")
			}
		case "permissionRules":
			if json.Unmarshal(v, &l.rules) != nil || slices.ContainsFunc(l.rules, func(r rule) bool {
				return bridge.Text(r["tool"]) == "" || !slices.Contains([]string{"allow", "ask", "reject", "delegate"}, bridge.Text(r["action"]))
			}) {
				l.rules = nil
				l.Cannot("agentSpecific.amp.permissionRules", `it is a list of {"tool", "action": "allow", "ask", "reject" or "delegate"}, as in amp.permissions of amp's settings`)
			}
		default:
			l.Cannot("agentSpecific.amp."+name, "it is none of mode, labels, permissionRules, settings")
		}
		if err != nil {
			l.Cannot("agentSpecific.amp."+name, "%v", err)
		}
	}
}

// files writes what the program reads from files into dir, which the session
// removes when it ends.
func (l *launch) files(dir string, own settings, delegate string) error {
	if err := l.write(filepath.Join(dir, "settings.json"), own, delegate); err != nil {
		return err
	}
	if len(l.servers) > 0 {
		b, err := schema.Encode(l.servers)
		if err != nil {
			return fmt.Errorf("write amp's MCP servers: %w", err)
		}
		if err := bridge.WritePrivate(filepath.Join(dir, "mcp.json"), b); err != nil {
			return err
		}
	}
	if len(l.skills) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "skills"), 0o700); err != nil {
		return fmt.Errorf("link skills: %w", err)
	}
	for _, s := range l.skills {
		if err := os.Symlink(s, filepath.Join(dir, "skills", filepath.Base(s))); err != nil {
			l.Cannot("skills", "%s: %v", s, err)
		}
	}
	return nil
}

// args are the program's arguments. thread is the one to go on with, "" for a new
// one.
func (l *launch) args(dir, thread, mode, version string) []string {
	var out []string
	if thread != "" {
		out = append(out, "threads", "continue", thread)
	}
	out = append(out, "--execute", "--stream-json", "--stream-json-thinking", "--stream-json-input", "--no-ide", "--no-notifications",
		"--settings-file", filepath.Join(dir, "settings.json"))
	if len(l.servers) > 0 {
		out = append(out, "--mcp-config", filepath.Join(dir, "mcp.json"))
	}
	if mode != "" {
		out = append(out, "--mode", mode)
	}
	for _, label := range l.labels {
		out = append(out, "--label", label)
	}
	if onServer(version) {
		out = append(out, "--no-archive-after-execute")
	}
	return out
}
