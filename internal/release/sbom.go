package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The parts of CycloneDX 1.6 that are used. There is neither a serial number nor a
// time in it: the same program has the same list.
type (
	bom struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	license struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// describe lists what is in a program: the modules that the linker recorded in it,
// the standard library, and the packages in the page.
func describe(program, name string, p platform, version string, packages []npmPackage) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what is in %s: %w", p.file(name), err)
	}
	sum, err := checksum(program)
	if err != nil {
		return nil, err
	}
	self := component{
		Type: "application", Name: name, Version: version, PURL: "pkg:golang/" + info.Main.Path + "@" + version + "#cmd/" + name,
		Hashes: []hash{{"SHA-256", sum}}, Licenses: []license{{"Apache-2.0"}},
		Properties: []property{{"sandboxagent.dev:platform", p.String()}},
	}
	self.Ref = self.PURL
	std := strings.TrimPrefix(info.GoVersion, "go")
	parts := []component{library("std", std, "pkg:golang/std@"+std)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := library(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
		if m.Sum != "" {
			c.Properties = []property{{"sandboxagent.dev:go.sum", m.Sum}}
		}
		parts = append(parts, c)
	}
	for _, n := range packages {
		c := library(n.Name, n.Version, "pkg:npm/"+strings.Replace(n.Name, "@", "%40", 1)+"@"+n.Version)
		if n.License == "" {
			n.License = unnamed[n.Name]
		}
		if n.License != "" {
			c.Licenses = []license{{n.License}}
		}
		if n.SHA512 != "" {
			c.Hashes = []hash{{"SHA-512", n.SHA512}}
		}
		parts = append(parts, c)
	}
	slices.SortFunc(parts, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	parts = slices.CompactFunc(parts, func(a, b component) bool { return a.Ref == b.Ref })
	on := dependency{Ref: self.Ref}
	for _, c := range parts {
		on.DependsOn = append(on.DependsOn, c.Ref)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: metadata{self}, Components: parts, Dependencies: []dependency{on},
	}); err != nil {
		return nil, fmt.Errorf("encode the list of parts: %w", err)
	}
	return b.Bytes(), nil
}

// unnamed are licenses of packages whose manifest names none, by what their license file says.
var unnamed = map[string]string{"khroma": "MIT"}

func library(name, version, purl string) component {
	return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
}
