package main

import (
	"fmt"
	"strings"
)

const rawField = `
	// Raw is the value when it is none of the variants above.
	Raw json.RawMessage ` + "`json:\"-\"`\n"

// union writes a choice between objects.
func (g *generator) union(name, id, doc string, n *node) {
	tag, variants := g.variants(name, n)
	w := &g.unions
	fmt.Fprintf(w, "%s//\n// One field is set.\ntype %s struct {\n", doc, id)
	for _, v := range variants {
		fmt.Fprintf(w, "%s\t%s *%s `json:\"-\"`\n", comment("\t", "", v.doc), v.name, v.typ)
	}
	w.WriteString(rawField + "}\n\n")

	fmt.Fprintf(w, "func (v %s) appendJSON(dst []byte) ([]byte, error) {\n\tswitch {\n", id)
	for _, v := range variants {
		call := "appendJSON(dst)"
		if v.tag != "" {
			call = fmt.Sprintf("appendTagged(dst, %q, %q)", tag, v.tag)
		}
		fmt.Fprintf(w, "\tcase v.%s != nil:\n\t\treturn v.%s.%s\n", v.name, v.name, call)
	}
	fmt.Fprintf(w, "\t}\n\treturn appendUnknown(dst, %q, v.Raw)\n}\n\n", id)

	fmt.Fprintf(w, "func (v *%s) decodeJSON(b []byte) error {\n\t*v = %s{}\n", id, id)
	if tag != "" {
		fmt.Fprintf(w, "\ttag, err := variantTag(b, %q)\n\tif err != nil {\n\t\treturn err\n\t}\n\tswitch tag {\n", tag)
		for _, v := range variants {
			if v.tag != "" {
				fmt.Fprintf(w, "\tcase %q:\n\t\tv.%s = new(%s)\n\t\treturn v.%s.decodeTagged(b, %q)\n", v.tag, v.name, v.typ, v.name, tag)
			}
		}
		fallback := false
		for _, v := range variants {
			if v.tag == "" {
				fallback = true
				fmt.Fprintf(w, "\tcase \"\", %q:\n\t\tv.%s = new(%s)\n\t\treturn v.%s.decodeJSON(b)\n", strings.ToLower(v.name), v.name, v.typ, v.name)
			}
		}
		if !fallback {
			fmt.Fprintf(w, "\tcase \"\":\n\t\treturn errMissing(%q)\n", tag)
		}
		w.WriteString("\t}\n")
	} else {
		w.WriteString("\tswitch {\n")
		for _, v := range variants {
			fmt.Fprintf(w, "\tcase hasMembers(b%s):\n\t\tv.%s = new(%s)\n\t\treturn v.%s.decodeJSON(b)\n", quoteArgs(v.needs), v.name, v.typ, v.name)
		}
		w.WriteString("\t}\n")
	}
	w.WriteString("\tv.Raw = bytes.Clone(b)\n\treturn nil\n}\n\n")
	w.WriteString(marshalers(id))
	g.empties(variants, id)
}

// empties writes the structs of variants that have no fields of their own.
func (g *generator) empties(variants []variant, union string) {
	for _, v := range variants {
		if v.empty {
			fmt.Fprintf(&g.types, "// %s is a variant of [%s] without fields.\ntype %s struct {\n%s}\n\n", v.typ, union, v.typ, extraField)
			g.objectCodec(v.typ, nil)
		}
	}
}

func quoteArgs(names []string) string {
	var out strings.Builder
	for _, s := range names {
		fmt.Fprintf(&out, ", %q", s)
	}
	return out.String()
}

