package acptest

import (
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxReasons bounds what an error lists.
const maxReasons = 4

// explain lists the paths that failed. Where the schema is a union, the
// variants with another tag are left out.
func explain(e *jsonschema.ValidationError) string {
	var out []string
	printer := message.NewPrinter(language.English)
	for _, leaf := range leaves(e) {
		s := "/" + strings.Join(leaf.InstanceLocation, "/") + ": " + leaf.ErrorKind.LocalizedString(printer)
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) > maxReasons {
		out = append(out[:maxReasons], "...")
	}
	return strings.Join(out, "; ")
}

func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	causes := e.Causes
	if len(causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	switch e.ErrorKind.(type) {
	case *kind.OneOf, *kind.AnyOf:
		tagged := slices.DeleteFunc(slices.Clone(causes), func(c *jsonschema.ValidationError) bool { return otherTag(c) })
		if len(tagged) > 0 {
			causes = tagged
		}
	}
	var out []*jsonschema.ValidationError
	for _, c := range causes {
		out = append(out, leaves(c)...)
	}
	return out
}

// otherTag reports whether a variant failed by the constant of its tag.
func otherTag(e *jsonschema.ValidationError) bool {
	switch e.ErrorKind.(type) {
	case *kind.Const, *kind.Not:
		return true
	case *kind.OneOf, *kind.AnyOf:
		return false
	}
	return slices.ContainsFunc(e.Causes, otherTag)
}
