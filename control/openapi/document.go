// Package openapi describes the HTTP API of package control, and that of a hub, as
// OpenAPI documents. It is used when the document is generated and tested; what the
// server serves is the generated file, because the libraries behind this
// package take longer to load than the whole server takes to start.
package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// apiVersion is the version of the API, not of the program.
const apiVersion = "2.0.0"

// Build returns the document.
func Build() (*openapi3.T, error) { return checked(document()) }

// checked returns a document whose references were found.
func checked(doc *openapi3.T) (*openapi3.T, error) {
	if err := openapi3.NewLoader().ResolveRefsIn(doc, nil); err != nil {
		return nil, fmt.Errorf("build openapi document: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("build openapi document: %w", err)
	}
	return doc, nil
}

// JSON returns the document as it is published.
func JSON() ([]byte, error) { return encoded(Build()) }

func encoded(doc *openapi3.T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode openapi document: %w", err)
	}
	return append(b, '\n'), nil
}

// operation is one row of the document.
type operation struct {
	method, path string
	id, summary  string
	description  string
	params       []*openapi3.Parameter
	body         *openapi3.RequestBody
	responses    map[int]*openapi3.Response
	problems     []problem.Kind
	open         bool    // needs no token
	access       *Access // of an operation of a hub
}

func document() *openapi3.T {
	doc := &openapi3.T{
		OpenAPI: "3.0.3",
		Info: &openapi3.Info{
			Title:       "Sandbox Agent",
			Version:     apiVersion,
			Description: "The HTTP API of Sandbox Agent. Sessions speak the Agent Client Protocol at /v2/rpc; everything else reads and manages what those sessions left behind. Every error is an application/problem+json document.",
		},
		Paths: openapi3.NewPaths(),
		Components: &openapi3.Components{
			Schemas: schemas(),
			SecuritySchemes: openapi3.SecuritySchemes{
				"bearer": {Value: openapi3.NewSecurityScheme().WithType("http").WithScheme("bearer").
					WithDescription("The server's token. Servers on the loopback interface may run without.")},
				"header": {Value: openapi3.NewSecurityScheme().WithType("apiKey").WithIn("header").WithName("x-sandbox-token").
					WithDescription("The same token, for clients that cannot set Authorization.")},
			},
		},
		Security: openapi3.SecurityRequirements{{"bearer": {}}, {"header": {}}, {}},
		Tags:     openapi3.Tags{{Name: "acp"}, {Name: "server"}, {Name: "agents"}, {Name: "sessions"}, {Name: "files"}, {Name: "processes"}},
	}
	for tag, ops := range operations() {
		for _, op := range ops {
			doc.AddOperation(op.path, op.method, op.build(tag))
		}
	}
	return doc
}

func (op operation) build(tag string) *openapi3.Operation {
	o := &openapi3.Operation{
		Tags: []string{tag}, OperationID: op.id, Summary: op.summary, Description: op.description,
		Responses: openapi3.NewResponsesWithCapacity(len(op.responses) + len(op.problems)),
	}
	for _, p := range op.params {
		o.AddParameter(p)
	}
	if op.access != nil {
		o.Extensions = map[string]any{AccessExtension: op.access}
	}
	if op.body != nil {
		o.RequestBody = &openapi3.RequestBodyRef{Value: op.body}
	}
	for status, r := range op.responses {
		o.AddResponse(status, r)
	}
	problems := append([]problem.Kind{problem.PermissionDenied, problem.Internal}, op.problems...)
	if !slices.Contains(problems, problem.InvalidRequest) {
		problems = append(problems, problem.InvalidRequest) // of any query that an operation does not have
	}
	if op.open {
		o.Security = openapi3.NewSecurityRequirements()
	} else {
		problems = append(problems, problem.TokenInvalid)
	}
	kinds := map[int]string{}
	for _, k := range problems {
		if kinds[k.Status()] != "" {
			kinds[k.Status()] += ", "
		}
		kinds[k.Status()] += "`" + string(k) + "`"
	}
	for status, names := range kinds {
		o.AddResponse(status, openapi3.NewResponse().WithDescription(names).
			WithContent(openapi3.NewContentWithSchemaRef(ref("Problem"), []string{problem.ContentType})))
	}
	return o
}

func ref(name string) *openapi3.SchemaRef {
	return openapi3.NewSchemaRef("#/components/schemas/"+name, nil)
}

func jsonResponse(description, schema string) *openapi3.Response {
	return openapi3.NewResponse().WithDescription(description).WithJSONSchemaRef(ref(schema))
}

func one(status int, r *openapi3.Response) map[int]*openapi3.Response {
	return map[int]*openapi3.Response{status: r}
}

func query(name, description string, schema *openapi3.Schema) *openapi3.Parameter {
	return openapi3.NewQueryParameter(name).WithDescription(description).WithSchema(schema)
}

func header(name, description string) *openapi3.Parameter {
	return openapi3.NewHeaderParameter(name).WithDescription(description).WithSchema(openapi3.NewStringSchema())
}

func inPath(name, description string) *openapi3.Parameter {
	return openapi3.NewPathParameter(name).WithDescription(description).WithSchema(openapi3.NewStringSchema())
}

func pageSize() *openapi3.Parameter {
	return query("limit", "The most entries to return.",
		openapi3.NewIntegerSchema().WithMin(1).WithMax(1000).WithDefault(100))
}
