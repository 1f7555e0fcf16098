// Command vet is what go vet runs in the inner loop: the analyzers of go vet and
// of staticcheck. Run by go vet, what they find of a package is kept with the
// build cache, so that only what has changed is looked at. staticcheck itself,
// which also knows what nobody uses, is a part of the linters.
package main

import (
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
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
	unitchecker.Main(all...)
}
