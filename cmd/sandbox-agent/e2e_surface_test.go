package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	surfaceSeed  = flag.Int64("surface.seed", 0, "seed of TestSurface; 0 for that of the tier")
	surfaceSteps = flag.Int("surface.steps", 0, "requests of each client of TestSurface; 0 for as many as the tier has")
)

// TestSurface plays clients that send anything to every operation of the HTTP API and to every
// method of ACP, as far as the OpenAPI document and the protocol's schema know them: values
// that fit, values that do not, and ids of what the others have made. Every answer must be one
// that the document has, none may be an internal error, and the gateway goes on.
func TestSurface(t *testing.T) {
	t.Parallel()
	seed := *surfaceSeed
	if seed == 0 { // the short tier says of a change what it breaks, the long one looks for more
		if seed = 1; os.Getenv("SANDBOX_AGENT_LONG") != "" {
			seed = time.Now().UnixNano()
		}
	}
	steps := *surfaceSteps
	if steps == 0 {
		if steps = 250; os.Getenv("SANDBOX_AGENT_LONG") != "" {
			steps = 20_000
		}
	}
	t.Logf("-surface.seed=%d", seed)
	root := t.TempDir()
	g := newGateway(t, "--default-agent", "mock", "--fs-root", root)
	g.start()
	s := &surface{t: t, url: g.url, root: root, known: map[string][]string{}}
	s.read()
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			c := &surfaceClient{surface: s, rand: rand.New(rand.NewPCG(uint64(seed), uint64(n)))} //nolint:gosec // to be repeated
			for i := 0; i < steps && !t.Failed(); i++ {
				c.step(i)
			}
		})
	}
	clients.Wait()
	if t.Failed() {
		return
	}
	var ready struct{ Status string }
	g.get("/v2/ready", &ready)
	t.Logf("answers: %v", s.count)
	for _, op := range s.operations {
		if s.answered(op.id) == 0 {
			t.Errorf("%s was never answered", op.id)
		}
	}
}

// surface is what the documents know, and what the clients have found.
type surface struct {
	t          *testing.T
	url, root  string
	schemas    map[string]any // of the OpenAPI document
	protocol   map[string]any // definitions of the protocol's schema
	methods    []string       // of ACP, for agents
	params     map[string]any // their schemas
	operations []operation

	mu    sync.Mutex
	known map[string][]string // ids by what they are of, the newest last
	count map[string]int      // answers by operation, and by operation and status
}

type operation struct {
	id, method, path string
	spec             map[string]any
	statuses         []string
}

// left out are operations that ask other machines, or start what is not a part of this test.
var leftOut = []string{"installAgent", "getDoctor"}

func (s *surface) read() {
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]any }
	}
	readJSON(s.t, filepath.Join("..", "..", "docs", "openapi.json"), &doc)
	s.schemas, s.count = doc.Components.Schemas, map[string]int{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			var spec map[string]any
			if err := json.Unmarshal(doc.Paths[path][method], &spec); err != nil {
				s.t.Fatal(err)
			}
			id, _ := spec["operationId"].(string)
			if responses, ok := spec["responses"].(map[string]any); ok && !slices.Contains(leftOut, id) {
				s.operations = append(s.operations, operation{id, strings.ToUpper(method), path, spec, slices.Sorted(maps.Keys(responses))})
			}
		}
	}
	var protocol struct {
		Defs map[string]any `json:"$defs"`
	}
	readJSON(s.t, filepath.Join("..", "..", "acp", "schema", "v1.unstable.json"), &protocol)
	s.protocol, s.params = protocol.Defs, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(protocol.Defs)) {
		def, _ := protocol.Defs[name].(map[string]any)
		if method, _ := def["x-method"].(string); method != "" && def["x-side"] == "agent" && (strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Notification")) {
			s.methods = append(s.methods, method)
			s.params[method] = def
		}
	}
	if len(s.operations) < 40 || len(s.methods) < 10 {
		s.t.Fatalf("the documents have %d operations and %d methods", len(s.operations), len(s.methods))
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *surface) answered(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[op]
}

// found notes an id; the oldest goes.
func (s *surface) found(what, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" && !slices.Contains(s.known[what], id) {
		s.known[what] = append(s.known[what], id)
		s.known[what] = s.known[what][max(0, len(s.known[what])-8):]
	}
}

// surfaceClient sends one request after the other.
type surfaceClient struct {
	*surface
	rand *rand.Rand
}

func (c *surfaceClient) one(of ...string) string { return of[c.rand.IntN(len(of))] }

