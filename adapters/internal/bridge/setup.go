package bridge

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Request has the members that the requests which set up a session share.
type Request struct {
	Cwd         string
	Directories []string
	Servers     []schema.MCPServer
	System      *schema.SystemPrompt
	Meta        map[string]json.RawMessage
}

// OfNew has the members of a session/new, and the others those of their requests.
func OfNew(r *schema.NewSessionRequest) Request {
	return Request{r.Cwd, r.AdditionalDirectories, r.MCPServers, r.SystemPrompt, r.Meta}
}

func OfLoad(r *schema.LoadSessionRequest) Request {
	return Request{r.Cwd, r.AdditionalDirectories, r.MCPServers, r.SystemPrompt, r.Meta}
}

func OfResume(r *schema.ResumeSessionRequest) Request {
	return Request{r.Cwd, r.AdditionalDirectories, r.MCPServers, r.SystemPrompt, r.Meta}
}

func OfFork(r *schema.ForkSessionRequest) Request {
	return Request{r.Cwd, r.AdditionalDirectories, r.MCPServers, r.SystemPrompt, r.Meta}
}

// Wishes are what a client asks for in a request's _meta when it sets up a
// session.
type Wishes struct {
	Title          string          `json:"title"`
	PermissionMode string          `json:"permissionMode"`
	Instructions   string          `json:"instructions"`
	Append         string          `json:"appendSystemPrompt"`
	Skills         json.RawMessage `json:"skills"`
	MCP            json.RawMessage `json:"mcp"`
	Directories    []string        `json:"additionalDirectories"`
	Specific       json.RawMessage `json:"agentSpecific"`
}

// Unsupported names a wish that had no effect.
type Unsupported struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Setup is what a client asks for, read and checked. What an agent cannot do is
// listed in Unsupported, never dropped.
type Setup struct {
	Wishes
	Cwd         string
	Roots       []string // further folders, absolute
	Servers     []schema.MCPServer
	Unsupported []Unsupported

	system *schema.SystemPrompt
}

// NewSetup reads a request. The error is what the client did wrong.
func NewSetup(r Request) (*Setup, error) {
	if !filepath.IsAbs(r.Cwd) {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd must be an absolute path, not %q", r.Cwd)
	}
	if info, err := os.Stat(r.Cwd); err != nil || !info.IsDir() {
		return nil, acp.Errorf(acp.CodeInvalidParams, "cwd %s is not a directory on the agent's machine", r.Cwd)
	}
	s := &Setup{Cwd: r.Cwd, Servers: r.Servers, system: r.System}
	if raw := r.Meta[acp.MetaKey]; raw != nil {
		if err := exactly(raw, &s.Wishes); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta[%q]: %v", acp.MetaKey, err)
		}
	}
	s.Roots = slices.Concat(r.Directories, s.Directories)
	for _, d := range s.Roots {
		if !filepath.IsAbs(d) {
			return nil, acp.Errorf(acp.CodeInvalidParams, "additionalDirectories: %q is not an absolute path", d)
		}
	}
	return s, nil
}

// exactly decodes the members of an object whose names are those of v's fields to the
// letter: the gateway has reported others as unknown.
func exactly(raw json.RawMessage, v *Wishes) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	for name := range members {
		if !slices.Contains(wishNames, name) {
			delete(members, name)
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

var wishNames = []string{"title", "permissionMode", "instructions", "appendSystemPrompt", "skills", "mcp", "additionalDirectories", "agentSpecific"}

// Cannot lists a wish that has no effect.
func (s *Setup) Cannot(field, format string, args ...any) {
	s.Unsupported = append(s.Unsupported, Unsupported{field, fmt.Sprintf(format, args...)})
}

// SystemPrompt returns the text that replaces the agent's own, nil for none, and
// the texts that follow it.
func (s *Setup) SystemPrompt() (instead *string, more []string) {
	if s.Instructions != "" {
		more = append(more, "# Project instructions\n\n"+s.Instructions)
	}
	if s.Append != "" {
		more = append(more, s.Append)
	}
	if s.system == nil {
		return nil, more
	}
	var parts []string
	for _, b := range s.system.Content {
		if b.Text == nil {
			s.Cannot("systemPrompt", "only its text blocks are used")
			continue
		}
		parts = append(parts, b.Text.Text)
	}
	all := strings.Join(parts, "\n")
	switch {
	case s.system.Mode == schema.SystemPromptModeOverride:
		instead = &all
	case all != "":
		more = append(more, all)
	}
	return instead, more
}

// SkillFiles returns the SKILL.md files below the wished paths. A path is a
// skill, or a folder of skills.
func (s *Setup) SkillFiles() []string {
	if len(s.Skills) == 0 || string(s.Skills) == "null" {
		return nil
	}
	var list struct {
		Paths []string `json:"paths"`
	}
	if json.Unmarshal(s.Skills, &list) != nil || len(list.Paths) == 0 {
		s.Cannot("skills", `it has the form {"paths": [...]}`)
		return nil
	}
	var out []string
	for _, p := range list.Paths {
		found, _ := filepath.Glob(filepath.Join(p, "*", "SKILL.md"))
		if _, err := os.Stat(filepath.Join(p, "SKILL.md")); err == nil {
			found = []string{filepath.Join(p, "SKILL.md")}
		}
		if len(found) == 0 || !filepath.IsAbs(p) {
			s.Cannot("skills", "%s is neither a folder with a SKILL.md nor a folder of such folders", p)
			continue
		}
		out = append(out, found...)
	}
	return out
}

// OwnMembers returns the members of agentSpecific that are for the agent.
func (s *Setup) OwnMembers(agent string) map[string]json.RawMessage {
	own, ok := rawjson.Member(s.Specific, agent)
	if !ok {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(own, &members) != nil {
		s.Cannot("agentSpecific."+agent, "it is no object")
		return nil
	}
	return members
}
