package adaptertest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// ask is a permission request that waits for an answer.
type ask struct {
	*turn
	request acp.ID
	params  schema.RequestPermissionRequest
}

// asks starts a turn and waits until it asks for a permission.
func (s *suite) asks(t testing.TB) *ask {
	t.Helper()
	c, id := s.ready(t)
	return s.asked(c.begin(id, s.Prompts.Ask.Text))
}

// asked waits until a turn asks for a permission.
func (s *suite) asked(p *turn) *ask {
	c, id := p.c, p.session
	c.t.Helper()
	_, m := c.await(p.from, "a request for a permission", func(m *acp.Message) bool {
		return m.IsRequest() && m.Method() == acp.MethodSessionRequestPermission
	})
	a := &ask{turn: p, request: m.ID()}
	if err := json.Unmarshal(m.Params(), &a.params); err != nil {
		c.fatalf("the request for a permission: %v", err)
	}
	if a.params.SessionID != id {
		c.fatalf("session %s asks for a permission, want %s", a.params.SessionID, id)
	}
	return a
}

// choose answers with an option whose kind begins with kind, for once if there
// is one: an agent may remember the others for later sessions.
func (a *ask) choose(kind string) {
	a.c.t.Helper()
	once := func(o schema.PermissionOption) bool { return string(o.Kind) == kind+"_once" }
	any := !slices.ContainsFunc(a.params.Options, once)
	for _, o := range a.params.Options {
		if once(o) || any && strings.HasPrefix(string(o.Kind), kind) {
			a.answer(schema.RequestPermissionOutcome{Selected: &schema.SelectedPermissionOutcome{OptionID: o.OptionID}})
			return
		}
	}
	a.c.fatalf("no option of the permission would %s", kind)
}

func (a *ask) answer(o schema.RequestPermissionOutcome) {
	a.c.t.Helper()
	a.c.write(acp.NewResult(a.request, a.c.encode(&schema.RequestPermissionResponse{Outcome: o})))
}

// status returns how the tool call ended that was asked about, "" when the
// agent never announced it.
func (a *ask) status() schema.ToolCallStatus {
	a.c.t.Helper()
	return a.toolCalls()[a.params.ToolCall.ToolCallID]
}

// permissionAllow: what is allowed is done.
func (s *suite) permissionAllow(t testing.TB) {
	a := s.asks(t)
	a.choose("allow")
	if a.end(); a.stop != schema.StopReasonEndTurn {
		a.c.fatalf("the turn ended with %s, want %s", a.stop, schema.StopReasonEndTurn)
	}
	a.says(s.Prompts.Ask.Says)
	if got := a.status(); got != schema.ToolCallStatusCompleted {
		a.c.fatalf("the allowed tool call is %q, want %s", got, schema.ToolCallStatusCompleted)
	}
	s.grants(a)
}

// grants: what was allowed once is none of what is listed as always allowed.
func (s *suite) grants(a *ask) {
	a.c.t.Helper()
	g, lists := s.Adapter.(adapters.Granter)
	if !lists {
		return
	}
	o := s.Options
	o.StateDir, o.Logger = s.state, discard
	if list := g.Grants(o, string(a.session)); len(list) > 0 {
		a.c.fatalf("what was allowed once counts as %+v", list)
	}
}

// permissionReject: what is rejected is not done, and the turn does not fail.
func (s *suite) permissionReject(t testing.TB) {
	a := s.asks(t)
	a.choose("reject")
	a.end()
	if got := a.status(); got == schema.ToolCallStatusCompleted {
		a.c.fatalf("the rejected tool call is %s", got)
	}
}

// permissionCancelled: a turn that is cancelled while it asks ends as any other.
func (s *suite) permissionCancelled(t testing.TB) {
	a := s.asks(t)
	a.c.cancel(a.session)
	a.answer(schema.RequestPermissionOutcome{Cancelled: &schema.RequestPermissionOutcomeCancelled{}})
	if a.end(); a.stop != schema.StopReasonCancelled {
		a.c.fatalf("the cancelled turn ended with %s, want %s", a.stop, schema.StopReasonCancelled)
	}
	if got := a.status(); got == schema.ToolCallStatusCompleted {
		a.c.fatalf("the tool call nobody allowed is %s", got)
	}
	a.quiet()
}