// id is one that somebody has found, or none of anything.
func (c *surfaceClient) id(what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[what]; len(known) > 0 && c.rand.IntN(10) > 0 {
		return known[c.rand.IntN(len(known))]
	}
	return c.one("nobody", "0", "..", "%2e%2e", "\x00", strings.Repeat("x", 3000), "ä 😀")
}

// path is one of a file below the root, or one that is not allowed.
func (c *surfaceClient) path() string {
	name := c.one("a", "a/b", "a/b/c.txt", "d.txt", "e", "", ".", "ä ö", "a//b/")
	switch c.rand.IntN(12) {
	case 0:
		return c.one("..", "../x", "/etc/passwd", "~", "\x00", "/proc/self/environ", strings.Repeat("long/", 900), "-", "*")
	case 1, 2, 3:
		return name
	}
	return filepath.Join(c.root, name)
}

// word is a text that a property of this name may have.
func (c *surfaceClient) word(name string) string {
	switch name {
	case "path", "from", "to", "cwd", "uri":
		return c.path()
	case "id", "sessionId":
		return c.id("session")
	case "agent":
		return c.one("mock", "mock", "claude", "nobody")
	case "methodId", "modeId", "modelId", "configId", "value", "name", "title":
		return c.one("plan", "default", "mock-small", "mock-login", "model", "mode", "x", "")
	case "text":
		return c.one("hello", "echo x", "tool", "diff", "plan", "usage", "stream 20 10", "permission", "question", "slow", "title t", "crash", "commands")
	case "cursor", "after", "since", "tail", "Last-Event-ID":
		return c.one("0", "1", "5", "-1", "99999999999999999999", "x", "")
	}
	return c.one("", "x", "true", "0", "-1", "1e9", "*", "\"", "\u2028", "\x00", strings.Repeat("y", 5000), "日本")
}

// value is one that fits a schema, most of the time.
func (c *surfaceClient) value(schema any, defs map[string]any, name string, depth int) any {
	s, _ := schema.(map[string]any)
	if c.rand.IntN(25) == 0 || depth > 6 {
		return []any{nil, -1, 1e300, "", []any{}, map[string]any{}, map[string]any{"x": nil}, true, c.word(name)}[c.rand.IntN(9)]
	}
	if ref, ok := s["$ref"].(string); ok {
		return c.value(defs[ref[strings.LastIndexByte(ref, '/')+1:]], defs, name, depth+1)
	}
	if only, ok := s["const"]; ok {
		return only
	}
	if all, ok := s["enum"].([]any); ok && len(all) > 0 {
		return all[c.rand.IntN(len(all))]
	}
	for _, some := range []string{"oneOf", "anyOf"} {
		if all, ok := s[some].([]any); ok && len(all) > 0 {
			return c.merged(s, c.value(all[c.rand.IntN(len(all))], defs, name, depth+1), defs, depth)
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		var v any = map[string]any{}
		for _, one := range all {
			v = merge(v, c.value(one, defs, name, depth+1))
		}
		return c.merged(s, v, defs, depth)
	}
	kind, _ := s["type"].(string)
	if kinds, ok := s["type"].([]any); ok && len(kinds) > 0 {
		kind, _ = kinds[c.rand.IntN(len(kinds))].(string)
	}
	switch kind {
	case "string":
		return c.word(name)
	case "boolean":
		return c.rand.IntN(2) == 0
	case "integer", "number":
		if strings.HasSuffix(name, "Ms") || name == "timeout" {
			return c.rand.IntN(200)
		}
		return []int64{0, 1, 2, 10, 100, -1, 1 << 40}[c.rand.IntN(7)]
	case "array":
		out := []any{}
		for range c.rand.IntN(3) {
			out = append(out, c.value(s["items"], defs, name, depth+1))
		}
		return out
	case "null":
		return nil
	}
	return c.object(s, defs, depth)
}

func (c *surfaceClient) object(s, defs map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if must := slices.Contains(required, any(name)); must && c.rand.IntN(30) > 0 || !must && c.rand.IntN(3) == 0 {
			out[name] = c.value(properties[name], defs, name, depth+1)
		}
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		out[c.one("A", "PATH_X", "LANG")] = c.value(more, defs, "", depth+1)
	}
	return out
}

func (c *surfaceClient) merged(s map[string]any, v any, defs map[string]any, depth int) any {
	if s["properties"] == nil {
		return v
	}
	return merge(c.object(s, defs, depth), v)
}

