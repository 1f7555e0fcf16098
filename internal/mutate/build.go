package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

//go:embed switches.go.txt
var switches []byte

// listed is what go list says about a package.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	Module                        *struct{ Dir string }
}

// built is a package whose test binary has all points in it.
type built struct {
	path   string // of the package
	from   listed // the package whose tests are run
	binary string
	points []point
	work   string // folder for everything else, removed by who built
}

// build makes a test binary with all points of a package behind switches: that of the
// package itself, or of the one that tests names.
func build(ctx context.Context, pattern, tests string) (*built, error) {
	pkg, exports, err := list(ctx, pattern)
	if err != nil {
		return nil, err
	}
	of := pkg
	if tests != "" {
		if of, _, err = list(ctx, tests); err != nil {
			return nil, err
		}
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &built{path: pkg.ImportPath, from: *of, binary: filepath.Join(work, "test"), work: work}
	// A point that cannot be behind a switch is left out: the compiler says which.
	without := map[string]bool{}
	for range 20 {
		b.points, err = overlay(pkg, exports, work, without)
		if err != nil {
			break
		}
		var failed *compileError
		if err = compile(ctx, b, work); !errors.As(err, &failed) {
			break
		}
		before := len(without)
		for _, line := range failed.lines {
			without[line] = true
		}
		if len(without) == before {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(work)
		return nil, err
	}
	return b, nil
}

// list finds a package and the compiled packages that it imports.
func list(ctx context.Context, pattern string) (*listed, map[string]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-json=ImportPath,Name,Dir,Export,GoFiles,Module", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", pattern, err)
	}
	exports := map[string]string{}
	var last *listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		exports[p.ImportPath] = p.Export
		last = p // the package comes behind what it imports
	}
	if last == nil || last.Module == nil {
		return nil, nil, fmt.Errorf("%s is no package of this module", pattern)
	}
	return last, exports, nil
}

// overlay writes the changed files, and what tells the go command of them.
func overlay(pkg *listed, exports map[string]string, work string, without map[string]bool) ([]point, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	var sources []*source
	for _, name := range pkg.GoFiles {
		path := filepath.Join(pkg.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		files = append(files, parsed)
		if ast.IsGenerated(parsed) {
			continue
		}
		rel, err := filepath.Rel(pkg.Module.Dir, path)
		if err != nil {
			return nil, fmt.Errorf("find %s in its module: %w", name, err)
		}
		sources = append(sources, &source{path: path, name: filepath.ToSlash(rel), text: text, ast: parsed})
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}).Check(pkg.ImportPath, fset, files, info)
	if err != nil {
		return nil, fmt.Errorf("type-check %s: %w", pkg.ImportPath, err)
	}
	f := &finder{fset: fset, info: info, pkg: checked, without: without}
	replace := map[string]string{}
	write := func(of, name string, text []byte) error {
		path := filepath.Join(work, name)
		replace[of] = path
		return os.WriteFile(path, text, 0o600)
	}
	for _, src := range sources {
		if err := write(src.path, filepath.Base(src.path), f.rewrite(src)); err != nil {
			return nil, fmt.Errorf("write the changed %s: %w", src.name, err)
		}
	}
	text := bytes.Replace(switches, []byte("PACKAGE"), []byte(pkg.Name), 1)
	if err := write(filepath.Join(pkg.Dir, "zz_mutate.go"), "zz_mutate.go", text); err != nil {
		return nil, fmt.Errorf("write the switches: %w", err)
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, fmt.Errorf("encode the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(work, "overlay.json"), raw, 0o600); err != nil {
		return nil, fmt.Errorf("write the overlay: %w", err)
	}
	return f.points, nil
}

// compileError is what the compiler does not accept.
type compileError struct {
	lines  []string // FILE:LINE
	output []byte
}

func (e *compileError) Error() string { return fmt.Sprintf("build the tests:\n%s", e.output) }

var errorAt = regexp.MustCompile(`(?m)^(?:vet: )?(\S+\.go):(\d+):`)

func compile(ctx context.Context, b *built, work string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", filepath.Join(work, "overlay.json"), "-o", b.binary, b.from.ImportPath)
	cmd.Dir = b.from.Dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	failed := &compileError{output: out}
	for _, m := range errorAt.FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(m[2]))
		failed.lines = append(failed.lines, lineOf(string(m[1]), line))
	}
	return failed
}

// lineOf names a line of the package.
func lineOf(path string, line int) string { return filepath.Base(path) + ":" + strconv.Itoa(line) }
