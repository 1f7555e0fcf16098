package bridge_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func wishes(t *testing.T, own string) bridge.Request {
	t.Helper()
	return bridge.Request{Cwd: t.TempDir(), Meta: map[string]json.RawMessage{acp.MetaKey: json.RawMessage(own)}}
}

func TestSetup(t *testing.T) {
	skills := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := bridge.WritePrivate(filepath.Join(skills, name, "SKILL.md"), []byte("say hello")); err != nil {
			t.Fatal(err)
		}
	}
	own, _ := json.Marshal(map[string]any{
		"instructions": "I", "appendSystemPrompt": "A", "additionalDirectories": []string{"/b"},
		"skills":        map[string]any{"paths": []string{skills, filepath.Join(skills, "two"), "/no/such/folder"}},
		"mcp":           map[string]any{"mcpServers": map[string]any{"one": map[string]any{"command": "x"}}},
		"agentSpecific": map[string]any{"an-agent": map[string]any{"x": 1}, "another": map[string]any{"y": 2}},
	})
	r := wishes(t, string(own))
	r.Directories = []string{"/a"}
	r.System = &schema.SystemPrompt{Mode: schema.SystemPromptModeAppend, Content: []schema.ContentBlock{schema.TextBlock("S"), {Image: &schema.ImageContent{}}}}
	s, err := bridge.NewSetup(r)
	if err != nil {
		t.Fatal(err)
	}
	instead, more := s.SystemPrompt()
	servers, err := s.MCPServers("it", "stdio", "http")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(skills, "one/SKILL.md"), filepath.Join(skills, "two/SKILL.md"), filepath.Join(skills, "two/SKILL.md")}
	if diff := cmp.Diff(want, s.SkillFiles()); diff != "" {
		t.Errorf("skills -want +got\n%s", diff)
	}
	if instead != nil || !slices.Equal(more, []string{"# Project instructions\n\nI", "A", "S"}) {
		t.Errorf("the system prompt is %v, %q", instead, more)
	}
	if !slices.Equal(s.Roots, []string{"/a", "/b"}) || len(servers) != 1 || servers[0].Command != "x" || string(servers[0].Wished) != `{"command":"x"}` || len(s.OwnMembers("an-agent")) != 1 {
		t.Errorf("it is %+v with servers %+v", s, servers)
	}
	var fields []string
	for _, u := range s.Unsupported {
		fields = append(fields, u.Field)
	}
	if diff := cmp.Diff([]string{"systemPrompt", "skills"}, fields); diff != "" {
		t.Errorf("unsupported -want +got\n%s", diff)
	}
	r.System.Mode = schema.SystemPromptModeOverride
	if instead, more = s.SystemPrompt(); instead == nil || *instead != "S" || len(more) != 2 {
		t.Errorf("instead of the system prompt comes %v, then %q", instead, more)
	}
}

func TestSetup_BadWishesAreErrors(t *testing.T) {
	for name, r := range map[string]bridge.Request{
		"relative cwd":       {Cwd: "here"},
		"no such cwd":        {Cwd: "/no/such/dir"},
		"relative directory": {Cwd: t.TempDir(), Directories: []string{"there"}},
		"title is a number":  wishes(t, `{"title":1}`),
	} {
		if _, err := bridge.NewSetup(r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := bridge.NewSetup(wishes(t, `{"mcp":[],"skills":{"paths":[]},"agentSpecific":{"it":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.MCPServers("it", "stdio", "http"); err == nil {
		t.Error("mcp that is a list: no error")
	}
	if s.SkillFiles() != nil || s.OwnMembers("it") != nil || len(s.Unsupported) != 2 {
		t.Errorf("unsupported are %v", s.Unsupported)
	}
}

func TestStore(t *testing.T) {
	type record struct{ Mode, Model string }
	const one, two = "11111111-2222-4333-8444-555555555555", "21111111-2222-4333-8444-555555555555"
	s := &bridge.Store[record]{Dir: t.TempDir()}
	mode := func(m string) func(*record) { return func(r *record) { r.Mode = m } }
	for id, m := range map[string]string{one: "plan", two: "ask"} {
		if err := s.Change(id, mode(m)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(s.Dir, "sessions", one+".json")
	before, err := os.Stat(file)
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", before, err)
	}
	if err := s.Change(one, mode("plan")); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("a record that did not change was written: %v", err)
	}
	again := &bridge.Store[record]{Dir: s.Dir}
	if diff := cmp.Diff(map[string]record{one: {Mode: "plan"}, two: {Mode: "ask"}}, again.All()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := s.Forget(one); err != nil {
		t.Error(err)
	}
	if err := s.Forget(one); err != nil {
		t.Errorf("forgetting twice: %v", err)
	}
	if _, ok := s.Load(one); ok {
		t.Error("a forgotten session is known")
	}
	for _, id := range []string{"", "../" + one[3:], "x", "{" + one + "}", "urn:uuid:" + one} {
		if err := s.Change(id, mode("plan")); err == nil {
			t.Errorf("a session %q was remembered", id)
		}
	}
}