func merge(a, b any) any {
	to, ok := a.(map[string]any)
	from, both := b.(map[string]any)
	if ok && both {
		maps.Copy(to, from)
		return to
	}
	return b
}

// step sends one request and looks at its answer. The first ones are of each operation.
func (c *surfaceClient) step(i int) {
	op := c.operations[c.rand.IntN(len(c.operations))]
	if i < len(c.operations) {
		op = c.operations[i]
	} else if op.id == "closeConnection" && c.rand.IntN(4) > 0 || c.rand.IntN(3) == 0 { // where most of the state is
		i := slices.IndexFunc(c.operations, func(o operation) bool { return o.id == "postMessage" })
		op = c.operations[i]
	}
	what := "session"
	if strings.HasPrefix(op.path, "/v2/processes") {
		what = "process"
	}
	path := op.path
	query, header := url.Values{}, http.Header{}
	parameters, _ := op.spec["parameters"].([]any)
	for _, p := range parameters {
		p, _ := p.(map[string]any)
		name, _ := p["name"].(string)
		text := fmt.Sprint(c.value(p["schema"], c.schemas, name, 0))
		switch in := p["in"]; {
		case in == "path" && name == "id":
			path = strings.ReplaceAll(path, "{id}", url.PathEscape(c.id(what)))
		case in == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(c.word(name)))
		case p["required"] != true && c.rand.IntN(3) > 0:
		case in == "query":
			query.Set(name, text)
		case strings.HasSuffix(strings.ToLower(name), "connection-id"):
		case strings.HasSuffix(strings.ToLower(name), "session-id") && c.rand.IntN(20) > 0:
		case in == "header" && !strings.ContainsAny(text, "\x00\r\n"):
			header.Set(name, text)
		}
	}
	body := c.body(op, header, query)
	if body == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*patience)
	defer cancel()
	// A turn may wait for ever: whoever leaves it changes nothing.
	streams := strings.Contains(header.Get("X-Surface"), "prompt") || op.id == "watchFiles" || op.id == "followSessions" || op.id == "openStream" || strings.Contains(header.Get("Accept"), "event-stream")
	if streams {
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, op.method, c.url+path+"?"+query.Encode(), body)
	if err != nil {
		c.t.Errorf("%s %s: %v", op.method, path, err)
		return
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if !streams || !errors.Is(err, context.DeadlineExceeded) {
			c.t.Errorf("%s %s?%s: %v", op.method, path, query.Encode(), err)
		}
		c.note(op.id)
		return
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil && !streams {
		c.t.Errorf("%s %s?%s: %d, then %v", op.method, path, query.Encode(), res.StatusCode, err)
	}
	c.note(op.id)
	c.look(op, req, res, b)
}

func (c *surfaceClient) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[what]++
}

// body makes the request's body, nil for a request that is better not sent.
func (c *surfaceClient) body(op operation, header http.Header, query url.Values) io.Reader {
	spec, _ := op.spec["requestBody"].(map[string]any)
	content, _ := spec["content"].(map[string]any)
	if op.id == "postMessage" || strings.HasSuffix(op.path, "/rpc") {
		if id := c.id("connection"); len(id) < 100 && !strings.ContainsAny(id, "\x00") && c.rand.IntN(12) > 0 {
			name := "X-ACP-Connection-Id" // most are of the inline dialect, which answers
			if c.rand.IntN(10) == 0 {
				name = "Acp-Connection-Id"
			}
			header.Set(name, url.QueryEscape(id))
		}
	}
	kinds := slices.Sorted(maps.Keys(content))
	if len(kinds) == 0 {
		return http.NoBody
	}
	kind := kinds[c.rand.IntN(len(kinds))]
	if c.rand.IntN(30) == 0 {
		kind = "text/plain"
	}
	if kind != "*/*" {
		header.Set("Content-Type", kind)
	}
	if op.id == "postMessage" {
		return c.frame(header, query)
	}
	media, _ := content["application/json"].(map[string]any)
	if media == nil || c.rand.IntN(30) == 0 {
		return strings.NewReader(c.one("", "x", "{", "\x1f\x8b", "\x28\xb5\x2f\xfd\x00", strings.Repeat("z", 20_000)))
	}
	v := c.value(media["schema"], c.schemas, "", 0)
	if m, ok := v.(map[string]any); ok && m["command"] != nil { // nothing that reaches out of the test
		m["command"], m["args"] = "sh", []any{"-c", c.one("exit 3", "echo x", "sleep 0.05", "cat", "trap '' TERM; sleep 0.2", "echo e >&2; kill $$")}
		delete(m, "env")
	}
	b, err := json.Marshal(v)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	return bytes.NewReader(b)
}

