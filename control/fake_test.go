package control

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// fake is a Sessions of funcs over one session "s1".
type fake struct {
	sessions func(runtime.SessionFilter) (runtime.SessionList, error)
	changes  func(ctx context.Context, after uint64) iter.Seq2[runtime.SessionChange, error]
	events   func(after uint64, limit int) ([]runtime.Event, bool, error)
	follow   func(ctx context.Context, after uint64) iter.Seq2[runtime.Event, error]
	raw      string
	rawFails error // what reading raw ends with
	closed   func(id string) error
	deleted  func(id string) error
	ready    error
}

var _ Sessions = (*fake)(nil)

var when = time.Date(2026, 3, 4, 5, 6, 7, 890, time.UTC)

func session(id string) runtime.SessionInfo {
	code := 3
	return runtime.SessionInfo{
		ID: id, Agent: "mock", AgentSessionID: "native-" + id, Cwd: "/w", State: runtime.StateEnded, Continuity: runtime.ContinuityNative,
		CreatedAt: when, UpdatedAt: when, EventCount: 2, Metadata: []byte(`{"a":"<b>"}`),
		Gist: "<g>", Cost: &runtime.Cost{Amount: 0.5, Currency: "USD"}, Usage: []runtime.Use{{Day: "2026-03-04", Model: "m", Turns: 1, InputTokens: 2, OutputTokens: 3, CachedReadTokens: 4, CachedWriteTokens: 5, ThoughtTokens: 6, Cost: &runtime.Cost{Amount: 0.5, Currency: "USD"}}}, Match: &runtime.Match{Seq: 1, Text: "w"},
		Children: []runtime.Child{{ID: "s1.t", Parent: "s1", Call: "t", Title: "<c>", State: runtime.StateRunning}},
		Ended:    &runtime.EndInfo{Reason: "agent_process_exited", TerminatedBy: "agent", ExitCode: &code, Stderr: &runtime.StderrInfo{Tail: "no"}, At: when},
	}
}

func event(seq uint64) runtime.Event {
	return runtime.Event{Seq: seq, Time: when, Direction: runtime.FromAgent, Message: []byte(`{"jsonrpc":"2.0", "method":"x<y"}`)}
}

func (f *fake) Sessions(_ context.Context, filter runtime.SessionFilter) (runtime.SessionList, error) {
	if f.sessions == nil {
		return runtime.SessionList{Sessions: []runtime.SessionInfo{}}, nil
	}
	return f.sessions(filter)
}

func (f *fake) FollowSessions(ctx context.Context, after uint64) iter.Seq2[runtime.SessionChange, error] {
	return f.changes(ctx, after)
}

func (f *fake) Session(id string) (runtime.SessionInfo, error) {
	if id == "panic" {
		panic("secret")
	}
	if id != "s1" && id != "a/b" {
		return runtime.SessionInfo{}, problem.New(problem.SessionNotFound, "there is no session %q", id)
	}
	return session(id), nil
}

func (f *fake) Events(_ context.Context, id string, after uint64, limit int) ([]runtime.Event, bool, error) {
	if _, err := f.Session(id); err != nil {
		return nil, false, err
	}
	if f.events == nil {
		return nil, false, nil
	}
	return f.events(after, limit)
}

func grants() []runtime.Grant {
	return []runtime.Grant{
		{ID: "a1", Title: "`make`", Kind: "execute", GivenAt: &when, Key: "Bash(make)", Where: "session", Revocable: true},
		{ID: "b", Title: "edits", Key: "edits", Where: "file", File: "/f", Reason: "it is in /f"},
	}
}

func (f *fake) Permissions(id string) ([]runtime.Grant, error) {
	if _, err := f.Session(id); err != nil {
		return nil, err
	}
	return grants(), nil
}

func (f *fake) ForgetPermissions(_ context.Context, id string, ids ...string) ([]runtime.Grant, error) {
	switch {
	case id != "s1":
		return nil, problem.New(problem.SessionNotFound, "session %q was not found", id)
	case len(ids) == 0 || ids[0] == "a1":
		return grants()[:1], nil
	case ids[0] == "b":
		return nil, problem.New(problem.Conflict, "it is in /f")
	}
	return nil, problem.New(problem.NotFound, "there is no %s", ids[0])
}

func (f *fake) Cleaner(string) (func(string) string, error) {
	return strings.NewReplacer("hush", "[removed]").Replace, nil
}

func (f *fake) RaisedEvents(ctx context.Context, id string, after uint64, limit int) ([]runtime.Event, bool, error) {
	events, more, err := f.Events(ctx, id, after, limit)
	for i := range events {
		events[i].Message = []byte(`{"jsonrpc":"2.0","method":"two"}`)
	}
	return events, more, err
}

func (f *fake) Raw(_ context.Context, id string) (io.ReadCloser, error) {
	if _, err := f.Session(id); err != nil {
		return nil, err
	}
	if f.raw == "" {
		return nil, problem.New(problem.NotFound, "nothing was recorded")
	}
	raw := io.Reader(strings.NewReader(f.raw))
	if f.rawFails != nil {
		raw = io.MultiReader(raw, iotest.ErrReader(f.rawFails))
	}
	return io.NopCloser(struct{ io.Reader }{raw}), nil // as of a file: it has nothing but Read
}

func (f *fake) FollowEvents(ctx context.Context, _ string, after uint64) iter.Seq2[runtime.Event, error] {
	return f.follow(ctx, after)
}

func (f *fake) CloseSession(_ context.Context, id string) (string, error) { return "", f.closed(id) }

func (f *fake) DeleteSession(_ context.Context, id string) (string, error) { return "", f.deleted(id) }

func (f *fake) Agents() []runtime.AgentInfo {
	return []runtime.AgentInfo{
		{ID: "mock", Name: "Mock", Kind: "bridge", AuthState: runtime.AuthUnknown, Capabilities: adapters.Features{adapters.Text: {Level: adapters.ByAgent}}, Models: []runtime.Choice{{ID: "m", Name: "M"}}, Installed: true, Default: true},
		{ID: "own", Name: "Own", Kind: "custom", AuthState: runtime.AuthRequired, Processes: []runtime.ProcessInfo{{PID: 7, StartedAt: when, LastError: "x"}}},
	}
}

func (f *fake) Ready() error { return f.ready }

func newServer(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Sessions == nil {
		o.Sessions = &fake{}
	}
	s := New(o)
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}
