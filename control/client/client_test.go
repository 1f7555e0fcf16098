package client_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func TestMain(m *testing.M) {
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

var when = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// sessions has the session "a/b ?" with two events.
type sessions struct{ called []string }

func (s *sessions) info() runtime.SessionInfo {
	return runtime.SessionInfo{
		ID: "a/b ?", Agent: "mock", AgentSessionID: "n", Cwd: "/w", State: runtime.StateIdle, Continuity: runtime.ContinuityNative,
		CreatedAt: when, UpdatedAt: when, EventCount: 2,
	}
}

func (s *sessions) event(seq uint64) runtime.Event {
	return runtime.Event{Seq: seq, Time: when, Direction: runtime.FromGateway, Message: []byte(`{"jsonrpc":"2.0","method":"m"}`)}
}

func (s *sessions) Sessions(_ context.Context, f runtime.SessionFilter) (runtime.SessionList, error) {
	if f.Cursor == "" {
		return runtime.SessionList{Sessions: []runtime.SessionInfo{s.info()}, NextCursor: "p 2&", Position: 7}, nil
	}
	if diff := cmp.Diff(everyFilter, f); diff != "" {
		return runtime.SessionList{}, errors.New(diff)
	}
	return runtime.SessionList{Sessions: []runtime.SessionInfo{}}, nil
}

var everyFilter = runtime.SessionFilter{
	Cwd: "/w x", Agent: "m", States: []runtime.State{runtime.StateIdle, runtime.StateEnded}, Query: "a&b", Order: runtime.ByCreation, Cursor: "p 2&", Limit: 5,
}

func (s *sessions) FollowSessions(_ context.Context, after uint64) iter.Seq2[runtime.SessionChange, error] {
	return func(yield func(runtime.SessionChange, error) bool) {
		info := s.info()
		_ = yield(runtime.SessionChange{Position: after + 1, Type: runtime.ChangeSession, SessionID: info.ID, Session: &info}, nil) &&
			yield(runtime.SessionChange{Position: after + 2, Type: runtime.ChangeDeleted, SessionID: info.ID}, nil)
	}
}

func (s *sessions) Session(id string) (runtime.SessionInfo, error) {
	if id != "a/b ?" {
		return runtime.SessionInfo{}, problem.New(problem.SessionNotFound, "there is no session %q", id).With("sessionId", id)
	}
	return s.info(), nil
}

func (s *sessions) Raw(_ context.Context, id string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("raw of " + id)), nil
}

func (s *sessions) Events(_ context.Context, _ string, after uint64, limit int) ([]runtime.Event, bool, error) {
	if after > 2 {
		return nil, false, problem.New(problem.EventsExpired, "gone")
	}
	return []runtime.Event{s.event(after + 1)}, limit == 1, nil
}

func (s *sessions) Permissions(id string) ([]runtime.Grant, error) {
	return []runtime.Grant{{ID: id, Title: "t", Key: "k", Where: "session", Revocable: true}}, nil
}

func (s *sessions) ForgetPermissions(_ context.Context, id string, ids ...string) ([]runtime.Grant, error) {
	return []runtime.Grant{{ID: id + strings.Join(ids, "")}}, nil
}

func (s *sessions) Cleaner(string) (func(string) string, error) {
	return func(string) string { return `{"clean":true}` }, nil
}

func (s *sessions) RaisedEvents(ctx context.Context, id string, after uint64, limit int) ([]runtime.Event, bool, error) {
	events, more, err := s.Events(ctx, id, after, limit)
	for i := range events {
		events[i].Message = []byte(`{"jsonrpc":"2.0","method":"two"}`)
	}
	return events, more, err
}

func (s *sessions) FollowEvents(_ context.Context, _ string, after uint64) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		if !yield(s.event(after+1), nil) || !yield(s.event(after+2), nil) {
			return
		}
		if after == 1 {
			yield(runtime.Event{}, problem.New(problem.EventsExpired, "gone"))
		}
	}
}

