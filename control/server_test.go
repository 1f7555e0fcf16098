package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/openapi"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// api sends requests to a server and checks them and the answers against the
// OpenAPI document.
type api struct {
	t      *testing.T
	server *Server
	router routers.Router
}

func newAPI(t *testing.T, o Options) *api {
	t.Helper()
	doc, err := openapi.Build()
	if err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &api{t: t, server: newServer(t, o), router: router}
}

func (a *api) get(target string) *httptest.ResponseRecorder { return a.do(http.MethodGet, target, "") }

// do sends a request. invalid is what is wrong with it by the document.
func (a *api) do(method, target, invalid string) *httptest.ResponseRecorder {
	a.t.Helper()
	return a.send(method, target, "", invalid)
}

// send is do with a body of JSON, "" for none.
func (a *api) send(method, target, body, invalid string) *httptest.ResponseRecorder {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), method, "http://localhost"+target, nil)
	reset := func() {
		if body != "" {
			r.Body = io.NopCloser(strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
		}
	}
	reset()
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, r)
	reset()

	route, params, err := a.router.FindRoute(r)
	if err != nil {
		a.t.Fatalf("%s %s is not in the document: %v", method, target, err)
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, Route: route, PathParams: params,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
		},
	}
	err = openapi3filter.ValidateRequest(a.t.Context(), in)
	if invalid == "" && err != nil || invalid != "" && (err == nil || !strings.Contains(err.Error(), invalid)) {
		a.t.Errorf("%s %s: request validates with %v, want %q", method, target, err, invalid)
	}
	err = openapi3filter.ValidateResponse(a.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: in.Options,
	})
	if err != nil {
		a.t.Errorf("%s %s: answer %d does not match the document: %v\n%s", method, target, w.Code, err, w.Body)
	}
	return w
}

func kindOf(t *testing.T, w *httptest.ResponseRecorder) problem.Kind {
	t.Helper()
	var doc struct {
		Type, Title, Detail string
		Status              int
	}
	if ct := w.Header().Get("Content-Type"); ct != problem.ContentType {
		t.Fatalf("Content-Type %q, want a problem; body %s", ct, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Status != w.Code || doc.Detail == "" || doc.Title == "" {
		t.Errorf("problem %+v with status %d", doc, w.Code)
	}
	return problem.Kind(strings.TrimPrefix(doc.Type, problem.Prefix))
}

func TestAPI_Answers(t *testing.T) {
	var calls []string
	f := &fake{
		sessions: func(f runtime.SessionFilter) (runtime.SessionList, error) {
			if f.Cursor == "bad" {
				return runtime.SessionList{}, problem.New(problem.InvalidRequest, "the cursor is not one")
			}
			if f.Agent == "none" {
				return runtime.SessionList{Sessions: []runtime.SessionInfo{}, Position: 5}, nil
			}
			if diff := cmp.Diff(runtime.SessionFilter{Cwd: "/w", Agent: "mock", States: []runtime.State{"idle", "ended"}, Query: "two words", Order: "created", Cursor: "c", Limit: 7}, f); diff != "" {
				t.Errorf("filter differs (-want +got):\n%s", diff)
			}
			return runtime.SessionList{Sessions: []runtime.SessionInfo{session("s1")}, NextCursor: "next", Position: 5}, nil
		},
		events: func(after uint64, limit int) ([]runtime.Event, bool, error) {
			if after == 99 {
				return nil, false, problem.New(problem.EventsExpired, "the oldest is 200").With("oldestSeq", 200)
			}
			return []runtime.Event{event(after + 1), event(after + 2)}, limit == 2, nil
		},
		raw:     `{"from":"agent","line":"<x>"}` + "\n",
		closed:  func(id string) error { calls = append(calls, "close "+id); return nil },
		deleted: func(id string) error { calls = append(calls, "delete "+id); return nil },
	}
	a := newAPI(t, Options{Sessions: f, Version: "1.2.3"})
	tests := []struct {
		method, target, invalid string
		status                  int
		body                    string // contained; a kind for problems
	}{
		{"GET", "/v2/health", "", 200, `{"status":"ok"}`},
		{"GET", "/v2/ready", "", 200, `{"status":"ready"}`},
		{"GET", "/v2/version", "", 200, `"version":"1.2.3"`},
		{"GET", "/v2/agents", "", 200, `"processes":[]`},
		{"GET", "/v2/agents/own", "", 200, `"pid":7`},
		{"GET", "/v2/agents/nope", "", 404, "not_found"},
		{"GET", "/v2/sessions?cwd=/w&agent=mock&state=idle&state=ended&q=two+words&sort=created&cursor=c&limit=7", "", 200, `"nextCursor":"next"`},
		{"GET", "/v2/sessions?agent=none", "", 200, `{"sessions":[],"position":5}`},
		{"GET", "/v2/sessions?cursor=bad", "", 400, "invalid_request"},
		{"GET", "/v2/sessions?limit=0", "limit", 400, "invalid_request"},
		{"GET", "/v2/sessions?limit=1001", "limit", 400, "invalid_request"},
		{"GET", "/v2/sessions?limit=x", "limit", 400, "invalid_request"},
		{"GET", "/v2/sessions/s1", "", 200, `"metadata":{"a":"<b>"}`},
		{"GET", "/v2/sessions/nope", "", 404, "session_not_found"},
		{"DELETE", "/v2/sessions/s1", "", 204, ""},
		{"POST", "/v2/sessions/s1/close", "", 204, ""},
		{"GET", "/v2/sessions/s1/permissions", "", 200, `{"permissions":[{"id":"a1",`},
		{"GET", "/v2/sessions/nope/permissions", "", 404, "session_not_found"},
		{"DELETE", "/v2/sessions/s1/permissions", "", 200, `{"forgotten":[{"id":"a1",`},
		{"DELETE", "/v2/sessions/s1/permissions/a1", "", 200, `{"forgotten":[{"id":"a1",`},
		{"DELETE", "/v2/sessions/s1/permissions/b", "", 409, "conflict"},
		{"DELETE", "/v2/sessions/s1/permissions/c", "", 404, "not_found"},
		{"DELETE", "/v2/sessions/nope/permissions", "", 404, "session_not_found"},
		{"GET", "/v2/sessions/s1/events", "", 200, `"message":{"jsonrpc":"2.0", "method":"x<y"}}],"hasMore":false}`},
		{"GET", "/v2/sessions/s1/events?acp=2", "", 200, `"message":{"jsonrpc":"2.0","method":"two"}}],"hasMore":false}`},
		{"GET", "/v2/sessions/s1/events?after=5&limit=2", "", 200, `{"events":[{"seq":6,"time":"2026-03-04T05:06:07.00000089Z","direction":"agent",`},
		{"GET", "/v2/sessions/s1/events?after=-1", "after", 400, "invalid_request"},
		{"GET", "/v2/sessions/s1/events?after=99", "", 410, "events_expired"},
		{"GET", "/v2/sessions/nope/events", "", 404, "session_not_found"},
		{"GET", "/v2/sessions/s1/raw", "", 200, `{"from":"agent","line":"<x>"}`},
		{"GET", "/v2/sessions/nope/raw", "", 404, "session_not_found"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			a.t = t
			w := a.do(tt.method, tt.target, tt.invalid)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if tt.status >= 400 {
				if kind := kindOf(t, w); string(kind) != tt.body {
					t.Errorf("problem %s, want %s", kind, tt.body)
				}
			} else if !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("body %s, want %s in it", w.Body, tt.body)
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Error("nosniff is missing")
			}
		})
	}
	if diff := cmp.Diff([]string{"delete s1", "close s1"}, calls); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}
}

