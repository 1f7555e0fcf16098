package sandboxagent_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A pattern is compiled when it is used first. That it can be is known here, and not then.
func TestPatterns_Compile(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "New" {
				return true
			}
			if of, ok := f.X.(*ast.Ident); !ok || of.Name != "pattern" {
				return true
			}
			found++
			text, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the expression of a pattern must stand where it is made", files.Position(call.Pos()))
				return true
			}
			expr, err := strconv.Unquote(text.Value)
			if err == nil {
				_, err = regexp.Compile(expr)
			}
			if err != nil {
				t.Errorf("%s: %v", files.Position(call.Pos()), err)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 30 {
		t.Errorf("%d patterns were found", found)
	}
}

// What a bridge asks of its agent's program has a bound that says so to people: clients are shown the error.
func TestBridges_BoundsSpeak(t *testing.T) {
	for _, name := range []string{"amp", "claude", "codex", "opencode", "pi"} {
		files, err := filepath.Glob(filepath.Join("adapters", name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// The delegate is a program of its own, which Amp starts.
			if strings.Contains(string(b), "context.WithTimeout(") && !strings.HasSuffix(file, "_test.go") && filepath.Base(file) != "delegate.go" {
				t.Errorf("%s: use bridge.Within for what the program is asked", file)
			}
		}
	}
}