func (s *sessions) CloseSession(_ context.Context, id string) (string, error) {
	s.called = append(s.called, "close "+id)
	return "", nil
}

func (s *sessions) DeleteSession(_ context.Context, id string) (string, error) {
	s.called = append(s.called, "delete "+id)
	return "", nil
}

func (s *sessions) Agents() []runtime.AgentInfo {
	return []runtime.AgentInfo{{ID: "mock", Name: "Mock", Kind: "bridge", Installed: true, Processes: []runtime.ProcessInfo{}}}
}

func (s *sessions) Ready() error { return problem.New(problem.Unavailable, "later") }

func start(t *testing.T) (*client.Client, *sessions) {
	t.Helper()
	fake := &sessions{}
	api := control.New(control.Options{Sessions: fake, RPC: http.NotFoundHandler(), Guard: control.Guard{Token: "tok"}, Version: "v"})
	srv := httptest.NewServer(api)
	t.Cleanup(func() { api.Shutdown(context.Background()); srv.Close() })
	c, err := client.New(srv.URL, client.Options{Token: "tok", HTTP: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c, fake
}

func TestClient_Calls(t *testing.T) {
	c, fake := start(t)
	ctx := t.Context()
	const id = "a/b ?"
	check := func(what string, want, got any, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	health, err := c.Health(ctx)
	check("health", client.Status{Status: "ok"}, health, err)
	v, err := c.Version(ctx)
	check("version", "v", v.Version, err)
	agents, err := c.Agents(ctx)
	check("agents", fake.Agents(), agents, err)
	agent, err := c.Agent(ctx, "mock")
	check("agent", fake.Agents()[0], agent, err)
	page, err := c.Sessions(ctx, runtime.SessionFilter{})
	check("sessions", runtime.SessionList{Sessions: []runtime.SessionInfo{fake.info()}, NextCursor: "p 2&", Position: 7}, page, err)
	page, err = c.Sessions(ctx, everyFilter)
	check("next page", runtime.SessionList{Sessions: []runtime.SessionInfo{}}, page, err)
	info, err := c.Session(ctx, id)
	check("session", fake.info(), info, err)
	events, err := c.Events(ctx, id, 1, 1)
	check("events", client.EventPage{Events: []runtime.Event{fake.event(2)}, HasMore: true}, events, err)
	raised, err := c.RaisedEvents(ctx, id, 1, 1)
	check("events of version 2", `{"jsonrpc":"2.0","method":"two"}`, string(raised.Events[0].Message), err)
	clean, err := c.CleanEvents(ctx, id, 1, 1)
	check("clean events", `{"clean":true}`, string(clean.Events[0].Message), err)
	raw, err := c.Raw(ctx, id)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(raw)
		check("raw", "raw of "+id, string(text), errors.Join(err, raw.Close()))
	}
	check("raw", true, raw != nil, err)
	allowed, err := c.Permissions(ctx, id)
	check("permissions", []runtime.Grant{{ID: id, Title: "t", Key: "k", Where: "session", Revocable: true}}, allowed, err)
	all, err := c.ForgetPermissions(ctx, id)
	check("forget all", []runtime.Grant{{ID: id}}, all, err)
	one, err := c.ForgetPermission(ctx, id, "a/1")
	check("forget one", []runtime.Grant{{ID: id + "a/1"}}, one, err)
	err = errors.Join(c.CloseSession(ctx, id), c.DeleteSession(ctx, id))
	check("close and delete", []string{"close " + id, "delete " + id}, fake.called, err)
	if doc, err := c.OpenAPI(ctx); err != nil || len(doc) < 1000 {
		t.Errorf("document of %d bytes, %v", len(doc), err)
	}
}

func TestClient_Problems(t *testing.T) {
	c, _ := start(t)
	_, notFound := c.Session(t.Context(), "nope")
	_, notReady := c.Ready(t.Context())
	_, expired := c.Events(t.Context(), "a/b ?", 3, 0)
	for err, want := range map[error]problem.Kind{notFound: problem.SessionNotFound, notReady: problem.Unavailable, expired: problem.EventsExpired} {
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || p.Kind != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	p, _ := errors.AsType[*problem.Error](notFound)
	if id, _ := p.Extensions["requestId"].(string); id == "" {
		t.Errorf("problem without requestId: %v", p.Extensions)
	}
	delete(p.Extensions, "requestId")
	if diff := cmp.Diff(map[string]any{"sessionId": "nope"}, p.Extensions); diff != "" || p.Detail != `there is no session "nope"` {
		t.Errorf("problem %q, extensions (-want +got):\n%s", p.Detail, diff)
	}
}

func TestClient_FollowSessions(t *testing.T) {
	c, fake := start(t)
	var got []runtime.SessionChange
	for change, err := range c.FollowSessions(t.Context(), 7, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, change)
	}
	info := fake.info()
	want := []runtime.SessionChange{{Position: 8, Type: runtime.ChangeSession, SessionID: info.ID, Session: &info}, {Position: 9, Type: runtime.ChangeDeleted, SessionID: info.ID}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

func TestClient_FollowEvents(t *testing.T) {
	c, fake := start(t)
	var got []runtime.Event
	for ev, err := range c.FollowEvents(t.Context(), "a/b ?", 0, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev)
	}
	if diff := cmp.Diff([]runtime.Event{fake.event(1), fake.event(2)}, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
	var last error
	for _, err := range c.FollowEvents(t.Context(), "a/b ?", 1, nil) {
		last = err
	}
	if p, ok := errors.AsType[*problem.Error](last); !ok || p.Kind != problem.EventsExpired {
		t.Errorf("last error %v, want events_expired", last)
	}
	for _, err := range c.FollowEvents(t.Context(), "nope", 0, nil) {
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.SessionNotFound {
			t.Errorf("error %v, want session_not_found", err)
		}
	}
	for range c.FollowEvents(t.Context(), "a/b ?", 0, nil) {
		break // the stream is closed with it
	}
}

func TestClient_NotTheAPI(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer srv.Close()
	c, err := client.New(srv.URL+"/prefix/v2/rpc", client.Options{HTTP: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, ask := range map[string]func() error{
		"agents":         func() error { _, err := c.Agents(ctx); return err },
		"delete session": func() error { return c.DeleteSession(ctx, "s") },
		"delete file":    func() error { return c.Files("").Delete(ctx, "f", false) },
		"remove agent":   func() error { return c.RemoveInstall(ctx, "mock") },
		"write":          func() error { return c.WriteProcess(ctx, "p", []byte("x"), false) },
		"signal":         func() error { return c.SignalProcess(ctx, "p", "SIGINT") },
		"install":        func() error { _, err := c.Install(ctx, "mock", client.InstallRequest{}, nil); return err },
		"events": func() (err error) {
			for _, more := range c.FollowEvents(ctx, "s", 0, nil) {
				err = more
			}
			return err
		},
		"output": func() (err error) {
			for _, more := range c.FollowProcess(ctx, "p", client.LogOptions{}, nil) {
				err = more
			}
			return err
		},
		"changes": func() (err error) {
			for _, more := range c.Files("").Watch(ctx, ".", fs.WatchOptions{}, nil) {
				err = more
			}
			return err
		},
	} {
		if err := ask(); !errors.Is(err, acphttp.ErrForeign) {
			t.Errorf("%s: a page was taken for an answer: %v", name, err)
		}
	}
	elsewhere := httptest.NewServer(http.RedirectHandler("https://there/", http.StatusMovedPermanently))
	defer elsewhere.Close()
	if c, err = client.New(elsewhere.URL, client.Options{Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Agents(ctx); err == nil || !strings.Contains(err.Error(), "redirects to https://there/") {
		t.Errorf("a redirect: %v", err)
	}
	for _, endpoint := range []string{"", "localhost:1", "ftp://h", "http://"} {
		if _, err := client.New(endpoint, client.Options{}); err == nil {
			t.Errorf("endpoint %q was accepted", endpoint)
		}
	}
}