// frame is a message of ACP, or what is none.
func (c *surfaceClient) frame(header http.Header, query url.Values) io.Reader {
	if c.rand.IntN(30) == 0 {
		return strings.NewReader(c.one("", "[]", "{", `{"jsonrpc":"1.0","id":1,"method":"x"}`, `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`, `{"jsonrpc":"2.0","id":{},"method":"x"}`, "\xff"))
	}
	method := c.methods[c.rand.IntN(len(c.methods))]
	if len(header.Get("X-Acp-Connection-Id")+header.Get("Acp-Connection-Id")) == 0 {
		method = c.one("initialize", "initialize", "initialize", method)
	} else if c.rand.IntN(3) == 0 {
		method = c.one("session/new", "session/new", "session/new", "session/prompt", "session/prompt", "session/load", "session/close", "session/cancel", "session/resume", "session/fork", "session/delete")
	}
	params := c.value(c.params[method], c.protocol, "", 0)
	if m, ok := params.(map[string]any); ok {
		if method == "initialize" && c.rand.IntN(6) > 0 {
			m["protocolVersion"] = 1
		}
		if method == "session/new" && c.rand.IntN(4) > 0 {
			m["cwd"], m["mcpServers"] = c.root, []any{}
		}
		if servers, ok := m["mcpServers"].([]any); ok && len(servers) > 0 {
			m["mcpServers"] = []any{}
		}
		if method == "session/prompt" && c.rand.IntN(4) > 0 {
			m["prompt"] = []any{map[string]any{"type": "text", "text": c.word("text")}}
		}
	}
	query.Del("agent")
	if method == "initialize" && c.rand.IntN(4) == 0 {
		query.Set("agent", c.one("mock", "mock", "nobody"))
	}
	header.Set("X-Surface", method)
	f := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if method != "session/cancel" || c.rand.IntN(10) == 0 {
		f["id"] = []any{c.rand.IntN(100), strconv.Itoa(c.rand.IntN(100)), -1}[c.rand.IntN(3)]
	}
	b, err := json.Marshal(f)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	return bytes.NewReader(b)
}

// look checks an answer, and finds ids in it.
func (c *surfaceClient) look(op operation, req *http.Request, res *http.Response, b []byte) {
	status := strconv.Itoa(res.StatusCode)
	c.note(op.id + " " + status)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	bad := func(format string, args ...any) {
		c.t.Errorf("%s %s: %s\n%d %s: %.2000s", req.Method, req.URL.RequestURI(), fmt.Sprintf(format, args...), res.StatusCode, kind, b)
	}
	if status == "500" || !slices.Contains(op.statuses, status) {
		bad("the document has %v", op.statuses)
		return
	}
	var rpc struct{ Error *rpcError }
	if op.id == "postMessage" && json.Unmarshal(b, &rpc) == nil && rpc.Error != nil {
		c.note(fmt.Sprintf("%s %d", req.Header.Get("X-Surface"), rpc.Error.Code))
		if rpc.Error.Code == -32603 && !strings.Contains(string(b), "urn:sandbox-agent:error:") {
			bad("an internal error without a kind")
		}
		return
	}
	if res.StatusCode >= 400 {
		var p struct {
			Type, Title string
			Status      int
		}
		if err := json.Unmarshal(b, &p); kind != "application/problem+json" || err != nil || p.Status != res.StatusCode || p.Title == "" || !strings.HasPrefix(p.Type, "urn:sandbox-agent:error:") {
			bad("this is no problem document: %v", err)
		}
		return
	}
	if kind != "application/json" || res.StatusCode == http.StatusPartialContent || op.id == "getFile" {
		return
	}
	var answer struct {
		ID, SessionID string
		Result        struct{ SessionID string }
		Sessions      []struct{ SessionID string }
		Processes     []struct{ ID string }
	}
	if !json.Valid(b) {
		bad("this is no JSON")
		return
	}
	_ = json.Unmarshal(b, &answer) // an id may be a number
	if op.id == "postMessage" {
		c.note(req.Header.Get("X-Surface") + " ok")
		c.found("connection", res.Header.Get("X-Acp-Connection-Id"))
		c.found("session", answer.Result.SessionID)
		return
	}
	if op.id == "startProcess" {
		c.found("process", answer.ID)
	}
	c.found("session", answer.SessionID)
	for _, s := range answer.Sessions {
		c.found("session", s.SessionID)
	}
	for _, p := range answer.Processes {
		c.found("process", p.ID)
	}
}