func TestAPI_NotReady(t *testing.T) {
	a := newAPI(t, Options{Sessions: &fake{ready: errors.New("disk full")}})
	if w := a.get("/v2/ready"); kindOf(t, w) != problem.Unavailable || !strings.Contains(w.Body.String(), "disk full") {
		t.Errorf("answer %s", w.Body)
	}
	a = newAPI(t, Options{})
	a.server.Drain()
	if w := a.get("/v2/ready"); kindOf(t, w) != problem.Unavailable {
		t.Errorf("answer %s", w.Body)
	}
	if w := a.get("/v2/health"); w.Code != 200 {
		t.Errorf("health %d while draining", w.Code)
	}
}

// request is one outside the document.
func request(t *testing.T, s *Server, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+target, nil))
	return w
}

func TestServer_PageRunsItsOwnScriptsOnly(t *testing.T) {
	s := newServer(t, Options{UI: fstest.MapFS{"index.html": {Data: []byte("<p>page")}, "assets/a-1.js": {Data: []byte("code")}}})
	page, asset := request(t, s, "GET", "/ui/").Header(), request(t, s, "GET", "/ui/assets/a-1.js").Header()
	policy := page.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'self'", "script-src 'self'", "object-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !slices.ContainsFunc(strings.Split(policy, ";"), func(d string) bool { return strings.TrimSpace(d) == want }) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if got := page.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("the page may be cached: %q", got)
	}
	if got := asset.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		t.Errorf("what never changes under its name is asked for again: %q", got)
	}
}

