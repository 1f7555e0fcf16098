package adapters

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
)

// Mode is a mode that an agent announces.
type Mode struct {
	ID, Name, Description string
}

// modeNames are the names by which agents call their modes, without case and signs.
var modeNames = map[string][]string{
	"readonly": {"readonly", "plan"},
	"write":    {"acceptedits", "autoedit", "autoedits", "autoacceptedits"},
	"bypass":   {"yolo", "bypass", "bypasspermissions", "fullaccess", "dangerfullaccess", "autoapprove", "autopilot"},
}

// holds finds what a mode says that changes nothing. Some plan modes only plan first.
var holds = pattern.New(`(?i)read[- ]?only|(do not|don't|cannot|never|without|no) (modif|edit|chang|writ)|only reads`)

// ModeFor returns the agent's own mode for a permissionMode: the one that
// PermissionModes names, else one that is called so. It returns "" for none.
func (i Info) ModeFor(permissionMode string, offered []Mode) string {
	if id, known := i.PermissionModes[permissionMode]; known {
		if slices.ContainsFunc(offered, func(m Mode) bool { return m.ID == id }) {
			return id
		}
		return ""
	}
	for _, name := range modeNames[permissionMode] {
		for _, m := range offered {
			if plainName(m.ID) != name && plainName(m.Name) != name {
				continue
			}
			if name != "plan" || holds.MatchString(m.Description) {
				return m.ID
			}
		}
	}
	return ""
}

// plainName is a mode's name as modeNames has it. Some ids are addresses, whose end is
// the name.
func plainName(s string) string {
	s = strings.ToLower(s[strings.LastIndexAny(s, "#/")+1:])
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}
