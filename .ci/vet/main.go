// Command vet is what go vet runs: the analyzers of go vet and of staticcheck, and
// errcheck. Run by go vet, what they find of a package is kept with the build
// cache, also for another clone, so that only what has changed is looked at.
package main

import (
	_ "embed"
	"go/token"
	"slices"
	"strings"

	"github.com/kisielk/errcheck/errcheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/generated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	all := append([]*analysis.Analyzer{}, vet.Suite...)
	for _, of := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers} {
		for _, a := range of {
			if !a.Doc.NonDefault {
				all = append(all, a.Analyzer)
			}
		}
	}
	unitchecker.Main(append(all, nobodyUses, nobodyChecks)...)
}

// nobodyUses reports what staticcheck calls unused. go vet looks at a package
// together with its tests, so what only these use counts as used.
var nobodyUses = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "what nobody uses",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, o := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			report(pass, o.Position, o.Kind+" "+o.Name+" is unused (U1000)")
		}
		return nil, nil
	},
}

// excluded are the functions whose errors need not be looked at, one in each line.
//
//go:embed errcheck.txt
var excluded string

// nobodyChecks reports errors that are dropped without a word, except in tests and
// in what was generated.
var nobodyChecks = &analysis.Analyzer{
	Name:     "unchecked",
	Doc:      "errors that nobody looks at",
	Requires: []*analysis.Analyzer{errcheck.Analyzer, generated.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		names := strings.Fields(excluded)
		made := pass.ResultOf[generated.Analyzer].(map[string]generated.Generator)
		for _, e := range pass.ResultOf[errcheck.Analyzer].(errcheck.Result).UncheckedErrors {
			_, ofGenerator := made[e.Pos.Filename]
			if ofGenerator || strings.HasSuffix(e.Pos.Filename, "_test.go") || slices.Contains(names, e.FuncName) {
				continue
			}
			report(pass, e.Pos, "the error of "+e.FuncName+" is dropped")
		}
		return nil, nil
	},
}

func report(pass *analysis.Pass, at token.Position, message string) {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.FileStart); file.Name() == at.Filename {
			pass.Reportf(file.Pos(at.Offset), "%s", message)
		}
	}
}
