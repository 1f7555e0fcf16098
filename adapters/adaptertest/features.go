package adaptertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// proven are the features that contracts show by themselves.
var proven = map[adapters.Feature]string{
	adapters.Text:        "updates-precede-response",
	adapters.Streaming:   "updates-precede-response",
	adapters.ToolCalls:   "tool-call-lifecycle",
	adapters.Permissions: "permission-allow",
	adapters.Cancel:      "cancel-ends-the-turn",
	adapters.Load:        "load",
	adapters.Resume:      "resume",
}

// features checks that the adapter's row of the feature matrix is whole, and that
// each feature it claims is shown.
func (s *suite) features(t testing.TB) {
	t.Helper()
	row := s.Adapter.Info().Features
	if row == nil {
		if len(s.Shows) > 0 {
			t.Error("features are shown that the adapter does not claim: it has no row in the matrix")
		}
		return
	}
	known := map[adapters.Feature]bool{}
	for _, f := range adapters.AllFeatures {
		known[f] = true
		support, there := row[f]
		show := s.Shows[f]
		switch {
		case !there:
			t.Errorf("%s: the adapter does not say whether it has it", f)
		case support.Level == adapters.Unsupported:
			if support.Reason == "" {
				t.Errorf("%s: unsupported without a reason", f)
			}
			if show != nil {
				t.Errorf("%s: it is shown and not claimed", f)
			}
		case support.Level != adapters.ByAgent && support.Level != adapters.Emulated:
			t.Errorf("%s: level %q is unknown", f, support.Level)
		case show != nil:
			s.show(t, f, show)
		case s.ran[proven[f]]: // and has failed by itself if it must
		case s.Unshown[f] != "":
			t.Logf("%s is claimed and not shown: %s", f, s.Unshown[f])
		case proven[f] != "":
			t.Errorf("%s: it is claimed, and the contract %s, which shows it, was skipped", f, proven[f])
		default:
			t.Errorf("%s: it is claimed, and nothing shows it: add it to Shows, or the reason to Unshown", f)
		}
	}
	for f := range row {
		if !known[f] {
			t.Errorf("%s is no feature", f)
		}
	}
	for f := range s.Unshown {
		if support := row[f]; support.Level == adapters.Unsupported || !known[f] {
			t.Errorf("%s: Unshown names it, and it is not claimed", f)
		}
	}
}

func (s *suite) show(t testing.TB, f adapters.Feature, show func(s *Scene)) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("showing %s", f)
		}
	}()
	sc := &Scene{TB: t, s: s}
	show(sc)
	for _, c := range sc.open {
		c.close()
	}
}

// Scene is where an agent shows a feature. Its methods end the test when the
// agent fails; they are called from the test's own goroutine. Scenes use the
// connection of the contracts, unless they set Capabilities or call Connect.
type Scene struct {
	testing.TB
	// Capabilities are what initialize says of the client; nil is nothing.
	Capabilities *schema.ClientCapabilities
	// Answer gives the result of a request of the agent's; the default allows
	// what asks for a permission, once.
	Answer func(method string, params json.RawMessage) (result any, err *acp.Error)
	// Cwd is the working directory of sessions, that of the connection for "".
	Cwd string

	s    *suite
	c    *client
	open []*client
	init *schema.InitializeResponse
}

// Session returns a session that scenes share, made without any wishes. No turn
// runs in it; what was said in it stays.
func (s *Scene) Session() schema.SessionID {
	s.Helper()
	if s.c != nil {
		return s.NewSession(nil).SessionID
	}
	c, id := s.s.ready(s.TB)
	s.share(c)
	return id
}

// share makes the suite's connection that of the scene.
func (s *Scene) share(c *client) {
	s.c, s.init = c, c.hello
	if s.Cwd == "" {
		s.Cwd = c.cwd
	}
}

// connected makes sure that there is a connection: the suite's, unless the
// client is a special one.
func (s *Scene) connected() {
	s.Helper()
	switch {
	case s.c != nil:
	case s.Capabilities == nil:
		s.share(s.s.connected(s.TB))
	default:
		s.Connect()
	}
}

// Connect opens a connection of the scene's own, in place of the one before, and
// initializes it.
func (s *Scene) Connect() *schema.InitializeResponse {
	s.Helper()
	if s.c != nil && s.c != s.s.shared {
		s.c.close()
	}
	s.c = s.s.open(s.TB)
	s.open = append(s.open, s.c)
	if s.Cwd == "" {
		s.Cwd = s.c.cwd
	}
	caps := s.Capabilities
	if caps == nil {
		caps = &schema.ClientCapabilities{}
	}
	s.init = new(schema.InitializeResponse)
	s.c.must(acp.MethodInitialize, &schema.InitializeRequest{ProtocolVersion: protocolVersion, ClientCapabilities: caps}, s.init)
	return s.init
}

