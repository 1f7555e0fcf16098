package main

import (
	"fmt"
	"slices"
	"strings"
)

// method is what the definitions with one x-method say about it.
type method struct {
	side, kind       string
	scoped, unstable bool
}

// methods writes the table of methods. The side and the kind of a method come
// from its params definitions; a result definition has neither.
func (g *generator) methods() string {
	table := make(map[string]*method)
	inStable := make(map[string]bool)
	for _, n := range g.stable.Defs.vals {
		inStable[n.Method] = true
	}
	for _, name := range slices.Sorted(slices.Values(g.doc.Defs.keys)) {
		n := g.doc.Defs.vals[name]
		if n.Method == "" || strings.HasSuffix(name, "Response") {
			continue
		}
		m := table[n.Method]
		if m == nil {
			m = &method{unstable: !inStable[n.Method]}
			table[n.Method] = m
		}
		side := map[string]string{"agent": "SideAgent", "client": "SideClient", "protocol": "SideBoth", "proxy": "SideProxy"}[n.Side]
		if m.side != "" && m.side != side {
			side = "SideBoth"
		}
		m.side = side
		kind := "KindRequest"
		if strings.HasSuffix(name, "Notification") {
			kind = "KindNotification"
		}
		if m.kind != "" && m.kind != kind {
			kind = "KindRequest | KindNotification"
		}
		m.kind = kind
		props, _ := flatten(g.doc, n)
		if props.vals["sessionId"] != nil {
			m.scoped = true
		}
	}
	var out strings.Builder
	out.WriteString("var methods = map[string]MethodInfo{\n")
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m := table[name]
		fmt.Fprintf(&out, "\t%q: {Name: %q, Side: %s, Kind: %s", name, name, m.side, m.kind)
		if m.scoped {
			out.WriteString(", Scoped: true")
		}
		if m.unstable {
			out.WriteString(", Unstable: true")
		}
		out.WriteString("},\n")
	}
	out.WriteString("}\n\n// The methods of the protocol.\nconst (\n")
	for _, name := range names {
		fmt.Fprintf(&out, "\tMethod%s = %q\n", goName(name), name)
	}
	out.WriteString(")\n")
	return out.String()
}
