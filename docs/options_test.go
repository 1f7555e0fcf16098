package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSessions_OptionsOfAgents compares the options that the page lists with
// those that the bridges know by name.
func TestSessions_OptionsOfAgents(t *testing.T) {
	page := read(t, "sessions.mdx")
	for agent, from := range map[string]struct{ file, variable string }{
		"claude": {"../adapters/claude/launch.go", "flags"},
		"codex":  {"../adapters/codex/setup.go", "direct"},
		"pi":     {"../adapters/pi/launch.go", "flags"},
	} {
		_, row, _ := strings.Cut(page, "| `"+agent+"` | `")
		row, _, _ = strings.Cut(row, "\n")
		row, _, _ = strings.Cut(row, "; ") // behind it stand other names of these
		var listed []string
		for i, part := range strings.Split("`"+row, "`") {
			if i%2 == 1 && part != "config" {
				listed = append(listed, part)
			}
		}
		known := literals(t, from.file, from.variable)
		known = slices.DeleteFunc(known, func(name string) bool { return name == "hooks" }) // is refused, with a word
		slices.Sort(listed)
		slices.Sort(known)
		if !slices.Equal(listed, known) {
			t.Errorf("%s: the page lists %q, the bridge knows %q", agent, listed, known)
		}
	}
}

// literals returns the elements of a list, or the keys of a map, in a file.
func literals(t *testing.T, file, variable string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != variable || len(spec.Values) != 1 {
			return true
		}
		list, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, e := range list.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Key
			}
			if lit, ok := e.(*ast.BasicLit); ok {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, s)
			}
		}
		return false
	})
	if len(out) == 0 {
		t.Fatalf("%s has no list %s", file, variable)
	}
	return out
}
