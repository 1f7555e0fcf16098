package pi

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// launch is how a session's program is started. Nothing secret is in args.
type launch struct {
	anew bool // a session that is opened again has nothing to go on with
	*bridge.Setup
	mode    string
	args    []string
	instead *string  // of the system prompt
	more    []string // behind the system prompt
	servers map[string]any
}

// newLaunch maps what a client asks for. What cannot be had is listed, not
// dropped.
func newLaunch(r bridge.Request) (*launch, error) {
	wished, err := bridge.NewSetup(r)
	if err != nil {
		return nil, err
	}
	l := &launch{Setup: wished, mode: modeDefault, servers: map[string]any{}}
	switch {
	case l.PermissionMode == "":
	case modeKnown(l.PermissionMode):
		l.mode = l.PermissionMode
	default:
		l.Cannot("permissionMode", "there is no %q: it is %s", l.PermissionMode, strings.Join(modeIDs(), ", "))
	}
	l.instead, l.more = l.SystemPrompt()
	if len(l.Roots) > 0 {
		l.more = append(l.more, "# Further folders of this session\n\nBesides the working directory, these belong to the task:\n- "+strings.Join(l.Roots, "\n- "))
	}
	for _, f := range l.SkillFiles() {
		l.args = append(l.args, "--skill", filepath.Dir(f))
	}
	if err := l.mcp(); err != nil {
		return nil, err
	}
	l.specific()
	return l, nil
}

// serverName is the form of names that Pi takes.
var serverName = pattern.New(`^[A-Za-z0-9_-]+$`)

// mcp lists the MCP servers. Their tools are shown to the model as all others are.
func (l *launch) mcp() error {
	servers, err := l.MCPServers("pi", "stdio", "http")
	for _, one := range servers {
		if !serverName.MatchString(one.Name) {
			l.Cannot("mcpServers."+one.Name, "pi takes names of letters, digits, _ and - only")
			continue
		}
		var config map[string]any
		switch {
		case one.Wished != nil:
			if json.Unmarshal(one.Wished, &config) != nil || config == nil {
				l.Cannot("mcp."+one.Name, "it is no object")
				continue
			}
		case one.URL != "":
			config = map[string]any{"url": one.URL, "headers": literals(one.Headers)}
		default:
			config = map[string]any{"command": one.Command, "args": one.Args, "env": literals(one.Env)}
		}
		if config["exposure"] == nil {
			config["exposure"] = "direct"
		}
		l.servers[one.Name] = config
	}
	return err
}

func literals(values map[string]string) map[string]string {
	out := map[string]string{}
	for name, v := range values {
		out[name] = literal(v)
	}
	return out
}

// literal is a value that Pi takes as it is: what begins with ! would be a command
// for it, and what follows $ a variable.
func literal(v string) string {
	v = strings.ReplaceAll(v, "$", "$$")
	if strings.HasPrefix(v, "!") {
		return "$" + v
	}
	return v
}

// flags are the members of agentSpecific.pi that are flags of Pi. Those that load
// code of the workspace, or take away the gate, are not among them.
var flags = map[string]string{
	"model": "--model", "provider": "--provider", "thinking": "--thinking", "tools": "--tools", "excludeTools": "--exclude-tools",
	"noTools": "--no-tools", "noSkills": "--no-skills", "noContextFiles": "--no-context-files", "noPromptTemplates": "--no-prompt-templates",
	"noExtensions": "--no-extensions", "noMcp": "--no-mcp", "offline": "--offline", "extensions": "--extension", "promptTemplates": "--prompt-template",
	"approve": "--approve",
}

// specific takes agentSpecific.pi.
func (l *launch) specific() {
	members := l.OwnMembers(ID)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		flag, known := flags[name]
		if !known {
			l.Cannot("agentSpecific.pi."+name, "it is none of %s", strings.Join(slices.Sorted(maps.Keys(flags)), ", "))
			continue
		}
		l.flag(name, flag, members[name])
	}
}

func (l *launch) flag(name, flag string, raw json.RawMessage) {
	var on bool
	var text string
	var list []string
	switch {
	case json.Unmarshal(raw, &on) == nil:
		if on {
			l.args = append(l.args, flag)
		}
	case json.Unmarshal(raw, &text) == nil:
		l.args = append(l.args, flag, text)
	case json.Unmarshal(raw, &list) != nil:
		l.Cannot("agentSpecific.pi."+name, "it is a text, a list of texts, or a flag that is true")
	case name == "extensions" || name == "promptTemplates":
		for _, one := range list {
			l.args = append(l.args, flag, one)
		}
	default:
		l.args = append(l.args, flag, strings.Join(list, ","))
	}
}

// write writes what Pi reads from files into dir, which the session removes when
// it ends, and returns the arguments that name them. config is the folder of the
// user's configuration: what the user adds to the system prompt stays, and Pi
// would leave it out.
func (l *launch) write(dir, config string, facts gateFacts) ([]string, error) {
	known, err := facts.encode()
	if err == nil {
		err = bridge.WritePrivate(filepath.Join(dir, factsName), known)
	}
	if err != nil {
		return nil, err
	}
	args := []string{"--mode", "rpc"}
	put := func(flag, name string, content []byte) {
		path := filepath.Join(dir, name)
		if err == nil {
			err = bridge.WritePrivate(path, content)
		}
		args = append(args, flag, path)
	}
	put("--extension", gateName, gateSource)
	if l.instead != nil {
		put("--system-prompt", "system.md", []byte(*l.instead))
	}
	if len(l.more) > 0 {
		more := l.more
		if users, err := os.ReadFile(filepath.Join(config, "APPEND_SYSTEM.md")); err == nil {
			more = slices.Insert(slices.Clone(more), 0, string(users))
		}
		put("--append-system-prompt", "append.md", []byte(strings.Join(more, "\n\n")))
	}
	if err != nil {
		return nil, fmt.Errorf("write the session's files: %w", err)
	}
	return slices.Concat(args, l.args), nil
}
