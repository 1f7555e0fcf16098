package sandboxagent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tests run on one system. For the others of a release all code, that of tests too, is
// type-checked, from its sources: to compile it takes ten times as long.
func TestSystems_Compile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	for system, of := range map[string][]string{
		"darwin":  {"arm64", "-test", "./..."},
		"windows": {"amd64", "-test", "./..."},
	} {
		if err := checkTypes(t, system, of[0], of[1:]...); err != nil {
			t.Errorf("%s: %v", system, err)
		}
	}
}

// What is missing on another system is noticed.
func TestSystems_MissingIsNoticed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module p\n\ngo 1.26\n",
		"p.go":        "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(here()) }\n",
		"p_darwin.go": "package main\n\nfunc here() string { return \"\" }\n",
		"p_linux.go":  "package main\n\nfunc here() int { return 0 }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if err := checkTypes(t, "linux", "amd64", "."); err != nil {
		t.Error(err)
	}
	if err := checkTypes(t, "darwin", "arm64", "."); err == nil || !strings.Contains(err.Error(), "here()") {
		t.Errorf("%v, want what is wrong with here()", err)
	}
}

// checkTypes type-checks what go list names for a system. The bodies of functions count in
// this module alone.
func checkTypes(t *testing.T, system, processor string, what ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard,Module"}, what...)...)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	var wrong []error
	for dec := json.NewDecoder(bytes.NewReader(out)); ; { // what is imported comes first
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Standard        bool
			Module          *struct{ Main bool }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return errors.Join(wrong...)
		} else if err != nil {
			return err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // which go generates
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		ours := p.Module != nil && p.Module.Main
		config := types.Config{
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if real := p.ImportMap[path]; real != "" {
					path = real
				}
				if checked[path] == nil {
					return nil, fmt.Errorf("%s is not known", path)
				}
				return checked[path], nil
			}),
			IgnoreFuncBodies: !ours,
			Sizes:            types.SizesFor("gc", processor),
			Error: func(err error) {
				if ours { // the standard library knows things that the checker is not told
					wrong = append(wrong, err)
				}
			},
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, fset, files, nil)
	}
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
