package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Files answers extension methods about files, which belong to a service beside
// the agents. Its methods are safe for concurrent use.
type Files interface {
	// Methods lists the methods, in alphabetical order.
	Methods() []string
	// Call carries out one. cwd is the directory of the session that params
	// name, "" for none. What it returns is encoded as the result; its errors
	// are problems. params are valid until it returns.
	Call(ctx context.Context, method, cwd string, params json.RawMessage) (any, error)
}

// answersFiles reports whether a method is one of Options.Files.
func (r *Runtime) answersFiles(method string) bool {
	return r.o.Files != nil && slices.Contains(r.o.Files.Methods(), method)
}

// files answers a method of Options.Files.
func (c *Client) files(q *viewer.Request, m *acp.Message) {
	cwd := ""
	if m.HasSession() {
		s := c.sessionOf(q, m)
		if s == nil {
			return
		}
		cwd = s.About().Cwd
	}
	own := m.Clone()
	c.r.tasks.Go(func() {
		result, err := c.r.o.Files.Call(c.r.ctx, q.Method(), cwd, own.Params())
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.NotFound {
			err = acp.Errorf(acp.CodeResourceNotFound, "%s", p.Error()).WithData(p)
		}
		if err != nil {
			q.Fail(nil, err)
			return
		}
		q.Encode(nil, result)
	})
}
