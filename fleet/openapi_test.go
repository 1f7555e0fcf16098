package fleet_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/control/openapi"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func TestOpenAPI_Served(t *testing.T) {
	h := startHub(t)
	want, err := os.ReadFile("openapi_gen.json")
	if err != nil {
		t.Fatal(err)
	}
	if status, got := h.ask(http.MethodGet, "/v2/openapi.json", adminToken, nil); status != http.StatusOK || !bytes.Equal(got, want) {
		t.Errorf("%d %.200s", status, got)
	}
}

// described are the operations of the document, and who may use each.
func described(t *testing.T) map[string]openapi.Access {
	t.Helper()
	b, err := os.ReadFile("openapi_gen.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Access *openapi.Access `json:"x-access"`
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]openapi.Access{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			key := strings.ToUpper(method) + " " + path
			if op.Access == nil {
				t.Fatalf("%s does not say who may use it", key)
			}
			out[key] = *op.Access
		}
	}
	return out
}

// beside are the routes that are no operations of the hub's own API: the pages before nodes, what
// nodes answer, and what hubs ask each other.
var beside = []string{
	" /", " /ui", " /ui/{rest...}", " /v2/peer/nodes/{name}/{rest...}", " /nodes/{name}", " /nodes/{name}/", " /nodes/{name}/ui", " /nodes/{name}/ui/{rest...}", " /nodes/{name}/{rest...}", " /v2/sessions/{id}/{rest...}",
}

func TestOpenAPI_RoutesBothWays(t *testing.T) {
	served := slices.Clone(beside)
	for _, r := range fleet.Routes() {
		key := r.Method + " " + r.Path
		switch {
		case slices.Contains(beside, key):
		case key == " /v2/rpc":
			served = append(served, "GET /v2/rpc", "POST /v2/rpc", "DELETE /v2/rpc")
		default:
			served = append(served, key)
		}
	}
	have := append(slices.Clone(beside), slices.Collect(maps.Keys(described(t)))...)
	slices.Sort(have)
	slices.Sort(served)
	if diff := cmp.Diff(have, served); diff != "" {
		t.Errorf("described and served routes differ (-described +served):\n%s", diff)
	}
}

func TestOpenAPI_SchemasMatchGoTypes(t *testing.T) {
	doc, err := openapi.BuildHub()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]any{
		"Node": fleet.Node{}, "SessionPage": fleet.SessionList{}, "SessionChange": fleet.SessionChange{}, "Session": fleet.Session{}, "Replica": fleet.Replica{}, "Moves": fleet.Moves{}, "MovedFrom": fleet.MovedFrom{},
		"MoveRequest": fleet.MoveRequest{}, "Moved": fleet.Moved{}, "Token": store.Token{}, "NewToken": fleet.NewToken{}, "CreatedToken": fleet.CreatedToken{},
		"Cost": runtime.Cost{}, "Use": runtime.Use{}, "Match": runtime.Match{}, "Child": runtime.Child{}, "End": runtime.EndInfo{}, "Stderr": runtime.StderrInfo{}, "MCPServer": acp.MCPServer{}, "MCPTool": acp.MCPTool{}, "Instruction": runtime.Instruction{}, "Event": runtime.Event{},
	}
	for name, v := range types {
		schema := doc.Components.Schemas[name].Value
		var fields, required []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Anonymous || !f.IsExported() {
				continue
			}
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, tag)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, tag)
			}
		}
		slices.Sort(fields)
		slices.Sort(required)
		if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
			t.Errorf("%s: fields differ (-Go +document):\n%s", name, diff)
		}
		if diff := cmp.Diff(required, schema.Required); diff != "" {
			t.Errorf("%s: required fields differ (-Go +document):\n%s", name, diff)
		}
	}
	// What is answered with a map of Go, and what the gateway's own document is compared with.
	others := []string{"Problem", "Health", "Status", "Version", "NodeList", "TokenList", "EventPage"}
	for name := range doc.Components.Schemas {
		if _, ok := types[name]; !ok && !slices.Contains(others, name) {
			t.Errorf("schema %s is compared with no Go type", name)
		}
	}
}

// Every operation of the hub refuses what is not understood of its query. What is for a node passes.
func TestQueries_Refused(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("s1", begun, said(1, "one"))
	n := h.join("box", h.joinToken(), nil, g)
	h.copied("s1", 1)
	n.leave() // what its node could answer, too, the hub answers
	h.awaitState("box", fleet.StateOffline)
	b, err := os.ReadFile("openapi_gen.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			if strings.Contains(path, "{name}") || strings.HasPrefix(path, "/v2/join") {
				continue // a node that is not there, and a token of another kind, are told first
			}
			at := strings.ReplaceAll(path, "{id}", "s1")
			if status, body := h.ask(strings.ToUpper(method), at+"?a=%zz", adminToken, nil); status != http.StatusBadRequest || !bytes.Contains(body, []byte("the query cannot be read")) {
				t.Errorf("%s %s: %d %s", method, at, status, body)
			}
			if status, body := h.ask(strings.ToUpper(method), at+"?lmit=1", adminToken, nil); !slices.Contains([]string{"/v2/rpc", "/v2/health", "/v2/ready", "/metrics"}, path) && (status != http.StatusBadRequest || !bytes.Contains(body, []byte("lmit"))) {
				t.Errorf("%s %s: %d %s", method, at, status, body)
			}
		}
	}
	if status, body := h.ask(http.MethodGet, "/v2/sessions?limit=1&limit=2", adminToken, nil); status != http.StatusBadRequest || !bytes.Contains(body, []byte("more than once")) {
		t.Errorf("%d %s", status, body)
	}
}