func TestServer_Paths(t *testing.T) {
	s := newServer(t, Options{
		UI:  fstest.MapFS{"index.html": {Data: []byte("<p>page")}, "assets/a.js": {Data: []byte("code")}},
		RPC: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "rpc") }),
	})
	tests := []struct {
		method, target string
		status         int
		want           string // in the body; a kind for problems; a place for redirects
	}{
		{"GET", "/v2/rpc", 200, "rpc"},
		{"PATCH", "/v2/rpc", 200, "rpc"}, // its handler decides
		{"GET", "/", 302, "/ui/"},
		{"GET", "/ui", 302, "/ui/"},
		{"GET", "/ui/", 200, "<p>page"},
		{"HEAD", "/ui/", 200, ""},
		{"GET", "/ui/assets/a.js", 200, "code"},
		{"GET", "/ui/assets/", 404, "not_found"},
		{"GET", "/ui/nope.js", 404, "not_found"},
		{"GET", "/ui/../v2/sessions", 404, "not_found"},
		{"GET", "/ui/..%2fv2/sessions", 404, "not_found"},
		{"POST", "/ui/", 405, "method_not_allowed"},
		{"HEAD", "/v2/health", 200, ""},
		{"GET", "/v2/nope", 404, "not_found"},
		{"GET", "/v2/sessions/", 404, "not_found"},
		{"GET", "/nope", 404, "not_found"},
		{"POST", "/v2/sessions", 405, "method_not_allowed"},
		{"PUT", "/v2/sessions/s1", 405, "method_not_allowed"},
		{"GET", "/v2/sessions/s1/close", 405, "method_not_allowed"},
		{"GET", "/v1/agents", 410, "v1_removed"},
		{"POST", "/v1", 410, "v1_removed"},
		{"DELETE", "/opencode/session/x", 503, "opencode_disabled"},
		{"GET", "/v2/sessions/a%2Fb", 200, `"sessionId":"a/b"`},
		{"GET", "/v2/sessions/panic", 500, "internal"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			w := request(t, s, tt.method, tt.target)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			switch {
			case tt.status >= 400:
				if kind := kindOf(t, w); string(kind) != tt.want {
					t.Errorf("problem %s, want %s", kind, tt.want)
				}
			case tt.status >= 300:
				if w.Header().Get("Location") != tt.want {
					t.Errorf("Location %q, want %q", w.Header().Get("Location"), tt.want)
				}
			case !strings.Contains(w.Body.String(), tt.want):
				t.Errorf("body %q, want %q in it", w.Body, tt.want)
			}
			if tt.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("Allow is missing")
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the answer shows the cause of a panic: %s", w.Body)
			}
		})
	}
}

func TestServer_PanicAfterHeaderCutsConnection(t *testing.T) {
	s := newServer(t, Options{RPC: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("secret")
	})})
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("panicked with %v, want http.ErrAbortHandler", v)
		}
	}()
	request(t, s, "GET", "/v2/rpc")
	t.Error("the answer looks whole")
}

func TestServer_LogHasNoSecrets(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Options{
		Guard:  Guard{Token: "tok-secret"},
		RPC:    http.NotFoundHandler(),
		Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	for _, target := range []string{"/v2/sessions?cwd=secret-query", "/v2/sessions?token=tok-secret", "/v2/rpc?x=secret-query"} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost"+target, strings.NewReader("secret-body"))
		r.Header.Set("Authorization", "Bearer tok-secret")
		s.ServeHTTP(httptest.NewRecorder(), r)
	}
	if got := log.String(); strings.Contains(got, "secret") || strings.Count(got, `"msg":"request"`) != 3 {
		t.Errorf("log:\n%s", got)
	}
}

func TestServer_InternalErrorIsNotShown(t *testing.T) {
	s := newServer(t, Options{Sessions: &fake{
		deleted: func(string) error { return errors.New("open /secret/path") },
		closed:  func(string) error { return context.DeadlineExceeded },
	}})
	w := request(t, s, "DELETE", "/v2/sessions/s1")
	if kindOf(t, w) != problem.Internal || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("answer %s", w.Body)
	}
}

func TestServer_AgentRefuses(t *testing.T) {
	s := newServer(t, Options{Sessions: &fake{
		deleted: func(string) error { return fmt.Errorf("delete: %w", acp.Errorf(-32600, "it was not made here")) },
	}})
	w := request(t, s, "DELETE", "/v2/sessions/s1")
	if kindOf(t, w) != problem.AgentError || !strings.Contains(w.Body.String(), `"code":-32600`) || !strings.Contains(w.Body.String(), "it was not made here") {
		t.Errorf("answer %s", w.Body)
	}
}

// A full disk is told as one by every operation, without where the gateway keeps its files.
func TestServer_NoSpace(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		s := newServer(t, Options{Sessions: &fake{
			deleted: func(string) error { return &os.PathError{Op: "write", Path: "/secret", Err: full} },
		}})
		w := request(t, s, "DELETE", "/v2/sessions/s1")
		if kindOf(t, w) != problem.InsufficientStorage || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("answer %s", w.Body)
		}
	}
}
