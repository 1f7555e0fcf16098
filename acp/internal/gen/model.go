package main

import (
	"fmt"
	"slices"
	"strings"
)

// class is how a definition of the schema becomes Go.
type class int

const (
	classSkip     class = iota
	classText           // a string with a name
	classEnum           // a string with a name and constants
	classNumber         // a number with a name
	classRaw            // any JSON
	classAlias          // another name of a definition
	classObject         // a struct
	classUnion          // a struct with one pointer per variant
	classVariants       // a struct of common fields and one pointer per variant
	classLists          // a choice between lists
)

// envelopes are definitions of JSON-RPC, which package acp writes by hand.
var envelopes = []string{
	"AgentRequest", "AgentResponse", "AgentNotification",
	"ClientRequest", "ClientResponse", "ClientNotification",
	"ProxyRequest", "ProxyResponse", "ProxyNotification",
	"ExtRequest", "ExtResponse", "ExtNotification",
	"RequestId", "ErrorCode",
}

// flattened are choices between objects that are more use as one struct.
var flattened = []string{"MessageMcpResponse"}

func (g *generator) classify(name string) class {
	n := g.doc.Defs.vals[name]
	alts := n.alternatives()
	switch {
	case slices.Contains(envelopes, name):
		return classSkip
	case slices.Contains(flattened, name):
		return classObject
	case len(n.Properties.keys) > 0 && n.Discriminator != nil:
		return classVariants
	case len(n.Properties.keys) > 0 || n.Type.name() == "object":
		return classObject
	case len(alts) == 0 && n.ref() != "":
		return classAlias
	case len(alts) == 0 && n.Type.name() == "string":
		return classText
	case len(alts) == 0 && n.Type.name() == "integer":
		return classNumber
	case all(alts, func(a *node) bool { return a.Type.name() == "string" }):
		return classEnum
	case all(alts, func(a *node) bool { return a.Type.name() == "array" }):
		return classLists
	case all(alts, func(a *node) bool { return a.ref() != "" || a.Type.name() == "object" }):
		return classUnion
	}
	return classRaw
}

func all(alts []*node, ok func(*node) bool) bool {
	return len(alts) > 0 && !slices.ContainsFunc(alts, func(n *node) bool { return !ok(n) })
}

// form is how a Go type is written and read.
type form int

const (
	formValue     form = iota // through Append and encoding/json
	formRaw                   // json.RawMessage
	formText                  // a string or a named string
	formGenerated             // a generated struct
	formList                  // a list of generated structs
)

// goType is the Go type of a property.
type goType struct {
	name string
	form form
	slot string // "*T" when the field is a pointer
}

// field is one member of a struct.
type field struct {
	key, name, doc string
	typ            goType
	required       bool
}

func (g *generator) defType(name string) goType {
	switch name {
	case "RequestId", "ExtRequest", "ExtResponse", "ExtNotification":
		return goType{name: "json.RawMessage", form: formRaw}
	case "ErrorCode":
		return goType{name: "int64"}
	}
	switch g.classify(name) {
	case classText, classEnum:
		return goType{name: goName(name), form: formText}
	case classNumber:
		return goType{name: goName(name)}
	case classRaw:
		return goType{name: "json.RawMessage", form: formRaw}
	case classAlias:
		return g.defType(g.doc.Defs.vals[name].ref())
	}
	return goType{name: goName(name), form: formGenerated}
}

// resolve returns the Go type of a value that is present.
func (g *generator) resolve(n *node) goType {
	if r := n.ref(); r != "" {
		return g.defType(r)
	}
	for _, a := range n.AnyOf { // a reference or null
		if a.ref() != "" && len(n.AnyOf) == 2 {
			return g.defType(a.ref())
		}
	}
	switch n.Type.name() {
	case "string":
		return goType{name: "string", form: formText}
	case "boolean":
		return goType{name: "bool"}
	case "integer":
		if n.Format != "" {
			return goType{name: n.Format}
		}
		return goType{name: "int64"}
	case "number":
		return goType{name: "float64"}
	case "array":
		item := g.resolve(n.Items)
		if item.form == formGenerated {
			return goType{name: "[]" + item.name, form: formList}
		}
		return goType{name: "[]" + item.name}
	case "object":
		if n.Additional.schema != nil {
			return goType{name: "map[string]" + g.resolve(n.Additional.schema).name}
		}
		return goType{name: "map[string]json.RawMessage"}
	}
	return goType{name: "json.RawMessage", form: formRaw}
}

