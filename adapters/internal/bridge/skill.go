package bridge

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSkill bounds the part of a SKILL.md that is read.
const maxSkill = 64 << 10

// Skill is a folder with a SKILL.md.
type Skill struct {
	Name, About string
	Path        string // of the SKILL.md
}

// ReadSkill reads the head of a SKILL.md. A skill without one has its folder's
// name.
func ReadSkill(path string) (Skill, error) {
	one := Skill{Name: filepath.Base(filepath.Dir(path)), Path: path}
	f, err := os.Open(path)
	if err != nil {
		return one, fmt.Errorf("read a skill: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSkill))
	if err != nil {
		return one, fmt.Errorf("read a skill: %w", err)
	}
	head, ok := strings.CutPrefix(string(b), "---\n")
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
			one.Name = value
		case key == "description":
			one.About = value
		}
	}
	return one, nil
}

// SkillsText tells a model of skills that its agent does not know.
func SkillsText(skills []Skill) string {
	var b strings.Builder
	b.WriteString("# Skills of this session\n\nWhen a task fits one of these, read its file first and follow it.\n")
	for _, one := range skills {
		fmt.Fprintf(&b, "\n- %s: %s (file: %s)", one.Name, one.About, one.Path)
	}
	return b.String()
}
