package claude

import (
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Each rule and each folder that is allowed is a grant, a mode is none. What is taken back is not given to the next process.
func TestGrants(t *testing.T) {
	o := adapters.Options{StateDir: t.TempDir()}
	const id = "5a7e8a0c-0000-4000-8000-00000000abcd"
	s := newStore(o.StateDir)
	if err := s.Change(id, func(r *record) {
		r.allow([]suggestion{
			{Type: "addRules", Behavior: "allow", Rules: []permissionRule{{ToolName: "Bash", Content: "npm test:*"}, {ToolName: "WebFetch"}}},
			{Type: "addDirectories", Directories: []string{"/more"}},
			{Type: "setMode", Mode: modeAcceptEdits},
			{Type: "addRules", Behavior: "deny"},
		}, "Bash", schema.ToolKindExecute)
	}); err != nil {
		t.Fatal(err)
	}
	list, said := Adapter{}.Grants(o, id), ""
	for _, g := range list {
		said += fmt.Sprintf("%s|%s|%s|%v\n", g.Key, g.Title, g.Kind, g.GivenAt.IsZero())
	}
	if want := "rule Bash(npm test:*)|Bash(npm test:*)|execute|false\nrule WebFetch|WebFetch||false\nfolder /more|access to /more||false\n"; said != want {
		t.Errorf("listed is\n%swant\n%s", said, want)
	}
	if err := (Adapter{}).Forget(o, id, []string{list[0].ID, list[2].ID}); err != nil {
		t.Fatal(err)
	}
	r, _ := s.Load(id)
	if rules, folders := r.rules(), r.folders(); len(rules) != 1 || rules[0] != "WebFetch" || len(folders) > 0 {
		t.Errorf("the next process is given %q and %q", rules, folders)
	}
}