// variantObject writes an object with common fields and variants beside them.
// An unknown variant is kept whole in Extra, its tag included.
func (g *generator) variantObject(name, id, doc string, n *node) error {
	tag, variants := g.variants(name, n)
	base := *n
	base.OneOf, base.AnyOf = nil, nil
	fields, err := g.fields(&base)
	if err != nil {
		return err
	}
	t := &g.types
	fmt.Fprintf(t, "%s//\n// At most one of the variants is set; an unknown variant is in Extra, %s included.\ntype %s struct {\n", doc, tag, id)
	g.declare(fields)
	for _, v := range variants {
		fmt.Fprintf(t, "%s\t%s *%s `json:\"-\"`\n", comment("\t", "", v.doc), v.name, v.typ)
	}
	t.WriteString(extraField + "}\n\n")

	w := &g.codec
	fmt.Fprintf(w, "func (v *%s) fields(w *objectWriter) {\n", id)
	writeFields(w, fields)
	w.WriteString("\tswitch {\n")
	for _, v := range variants {
		fmt.Fprintf(w, "\tcase v.%s != nil:\n\t\tw.string(%q, %q)\n\t\tv.%s.fields(w)\n\t\tw.extra(v.%s.Extra, v.%s.field)\n", v.name, tag, v.tag, v.name, v.name, v.name)
	}
	fmt.Fprintf(w, "\t}\n}\n\nfunc (v *%s) field(key string) any {\n\tswitch key {\n", id)
	readFields(w, fields)
	w.WriteString("\t}\n\tswitch {\n")
	for _, v := range variants {
		fmt.Fprintf(w, "\tcase v.%s != nil:\n\t\treturn v.%s.field(key)\n", v.name, v.name)
	}
	w.WriteString("\t}\n\treturn nil\n}\n\n")
	fmt.Fprintf(w, `func (v %[1]s) appendJSON(dst []byte) ([]byte, error) {
	w := beginObject(dst)
	v.fields(w)
	w.extra(v.Extra, v.field)
	return w.end()
}

func (v *%[1]s) decodeJSON(b []byte) error {
	*v = %[1]s{}
	tag, err := variantTag(b, %[2]q)
	if err != nil {
		return err
	}
	switch tag {
`, id, tag)
	for _, v := range variants {
		vn := g.doc.Defs.vals[variantDef(n, v.tag)]
		_, req := flatten(g.doc, vn)
		fmt.Fprintf(w, "\tcase %q:\n\t\tv.%s = new(%s)\n\t\treturn decodeObject(b, %q, &v.Extra, v.field%s%s)\n", v.tag, v.name, v.typ, tag, requiredArgs(fields), quoteArgs(req))
	}
	fmt.Fprintf(w, "\tcase \"\":\n\t\treturn errMissing(%q)\n\t}\n\treturn decodeObject(b, \"\", &v.Extra, v.field%s)\n}\n\n", tag, requiredArgs(fields))
	w.WriteString(marshalers(id))
	return nil
}

// variantDef returns the definition that the variant with the tag includes.
func variantDef(n *node, tag string) string {
	for _, a := range n.alternatives() {
		if _, value := a.tag(); value == tag {
			return a.ref()
		}
	}
	return ""
}

// lists writes a choice between lists, told apart by their first element.
func (g *generator) lists(id, doc string, n *node) {
	w := &g.unions
	fmt.Fprintf(w, "%s//\n// At most one field is set; the zero value is an empty list.\ntype %s struct {\n", doc, id)
	for _, a := range n.alternatives() {
		fmt.Fprintf(w, "%s\t%s []%s `json:\"-\"`\n", comment("\t", "", a.Description), goName(a.Title), g.resolve(a.Items).name)
	}
	w.WriteString(rawField + "}\n\n")
	fmt.Fprintf(w, "func (v %s) appendJSON(dst []byte) ([]byte, error) {\n\tswitch {\n", id)
	for _, a := range n.alternatives() {
		fmt.Fprintf(w, "\tcase v.%s != nil:\n\t\treturn appendList(dst, v.%s)\n", goName(a.Title), goName(a.Title))
	}
	w.WriteString("\tcase v.Raw != nil:\n\t\treturn appendRaw(dst, v.Raw)\n\t}\n\treturn append(dst, \"[]\"...), nil\n}\n\n")
	fmt.Fprintf(w, "func (v *%s) decodeJSON(b []byte) error {\n\t*v = %s{}\n\tfirst, isList := firstElement(b)\n\tswitch {\n\tcase isList && first == nil:\n\t\treturn nil\n\tcase !isList:\n", id, id)
	for _, a := range n.alternatives() {
		_, req := flatten(g.doc, g.doc.Defs.vals[a.Items.ref()])
		fmt.Fprintf(w, "\tcase hasMembers(first%s):\n\t\treturn decodeList(b, &v.%s)\n", quoteArgs(req), goName(a.Title))
	}
	w.WriteString("\t}\n\tv.Raw = bytes.Clone(b)\n\treturn nil\n}\n\n")
	w.WriteString(marshalers(id))
}
