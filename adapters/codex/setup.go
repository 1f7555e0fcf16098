package codex

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// setup is how a session's thread is opened.
type setup struct {
	*bridge.Setup
	params   map[string]any
	config   map[string]any
	append   []string // developer instructions
	mode     string   // "" for the one that is configured
	approval string   // instead of the mode's own
	skills   []skill  // the session's own
}

// newSetup maps what a client asks for. What cannot be had is listed, not
// dropped.
func newSetup(r bridge.Request) (*setup, error) {
	asked, err := bridge.NewSetup(r)
	if err != nil {
		return nil, err
	}
	s := &setup{Setup: asked, params: map[string]any{"cwd": r.Cwd}, config: map[string]any{"tools.update_plan.enabled": true}}
	switch s.PermissionMode {
	case "", "default":
	case "readonly":
		s.mode, s.approval = modeReadOnly, approvalNever
	case "write":
		s.mode = modeAgent
	case "bypass":
		s.mode = modeFullAccess
	default:
		s.Cannot("permissionMode", "there is no %q: it is default, readonly, write or bypass", s.PermissionMode)
	}
	if len(s.Roots) > 0 {
		s.params["runtimeWorkspaceRoots"] = append([]string{r.Cwd}, s.Roots...)
	}
	s.specific()
	instead, more := s.SystemPrompt()
	if instead != nil {
		s.params["baseInstructions"] = *instead
	}
	s.append = more
	if err := s.mcp(); err != nil {
		return nil, err
	}
	s.findSkills()
	s.params["config"] = s.config
	return s, nil
}

// serverName is what codex takes as the name of an MCP server.
var serverName = pattern.New(`^[A-Za-z0-9_-]+$`)

// timeout is the setting of a server that bounds its answers, in seconds.
const timeout = "tool_timeout_sec"

// mcp lists the MCP servers. Their secrets go through the process's stdin.
func (s *setup) mcp() error {
	servers, err := s.MCPServers("codex", "stdio", "http")
	for _, one := range servers {
		if one.URL != "" {
			s.server(one.Name, map[string]any{"url": one.URL, "http_headers": one.Headers, timeout: one.Timeout / 1000})
		} else {
			s.server(one.Name, map[string]any{"command": one.Command, "args": one.Args, "env": one.Env, timeout: one.Timeout / 1000})
		}
	}
	return err
}

func (s *setup) server(name string, config map[string]any) {
	if !serverName.MatchString(name) {
		s.Cannot("mcpServers."+name, "codex takes letters, digits, _ and - in a server's name")
		return
	}
	maps.DeleteFunc(config, func(_ string, v any) bool {
		switch v := v.(type) {
		case []string:
			return len(v) == 0
		case map[string]string:
			return len(v) == 0
		case float64:
			return v <= 0
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
func (s *setup) specific() {
	members := s.OwnMembers(ID)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case name == "config":
			var more map[string]any
			if json.Unmarshal(members[name], &more) != nil {
				s.Cannot("agentSpecific.codex.config", "it is no object of codex's settings by dotted name")
				continue
			}
			maps.Copy(s.config, more)
		case name == "replaceSystemPrompt":
			if _, both := members["baseInstructions"]; both {
				s.Cannot("agentSpecific.codex.replaceSystemPrompt", "it is another name of baseInstructions, which is used")
				continue
			}
			s.params["baseInstructions"] = members[name]
		case slices.Contains(direct, name):
			s.params[name] = members[name]
		default:
			s.Cannot("agentSpecific.codex."+name, "it is none of config, replaceSystemPrompt, %s", strings.Join(direct, ", "))
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

// findSkills collects the session's skills. Codex is told of them in the
// developer instructions, since it has folders of skills for all threads only.
func (s *setup) findSkills() {
	var heads []bridge.Skill
	for _, f := range s.SkillFiles() {
		head, err := bridge.ReadSkill(f)
		if err != nil {
			s.Cannot("skills", "%v", err)
			continue
		}
		heads = append(heads, head)
		s.skills = append(s.skills, skill{Name: head.Name, Description: head.About, Path: head.Path, Enabled: true, own: true})
	}
	if len(heads) == 0 {
		return
	}
	s.append = append(s.append, bridge.SkillsText(heads))
}

// maxSkill bounds the part of a SKILL.md that is read.
const maxSkill = 64 << 10
