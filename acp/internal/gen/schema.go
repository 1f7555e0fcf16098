package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// node is one JSON Schema, as far as ACP uses the language.
type node struct {
	Ref           string         `json:"$ref"`
	Type          typeNames      `json:"type"`
	Const         any            `json:"const"`
	Title         string         `json:"title"`
	Description   string         `json:"description"`
	Format        string         `json:"format"`
	Properties    ordered[*node] `json:"properties"`
	Required      []string       `json:"required"`
	OneOf         []*node        `json:"oneOf"`
	AnyOf         []*node        `json:"anyOf"`
	AllOf         []*node        `json:"allOf"`
	Items         *node          `json:"items"`
	Additional    additional     `json:"additionalProperties"`
	Default       any            `json:"default"`
	Discriminator *struct {
		PropertyName string `json:"propertyName"`
	} `json:"discriminator"`
	Method string `json:"x-method"`
	Side   string `json:"x-side"`
}

// document is a schema file.
type document struct {
	Defs ordered[*node] `json:"$defs"`
}

func parseDocument(b []byte) (*document, error) {
	d := new(document)
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	if len(d.Defs.keys) == 0 {
		return nil, fmt.Errorf("parse schema: no $defs")
	}
	return d, nil
}

// alternatives returns the branches of a union, nil when n is none.
func (n *node) alternatives() []*node {
	if len(n.OneOf) > 0 {
		return n.OneOf
	}
	return n.AnyOf
}

// ref returns the name n refers to, directly or through a single allOf.
func (n *node) ref() string {
	if n.Ref != "" {
		return refName(n.Ref)
	}
	if len(n.AllOf) == 1 && n.AllOf[0].Ref != "" {
		return refName(n.AllOf[0].Ref)
	}
	return ""
}

// tag returns the member and the value that mark n as a variant of a union.
func (n *node) tag() (name, value string) {
	for _, k := range n.Properties.keys {
		if s, ok := n.Properties.vals[k].Const.(string); ok && slices.Contains(n.Required, k) {
			return k, s
		}
	}
	return "", ""
}

func refName(ref string) string { return ref[len("#/$defs/"):] }

// typeNames is the "type" keyword: one name or several.
type typeNames []string

func (t *typeNames) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*t = make(typeNames, 1)
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// name returns the one type that is not null, "" when there is none.
func (t typeNames) name() string {
	for _, s := range t {
		if s != "null" {
			return s
		}
	}
	return ""
}

// additional is the "additionalProperties" keyword.
type additional struct {
	allowed bool
	schema  *node
}

func (a *additional) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		a.allowed = true
		return json.Unmarshal(b, &a.schema)
	}
	return json.Unmarshal(b, &a.allowed)
}

// ordered is a JSON object that keeps the order of its members.
type ordered[T any] struct {
	keys []string
	vals map[string]T
}

func (o *ordered[T]) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil {
		return err
	}
	o.vals = make(map[string]T)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		key := t.(string)
		o.keys = append(o.keys, key)
		o.vals[key] = v
	}
	return nil
}

func (o *ordered[T]) set(key string, v T) {
	if o.vals == nil {
		o.vals = make(map[string]T)
	}
	if _, ok := o.vals[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
}
