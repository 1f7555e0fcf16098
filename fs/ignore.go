package fs

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxIgnoreFile bounds a .gitignore; what is behind it is not read.
const maxIgnoreFile = 1 << 20

// maxRules bounds the rules that are in force in a folder; further ones are not
// read. Each takes some kilobytes, and all are tried for each entry.
const maxRules = 5000

// rule is a line of a .gitignore.
type rule struct {
	re      *regexp.Regexp
	negated bool // takes back what a rule before it ignored
	folders bool // is about folders only
	whole   bool // is about the path below the file's folder, not about the last part
}

// rules are those of one folder. Those of folders above count less.
type rules struct {
	above *rules
	dir   string // from where the walk began; "" there
	up    string // the path of where the walk began, below a folder above it
	list  []rule
	count int // of list and of those above
}

// parseRules reads a .gitignore, at most so many rules of it.
func parseRules(text string, most int) []rule {
	var list []rule
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if len(list) >= most {
			break
		}
		if r, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			list = append(list, r)
		}
	}
	return list
}

func parseRule(line string) (r rule, ok bool) {
	// Blanks at the end count only behind a backslash.
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return r, false
	}
	if line[0] == '!' {
		r.negated, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		r.folders, line = true, line[:len(line)-1]
	}
	r.whole = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false
	}
	if rest, found := strings.CutSuffix(line, "/**"); found {
		// All that is in a folder, and not the folder.
		line = rest + "/**/*"
	}
	r.re, ok = glob(line, "")
	return r, ok
}

// ignores reports whether the rules ignore the entry at rel.
func (r *rules) ignores(rel string, folder bool) bool {
	for ; r != nil; r = r.above {
		path := rel
		if r.up != "" {
			path = r.up + "/" + rel
		} else if r.dir != "" {
			path = strings.TrimPrefix(rel, r.dir+"/")
		}
		base := path[strings.LastIndexByte(path, '/')+1:]
		for i := len(r.list) - 1; i >= 0; i-- {
			l := r.list[i]
			subject := base
			if l.whole {
				subject = path
			}
			if (folder || !l.folders) && l.re.MatchString(subject) {
				return !l.negated
			}
		}
	}
	return false
}

// rulesOf adds the rules of a folder to those above it.
func rulesOf(dir *os.Root, file string, above *rules) *rules {
	f, err := dir.OpenFile(filepath.FromSlash(file), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return above
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return above
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxIgnoreFile)) // what can be read counts
	count := 0
	if above != nil {
		count = above.count
	}
	if list := parseRules(string(b), maxRules-count); len(list) > 0 {
		return &rules{above: above, list: list, count: count + len(list)}
	}
	return above
}

// rulesAbove collects what the folders above path say, up to the repository's.
func (s *Service) rulesAbove(path string) *rules {
	var chain []string // path and the folders above it, up to the repository's
	for p := path; ; p = filepath.Dir(p) {
		chain = append(chain, p)
		name, err := s.name(p)
		if err != nil {
			return nil // the root is in no repository that this server shows
		}
		if _, err := s.tree().Lstat(filepath.Join(name, ".git")); err == nil {
			break
		}
		if s.top(p) {
			return nil
		}
	}
	var above *rules
	for i := len(chain) - 1; i >= 0; i-- {
		name, err := s.name(chain[i])
		if err != nil {
			return nil
		}
		dir, err := s.folder(name)
		if err != nil {
			return above
		}
		up, _ := filepath.Rel(chain[i], path)
		up = filepath.ToSlash(up)
		if up == "." {
			up = ""
		}
		add := func(file string) {
			if next := rulesOf(dir, file, above); next != above {
				next.up = up
				above = next
			}
		}
		if i == len(chain)-1 {
			add(".git/info/exclude")
		}
		if i > 0 { // the walk itself reads that of its first folder
			add(".gitignore")
		}
		_ = dir.Close()
	}
	return above
}
