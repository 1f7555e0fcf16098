package bridge_test

import (
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func TestReadSkill(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bridge.Skill{
		"---\nname: demo\ndescription: \"does demos\"\n---\nBODY\n": {Name: "demo", About: "does demos"},
		"no head":              {Name: "folder"},
		"---\nname: cut off\n": {Name: "folder"},
		"---\nname: big\n---\n" + strings.Repeat("x", 1<<20): {Name: "big"},
	} {
		path := filepath.Join(dir, "folder", "SKILL.md")
		if err := bridge.WritePrivate(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		want.Path = path
		if got, err := bridge.ReadSkill(path); err != nil || got != want {
			t.Errorf("%.20q is %+v, %v", text, got, err)
		}
		if all := bridge.SkillsText([]bridge.Skill{want}); !strings.Contains(all, want.Name) || !strings.Contains(all, path) {
			t.Errorf("the model is told %q", all)
		}
	}
	if _, err := bridge.ReadSkill(filepath.Join(dir, "none")); err == nil {
		t.Error("a skill that is not there can be read")
	}
}

func TestStore_IDsOfItsOwnForm(t *testing.T) {
	s := &bridge.Store[struct{ N int }]{Dir: t.TempDir(), Valid: func(id string) bool { return id == "ses_1" }}
	for id, ok := range map[string]bool{"ses_1": true, "../ses_1": false, "11111111-2222-4333-8444-555555555555": false} {
		err := s.Change(id, func(r *struct{ N int }) { r.N++ })
		if _, known := s.Load(id); known != ok || (err == nil) != ok {
			t.Errorf("%s: known %v, %v", id, known, err)
		}
		if err := s.Forget(id); err != nil {
			t.Error(err)
		}
	}
}

func TestLocalFile(t *testing.T) {
	there := filepath.Join(t.TempDir(), "a b.txt")
	if err := bridge.WritePrivate(there, nil); err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]bool{
		"file://" + strings.ReplaceAll(there, " ", "%20"): true, "file://" + there + "x": false, "https://example.com/x": false, "file://": false, "%": false,
	} {
		if path, ok := bridge.LocalFile(uri); ok != want || ok && path != there {
			t.Errorf("%s is %s, %v", uri, path, ok)
		}
	}
}
