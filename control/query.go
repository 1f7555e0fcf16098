package control

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Queries knows from an OpenAPI document which parameters its operations take in their queries. The document is
// read when a query is to be checked.
type Queries struct {
	operations func() map[string]parameters // by the path and the method, as "/v2/x GET"
}

// parameters says of each parameter whether it may be repeated.
type parameters map[string]bool

// forOthers are paths that people write down for other programs, which have their own in the query: the endpoint of
// the agent protocol behind a proxy, and what probes and collectors ask.
var forOthers = []string{"/v2/rpc", "/v2/health", "/v2/ready", "/metrics"}

// NewQueries returns the Queries of a document.
func NewQueries(document []byte) *Queries {
	return &Queries{sync.OnceValue(func() map[string]parameters { return parametersIn(document) })}
}

func parametersIn(document []byte) map[string]parameters {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				In, Name string
				Schema   struct{ Type string }
			}
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		panic(err) // it is a part of the program
	}
	out := map[string]parameters{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			known := parameters{}
			for _, p := range op.Parameters {
				if p.In == "query" {
					known[p.Name] = p.Schema.Type == "array"
				}
			}
			out[path+" "+strings.ToUpper(method)] = known
		}
	}
	return out
}

// Check returns the problem of a query that cannot be read as a whole: one that is not written correctly, a
// parameter that the operation does not have, and one that stands there again and has one value. Path is that of the
// document. What the document does not describe has any query.
//
// Of what others are given the address of, other parameters than its own are left alone; see forOthers.
func (q *Queries) Check(r *http.Request, path string) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	known, described := q.operations()[path+" "+method]
	if !described {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "the query cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		repeated, ok := known[name]
		switch {
		case !ok && !slices.Contains(forOthers, path):
			return problem.New(problem.InvalidRequest, "%s %s has no query parameter %q; /v2/openapi.json lists what there is", method, path, name).With("parameter", name)
		case ok && !repeated && len(values[name]) > 1:
			return problem.New(problem.InvalidRequest, "%s is given more than once", name).With("parameter", name)
		}
	}
	return nil
}