// fields returns the members of the object n, with those of its alternatives.
func (g *generator) fields(n *node) ([]field, error) {
	props, required := flatten(g.doc, n)
	var out []field
	for _, key := range props.keys {
		p := props.vals[key]
		f := field{key: key, doc: p.Description, name: goName(key), typ: g.resolve(p), required: slices.Contains(required, key)}
		if key == "_meta" {
			f.name = "Meta"
			f.doc = "Extension data of either side; see the protocol's documentation of _meta."
		}
		if f.typ.name == "" {
			return nil, fmt.Errorf("property %s has no Go type", key)
		}
		f.typ.slot = f.slot(p)
		out = append(out, f)
	}
	return out, nil
}

// slot decides how the field is declared: what is optional must be able to be
// absent.
func (f *field) slot(p *node) string {
	t := f.typ.name
	zero := f.typ.form == formRaw || strings.HasPrefix(t, "[]") || strings.HasPrefix(t, "map[")
	named := f.typ.form == formText && t != "string"
	off := t == "bool" && p.Default == false
	if f.required || zero || named || off {
		return t
	}
	return "*" + t
}

func (f *field) pointer() bool { return strings.HasPrefix(f.typ.slot, "*") }

// flatten merges the properties of n, of what it includes and of its
// alternatives. A property with different types becomes any JSON. Required is
// what every alternative requires.
func flatten(doc *document, n *node) (props ordered[*node], required []string) {
	merge := func(from ordered[*node]) {
		for _, k := range from.keys {
			p := from.vals[k]
			if old := props.vals[k]; old != nil {
				p = combine(old, p)
			}
			props.set(k, p)
		}
	}
	merge(n.Properties)
	required = slices.Clone(n.Required)
	if len(n.Properties.keys) == 0 || len(n.AllOf) > 1 || n.Type.name() == "object" {
		for _, a := range n.AllOf {
			p, r := flatten(doc, doc.Defs.vals[refName(a.Ref)])
			merge(p)
			required = append(required, r...)
		}
	}
	var common []string
	for i, a := range n.alternatives() {
		p, r := flatten(doc, a)
		merge(p)
		if i == 0 {
			common = r
		} else {
			common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(r, s) })
		}
	}
	for _, s := range common {
		if !slices.Contains(required, s) {
			required = append(required, s)
		}
	}
	return props, required
}

// combine returns what a property is that two alternatives declare.
func combine(a, b *node) *node {
	if null := a.Type.name() == "" && len(a.Type) > 0; null {
		return b
	}
	null := b.Type.name() == "" && len(b.Type) > 0
	if !null && (a.Type.name() != b.Type.name() || a.ref() != b.ref() || len(a.AnyOf) != len(b.AnyOf)) {
		return &node{Description: a.Description}
	}
	c := *a
	c.Const = nil
	return &c
}

// variant is one alternative of a union.
type variant struct {
	name  string // of the Go field
	typ   string // of the Go struct
	tag   string // value of the union's tag, "" when it has none
	doc   string
	needs []string // members that tell an untagged variant
	empty bool     // the struct has no fields and must be generated
}

// variants returns the alternatives of the union and the name of its tag.
func (g *generator) variants(union string, n *node) (tag string, out []variant) {
	for _, a := range n.alternatives() {
		name, value := a.tag()
		v := variant{tag: value, doc: a.Description}
		switch ref := a.ref(); {
		case value == "" && a.Title == "other":
			continue
		case value != "":
			tag, v.name = name, goName(value)
			if ref == "" {
				v.empty = true
				v.typ = goName(union) + goName(value)
			} else {
				v.typ = goName(ref)
			}
		default:
			v.name = goName(strings.TrimPrefix(a.Title, " "))
			v.typ = goName(ref)
			_, v.needs = flatten(g.doc, g.doc.Defs.vals[ref])
		}
		out = append(out, v)
	}
	return tag, out
}
