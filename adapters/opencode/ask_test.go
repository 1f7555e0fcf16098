package opencode

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func TestCovers(t *testing.T) {
	var granted bridge.Grants
	for _, one := range [][2]string{{"bash", "echo *"}, {"bash", "git status"}, {"edit", "*"}, {"external_directory", "/a/*"}} {
		granted.Add(bridge.Given(grantKey(one[0], one[1]), "", ""))
	}
	for _, c := range []struct {
		permission string
		patterns   []string
		want       bool
	}{
		{"bash", []string{"echo hello"}, true},
		{"bash", []string{"echo"}, true},
		{"bash", []string{"echo a", "rm -rf /"}, false},
		{"bash", []string{"echoes"}, false},
		{"bash", []string{"git status"}, true},
		{"bash", []string{"git status -s"}, false},
		{"bash", nil, false},
		{"edit", []string{"any/file.go"}, true},
		{"read", []string{"any/file.go"}, false},
		{"external_directory", []string{"/a/b/*"}, true},
		{"external_directory", []string{"/ab/*"}, false},
		{"", []string{"x"}, false},
	} {
		if got := covers(granted, &ask{Permission: c.permission, Patterns: c.patterns}); got != c.want {
			t.Errorf("%s of %q: %v", c.permission, c.patterns, got)
		}
	}
}

func TestGrant_Covers(t *testing.T) {
	dirs := grant{dirs: []string{"/more"}}
	for _, c := range []struct {
		name string
		g    grant
		q    ask
		want bool
	}{
		{"nothing", grant{}, ask{Permission: "edit", Patterns: []string{"x"}}, false},
		{"all", grant{all: true}, ask{Permission: "bash", Patterns: []string{"x"}}, true},
		{"all, a question", grant{all: true}, ask{Questions: []question{{}}}, false},
		{"edits", grant{edits: true}, ask{Permission: "edit", Patterns: []string{"x"}}, true},
		{"edits, a command", grant{edits: true}, ask{Permission: "bash", Patterns: []string{"x"}}, false},
		{"directory", dirs, ask{Permission: "external_directory", Patterns: []string{"/more/*", "/more/a/*"}}, true},
		{"directory above", dirs, ask{Permission: "external_directory", Patterns: []string{"/*"}}, false},
		{"directory beside", dirs, ask{Permission: "external_directory", Patterns: []string{"/more-of-it/*"}}, false},
		{"one of two directories", dirs, ask{Permission: "external_directory", Patterns: []string{"/more/*", "/etc/*"}}, false},
		{"no directory", dirs, ask{Permission: "external_directory"}, false},
	} {
		if got := c.g.covers(&c.q); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMessageIDs_AscendWithTime(t *testing.T) {
	last := ""
	for range 10_000 {
		id := newMessageID()
		if id <= last || len(id) != len("msg_1fbf365cd001eoVAr67uAFWCJa") {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
}

// Of rules that match the last one counts: what readonly denies must not be allowed behind it.
func TestDeny(t *testing.T) {
	denials := []rule{{"edit", "*", "deny"}, {"bash", "*", "deny"}}
	for name, c := range map[string]struct {
		rules []rule
		want  bool
	}{
		"none":                  {nil, false},
		"the denials":           {denials, true},
		"one of them":           {denials[:1], false},
		"allowed before":        {append([]rule{{"bash", "*", "allow"}}, denials...), true},
		"allowed behind":        {append(denials[:2:2], rule{"bash", "git *", "allow"}), false},
		"asked behind":          {append(denials[:2:2], rule{"edit", "*.md", "ask"}), false},
		"all allowed behind":    {append(denials[:2:2], rule{"*", "*", "allow"}), false},
		"denied again":          {append(denials[:2:2], rule{"bash", "*", "allow"}, denials[0], denials[1]), true},
		"something else behind": {append(denials[:2:2], rule{"external_directory", "/a/*", "allow"}, rule{"bash", "x", "deny"}), true},
	} {
		if got := deny(c.rules, denials); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !deny([]rule{{"bash", "*", "allow"}}, nil) {
		t.Error("a session that is not readonly has denials")
	}
}
