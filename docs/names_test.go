package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
)

// others are flags that pages name and that are other programs'.
var others = map[string]string{
	"--dir": "of the installer", "--publish": "of ./task release", "--base-url": "of the installer", "--init": "of Docker", "--user": "of Docker and systemctl", "--global": "of npm",
	"--acp": "of agents", "--version": "what an installation is proved by", "--help": "of every command",
}

// TestNames_Flags holds the flags that pages name to those that there are.
func TestNames_Flags(t *testing.T) {
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("`(--[a-z][a-z-]*)`").FindAllStringSubmatch(tables(read(t, "cli.mdx")+read(t, "hub-cli.mdx")), -1) {
		known[m[1]] = true
	}
	if len(known) < 60 {
		t.Fatalf("%d flags were found", len(known))
	}
	flag := regexp.MustCompile(`(?:^|[\s` + "`" + `])(--[a-z][a-z-]+)`)
	for _, p := range pages(t) {
		if p.name == "rough-edges.md" { // tells of agents' own flags too
			continue
		}
		for _, code := range inline.FindAllString(p.prose, -1) {
			for _, m := range flag.FindAllStringSubmatch(code, -1) {
				if _, ok := others[m[1]]; !known[m[1]] && !ok {
					t.Errorf("%s names %s, which is no flag of any command", p.name, m[1])
				}
			}
		}
	}
}

// tables is a text without what is no row of a table.
func tables(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestNames_Paths holds the addresses that pages name to the API's document.
func TestNames_Paths(t *testing.T) {
	var known []string
	for path := range readAPI(t).Paths {
		known = append(known, "^"+regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, `[^/]+`)+"$")
	}
	for _, r := range fleet.Routes() {
		known = append(known, "^"+regexp.MustCompile(`\{\w+\}`).ReplaceAllString(r.Path, `[^/]+`)+"$")
	}
	address := regexp.MustCompile(`/v2/[A-Za-z0-9_{}$./-]*[A-Za-z0-9_}]`)
	for _, p := range pages(t) {
		for _, path := range address.FindAllString(p.text, -1) {
			isPath := func(pattern string) bool {
				return regexp.MustCompile(pattern).MatchString(path) || strings.HasPrefix(pattern, "^"+path+"/")
			}
			if !slices.ContainsFunc(known, isPath) {
				t.Errorf("%s names %s, which is not in the API", p.name, path)
			}
		}
	}
}

// TestNames_InCode looks for the variables and methods that pages name.
func TestNames_InCode(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{"node_modules", "testdata", "dist", "bin", "docs", ".git", ".venv"}, e.Name()):
			return fs.SkipDir
		case slices.Contains([]string{".go", ".ts", ".py", ".mjs", ".js", ".sh", ".ps1"}, filepath.Ext(path)) && !strings.HasSuffix(path, "_test.go"):
			b, err := os.ReadFile(path)
			code.Write(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	source := code.String()
	reference := read(t, "cli.mdx")
	variable, method := regexp.MustCompile(`SANDBOX_AGENT_([A-Z_]*[A-Z])`), regexp.MustCompile(`_sandboxagent/[a-z]+/[a-z_]+`)
	for _, p := range pages(t) {
		for _, m := range variable.FindAllStringSubmatch(p.text, -1) {
			if !strings.HasSuffix(m[1], "_BIN") && !strings.Contains(reference, "`"+m[0]+"`") && !strings.Contains(source, m[0]) {
				t.Errorf("%s names %s, which nobody reads", p.name, m[0])
			}
		}
		for _, name := range method.FindAllString(p.text, -1) {
			if !strings.Contains(source, name) {
				t.Errorf("%s names %s, which is in no source", p.name, name)
			}
		}
	}
}