// NewSession makes a session; edit may change the params, or be nil.
func (s *Scene) NewSession(edit func(p *schema.NewSessionRequest)) *schema.NewSessionResponse {
	s.Helper()
	s.connected()
	p := &schema.NewSessionRequest{Cwd: s.Cwd, MCPServers: []schema.MCPServer{}}
	if edit != nil {
		edit(p)
	}
	r := new(schema.NewSessionResponse)
	s.c.must(acp.MethodSessionNew, p, r)
	return r
}

// Call sends a request that must succeed and returns its result.
func (s *Scene) Call(method string, params any) json.RawMessage {
	s.Helper()
	s.connected()
	var r json.RawMessage
	s.c.must(method, params, &r)
	return r
}

// Act is a turn of a scene.
type Act struct {
	Updates []schema.SessionUpdate
	Raw     []json.RawMessage // Updates as they were sent
	Asked   []acp.Message     // requests of the agent's
	Result  json.RawMessage
	Stop    schema.StopReason
	Err     *acp.Error
}

// Said joins what the agent said.
func (a *Act) Said() string { return said(a.Updates) }

// Prompt runs a turn and answers what the agent asks in it.
func (s *Scene) Prompt(session schema.SessionID, blocks ...schema.ContentBlock) *Act {
	s.Helper()
	s.connected()
	turn := s.c.beginRaw(session, s.c.encode(&schema.PromptRequest{SessionID: session, Prompt: blocks}))
	act := &Act{}
	for from := turn.from; ; {
		at, m := s.c.await(from, "the response to the prompt", func(m *acp.Message) bool {
			return m.IsRequest() || m.IsResponse() && m.ID() == turn.id
		})
		from = at + 1
		if m.IsResponse() {
			break
		}
		act.Asked = append(act.Asked, *m)
		s.answer(m)
	}
	turn.over()
	act.Updates, act.Result, act.Stop, act.Err = turn.updates, turn.result, turn.stop, turn.err
	for _, m := range s.c.between(turn.from, turn.at) {
		if m.Method() == acp.MethodSessionUpdate && m.Session() == string(session) {
			act.Raw = append(act.Raw, m.Update())
		}
	}
	return act
}

// Say is Prompt with a text; the turn must end regularly.
func (s *Scene) Say(session schema.SessionID, text string) *Act {
	s.Helper()
	a := s.Prompt(session, schema.TextBlock(text))
	if a.Err != nil || a.Stop != schema.StopReasonEndTurn {
		s.c.fatalf("the turn ended with %q, %v", a.Stop, a.Err)
	}
	return a
}

// Await waits for an update of the session, also one that came before.
func (s *Scene) Await(session schema.SessionID, what string, match func(u *schema.SessionUpdate) bool) {
	s.Helper()
	s.connected()
	s.c.await(0, what, func(m *acp.Message) bool {
		if m.Method() != acp.MethodSessionUpdate || m.Session() != string(session) {
			return false
		}
		var u schema.SessionUpdate
		return json.Unmarshal(m.Update(), &u) == nil && match(&u)
	})
}

func (s *Scene) answer(m *acp.Message) {
	s.Helper()
	answer := s.Answer
	if answer == nil {
		answer = Allow
	}
	result, err := answer(m.Method(), m.Params())
	if err != nil {
		s.c.write(acp.NewError(m.ID(), err))
		return
	}
	s.c.write(acp.NewResult(m.ID(), s.c.encode(result)))
}

// Allow is an answer that allows what asks for a permission, once, and knows
// nothing else.
func Allow(method string, params json.RawMessage) (any, *acp.Error) {
	if method != acp.MethodSessionRequestPermission {
		return nil, acp.Errorf(acp.CodeMethodNotFound, "this client does not offer %s", method)
	}
	var p schema.RequestPermissionRequest
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "%s", err)
	}
	for _, o := range p.Options {
		if o.Kind == schema.PermissionOptionKindAllowOnce {
			return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o.OptionID}}, nil
		}
	}
	return nil, acp.Errorf(acp.CodeInvalidParams, "no option allows it once")
}

// Deadline bounds what a show waits for by itself.
func (s *Scene) Deadline() time.Time { return time.Now().Add(s.s.Patience) }

// Fail ends the test and quotes the last frames.
func (s *Scene) Fail(format string, args ...any) {
	s.Helper()
	if s.c != nil {
		s.c.fatalf("%s", fmt.Sprintf(format, args...))
	}
	s.Fatalf(format, args...)
}
