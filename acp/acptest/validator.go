package acptest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Validator checks frames against the schema, drafts included. It is safe for
// concurrent use.
type Validator struct {
	agent, client side
	failure       *jsonschema.Schema // of an error member
}

// side is what one side of the protocol implements.
type side struct {
	requests      map[string]*jsonschema.Schema // params by method
	notifications map[string]*jsonschema.Schema
	results       map[string]*jsonschema.Schema
}

// compiled are the validators by version, each compiled once per process.
var compiled = map[int]func() (*Validator, error){
	1: sync.OnceValues(func() (*Validator, error) { return compile(schema.Unstable) }),
	2: sync.OnceValues(func() (*Validator, error) { return compile(schema.Two) }),
}

// New returns the validator of version 1.
func New(t testing.TB) *Validator {
	t.Helper()
	return NewFor(t, 1)
}

// NewFor returns the validator of a version of the protocol.
func NewFor(t testing.TB, version int) *Validator {
	t.Helper()
	v, err := compiled[version]()
	if err != nil {
		t.Fatalf("compile the ACP schema: %v", err)
	}
	return v
}

func compile(source []byte) (*Validator, error) {
	const url = "acp:///schema.json"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	v := &Validator{agent: newSide(), client: newSide()}
	defs := doc.(map[string]any)["$defs"].(map[string]any)
	for name, def := range defs {
		def := def.(map[string]any)
		method, _ := def["x-method"].(string)
		if method == "" && name != "Error" {
			continue
		}
		s, err := c.Compile(url + "#/$defs/" + name)
		if err != nil {
			return nil, err
		}
		switch def["x-side"] {
		case "agent":
			v.agent.add(name, method, s)
		case "client":
			v.client.add(name, method, s)
		case "protocol":
			v.agent.add(name, method, s)
			v.client.add(name, method, s)
		}
		if name == "Error" {
			v.failure = s
		}
	}
	return v, nil
}

func newSide() side {
	return side{map[string]*jsonschema.Schema{}, map[string]*jsonschema.Schema{}, map[string]*jsonschema.Schema{}}
}

func (s side) add(def, method string, compiled *jsonschema.Schema) {
	switch {
	case strings.HasSuffix(def, "Response"):
		s.results[method] = compiled
	case strings.HasSuffix(def, "Notification"):
		s.notifications[method] = compiled
	default:
		s.requests[method] = compiled
	}
}

// ValidateFrame checks a frame that an agent or gateway sends to a client.
// methodOf returns the method of the client's request with the given id, its
// raw JSON text, and "" when there is none.
func (v *Validator) ValidateFrame(frame []byte, methodOf func(id string) string) error {
	return v.validate(frame, v.client, v.agent, methodOf)
}

// ValidateClientFrame checks a frame that a client sends. methodOf returns the
// method of the agent's or gateway's request with the given id.
func (v *Validator) ValidateClientFrame(frame []byte, methodOf func(id string) string) error {
	return v.validate(frame, v.agent, v.client, methodOf)
}

// validate checks a frame that calls the callee or answers for the answerer.
func (v *Validator) validate(frame []byte, callee, answerer side, methodOf func(id string) string) error {
	m, err := acp.Parse(bytes.Clone(frame))
	if err != nil {
		return fmt.Errorf("envelope: %w", err)
	}
	if bytes.ContainsAny(frame, "\r\n") {
		return errors.New("envelope: the frame is not one line")
	}
	if id := m.ID(); !id.IsNull() && id[0] != '"' {
		if _, ok := id.Int(); !ok {
			return fmt.Errorf("envelope: the id %s is not an integer", id)
		}
	}
	if err := members(frame, &m); err != nil {
		return err
	}
	if m.IsResponse() {
		return v.validateResponse(&m, answerer, methodOf)
	}
	method := m.Method()
	kind, table := "request", callee.requests
	if m.IsNotification() {
		kind, table = "notification", callee.notifications
	}
	s := table[method]
	switch {
	case strings.HasPrefix(method, "_"):
		return nil
	case s == nil:
		return fmt.Errorf("%s: this side has no such %s", method, kind)
	}
	return check(s, m.Params(), method+" params")
}

func (v *Validator) validateResponse(m *acp.Message, answerer side, methodOf func(id string) string) error {
	id := m.ID()
	if raw := m.ErrorRaw(); raw != nil {
		if id != acp.NullID && methodOf(string(id)) == "" {
			return fmt.Errorf("error response: no request %s is open", id)
		}
		return check(v.failure, raw, "error")
	}
	method := methodOf(string(id))
	s := answerer.results[method]
	switch {
	case method == "":
		return fmt.Errorf("response: no request %s is open", id)
	case strings.HasPrefix(method, "_"):
		return nil
	case s == nil:
		return fmt.Errorf("response: the schema knows no result of %s", method)
	}
	return check(s, m.Result(), method+" result")
}

// members refuses members of the envelope that JSON-RPC does not know.
func members(frame []byte, m *acp.Message) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return fmt.Errorf("envelope: %w", err)
	}
	known := []string{"jsonrpc", "id", "method", "params"}
	if m.IsResponse() {
		known = []string{"jsonrpc", "id", "result", "error"}
	}
	object := v.(map[string]any)
	for _, k := range known {
		delete(object, k)
	}
	for k := range object {
		return fmt.Errorf("envelope: unexpected member %s", k)
	}
	return nil
}

func check(s *jsonschema.Schema, raw []byte, what string) error {
	if raw == nil {
		raw = []byte("{}")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = s.Validate(v)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return fmt.Errorf("%s: %s", what, explain(invalid))
	}
	return err
}
