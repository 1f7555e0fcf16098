package opencode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// skill is a folder with a SKILL.md.
type skill struct {
	name, about string
	path        string // of the SKILL.md
}

// maxSkill bounds the part of a SKILL.md that is read.
const maxSkill = 64 << 10

// findSkills collects the skills below the given paths. A path is a skill, or a
// folder of skills. OpenCode has folders of skills for all sessions only, so it
// is told of these in the system prompt, and may read them.
func (s *setup) findSkills(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	var list struct {
		Paths []string `json:"paths"`
	}
	if json.Unmarshal(raw, &list) != nil || len(list.Paths) == 0 {
		s.cannot("skills", `it has the form {"paths": [...]}`)
		return
	}
	for _, p := range list.Paths {
		found, _ := filepath.Glob(filepath.Join(p, "*", "SKILL.md"))
		if _, err := os.Stat(filepath.Join(p, "SKILL.md")); err == nil {
			found = []string{filepath.Join(p, "SKILL.md")}
		}
		if len(found) == 0 || !filepath.IsAbs(p) {
			s.cannot("skills", "%s is neither a folder with a SKILL.md nor a folder of such folders", p)
			continue
		}
		s.open(filepath.Clean(p))
		for _, f := range found {
			one, err := readSkill(f)
			if err != nil {
				s.cannot("skills", "%v", err)
				continue
			}
			s.skills = append(s.skills, one)
		}
	}
	if len(s.skills) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("# Skills of this session\n\nWhen a task fits one of these, read its file first and follow it.\n")
	for _, one := range s.skills {
		fmt.Fprintf(&b, "\n- %s: %s (file: %s)", one.name, one.about, one.path)
	}
	s.texts = append(s.texts, b.String())
}

// readSkill reads the head of a SKILL.md.
func readSkill(path string) (skill, error) {
	one := skill{name: filepath.Base(filepath.Dir(path)), path: path}
	b, err := os.ReadFile(path)
	if err != nil {
		return one, fmt.Errorf("read a skill: %w", err)
	}
	head, ok := strings.CutPrefix(string(b[:min(len(b), maxSkill)]), "---\n")
	head, _, closed := strings.Cut(head, "\n---")
	if !ok || !closed {
		return one, nil
	}
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch {
		case value == "":
		case key == "name":
			one.name = value
		case key == "description":
			one.about = value
		}
	}
	return one, nil
}
