package fleet_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/control/openapi"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// who returns who may use what: each operation as the hub's document says it, and what is beside
// that. The routes themselves are not asked.
func who(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		" /v2/peer/nodes/{name}/{rest...}":  "nobody that has a token",
		" /nodes/{name}":                    "all", // leads to the page, whether there is a node or not
		" /nodes/{name}/":                   "all",
		" /":                                "all",
		" /ui":                              "all",
		" /ui/{rest...}":                    "all",
		" /nodes/{name}/ui":                 "all",
		" /nodes/{name}/ui/{rest...}":       "all",
		" /nodes/{name}/{rest...}":          "drive admin own",
		"read /nodes/{name}/v2/sessions":    "read drive admin own",
		"socket /nodes/{name}/v2/sessions":  "drive admin own",
		"dots /nodes/{name}/v2/x/../health": "drive admin own",
		" /v2/sessions/{id}/{rest...}":      "drive admin own",
		"read /v2/sessions/{id}/raw":        "read drive admin own",
		"dots /v2/sessions/{id}/x/../raw":   "drive admin own",
	}
	for key, a := range described(t) {
		switch a.Token {
		case "none":
			out[key] = "all"
		case "join":
			out[key] = "join"
		case "client":
			may := map[string]string{"read": "read drive admin", "drive": "drive admin", "admin": "admin"}[a.Scope]
			if a.Scope != "admin" && a.Nodes != openapi.AllNodes { // both may drive
				may += map[string]string{openapi.ThisNode: " own", openapi.AnyNode: " own other"}[a.Nodes]
			}
			out[key] = may
		default:
			t.Errorf("%s is for tokens of the kind %q", key, a.Token)
		}
	}
	return out
}

// tokens are of everybody who may come. Own is for the node of the test by its label,
// other for nodes with another one; both may do all that is not the hub's own.
func tokens(h *hub) map[string]string {
	client := func(s store.Scope, labels map[string]string) string {
		return h.token(fleet.NewToken{Kind: store.KindClient, Scope: s, Labels: labels})
	}
	revoked := client(store.ScopeAdmin, nil)
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(revoked), adminToken, nil); status != http.StatusNoContent {
		h.t.Fatalf("revoke: %d %s", status, body)
	}
	return map[string]string{
		"none": "", "invented": "sah-aaaaaaaaaaaa-BBBBBBBBBBBBBBBBBBBBBBBBBB", "revoked": revoked,
		"truncated": client(store.ScopeAdmin, nil)[:20],
		"join":      h.joinToken(),
		"read":      client(store.ScopeRead, nil), "drive": client(store.ScopeDrive, nil), "admin": client(store.ScopeAdmin, nil),
		"own": client(store.ScopeDrive, map[string]string{"team": "a"}), "other": client(store.ScopeDrive, map[string]string{"team": "b"}),
	}
}

func idOf(token string) string { return strings.Split(token, "-")[1] }

func TestAccess_EveryRoute(t *testing.T) {
	h := startCopier(t)
	all := tokens(h)
	g := newGateway()
	g.put("session", begun, said(1, "one"))
	h.join("box", h.joinToken(), map[string]string{"team": "a"}, g)
	h.copied("session", 1)
	for key, may := range who(t) {
		kind, path, _ := strings.Cut(key, " ")
		for holder, token := range all {
			for _, name := range []string{"box", "nobody"} {
				if name == "nobody" && !strings.Contains(path, "{name}") {
					continue
				}
				method, header := kind, http.Header{}
				switch kind {
				case "", "socket", "read", "dots":
					method = http.MethodGet
				}
				if kind == "socket" {
					header.Set("Connection", "Upgrade")
					header.Set("Upgrade", "websocket")
				}
				at := strings.NewReplacer("/ui/{rest...}", "/ui/", "{name}", name, "sessions/{id}", "sessions/session", "{id}", "nothing", "{rest...}", "v2/fs/file").Replace(path)
				req, err := http.NewRequestWithContext(t.Context(), method, h.url+at, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header = header
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				resp, err := plain.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				in := may == "all" || slices.Contains(strings.Fields(may), holder)
				known := slices.Contains([]string{"read", "drive", "admin", "own", "other", "join"}, holder)
				refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.Header.Get("Content-Type") == "application/problem+json" && resp.StatusCode == http.StatusNotFound && (strings.Contains(path, "{name}") || strings.Contains(path, "sessions/{id}"))
				switch {
				case !in && !known && resp.StatusCode != http.StatusUnauthorized:
					t.Errorf("%s %s as %s: %d, want 401", kind, at, holder, resp.StatusCode)
				case !in && !refused:
					t.Errorf("%s %s as %s: %d, want it refused", kind, at, holder, resp.StatusCode)
				case in && name == "box" && refused:
					t.Errorf("%s %s as %s: %d, want it allowed", kind, at, holder, resp.StatusCode)
				}
			}
		}
	}
}

// Whether there is a node that is not for them, nobody learns by comparing answers.
func TestAccess_ForeignNodeIsAsNone(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("there", begun, said(1, "secret words"))
	h.join("there", h.joinToken(), map[string]string{"team": "a"}, g)
	h.copied("there", 1)
	foreign := map[string]string{
		"read":  h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeRead, Labels: map[string]string{"team": "b"}}),
		"drive": h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Node: "elsewhere"}),
		"admin": h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin, Labels: map[string]string{"team": "b"}}),
		"join":  h.joinToken(),
		"none":  "",
	}
	// The position grows with whatever changes in the hub's list.
	own := regexp.MustCompile(`"requestId":"[^"]*"|"position":[0-9]+`)
	for holder, token := range foreign {
		for _, ask := range []string{
			"GET /v2/nodes/NAME", "DELETE /v2/nodes/NAME", "GET /nodes/NAME/v2/sessions", "POST /nodes/NAME/v2/rpc", "GET /nodes/NAME/v2/rpc", "GET /nodes/NAME/metrics",
			"GET /v2/sessions/NAME", "DELETE /v2/sessions/NAME", "GET /v2/sessions/NAME/events", "GET /v2/sessions/NAME/transcript", "GET /v2/sessions/NAME/export", "POST /v2/sessions/NAME/move",
			"GET /v2/sessions?node=NAME", "GET /v2/sessions?q=secret+words&cwd=NAME", "GET /v2/sessions/NAME?node=NAME&epoch=1",
			"GET /nodes/NAME/ui/", "GET /nodes/NAME/", "GET /nodes/NAME/ui/no-such-file",
		} {
			method, path, _ := strings.Cut(ask, " ")
			answer := func(name string) string {
				resp := h.open(method, strings.ReplaceAll(path, "NAME", name), token, nil)
				defer resp.Body.Close()
				var b strings.Builder
				resp.Header.Del("X-Request-Id")
				resp.Header.Del("Date")
				resp.Header.Del("Content-Length")
				if err := resp.Header.Write(&b); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 4096)
				n, _ := resp.Body.Read(buf) // its problem is short
				return resp.Status + b.String() + strings.ReplaceAll(own.ReplaceAllString(string(buf[:n]), ""), name, "NAME")
			}
			one, other := strings.ReplaceAll(answer("there"), "there", "NAME"), strings.ReplaceAll(answer("nowhere"), "nowhere", "NAME")
			if strings.ReplaceAll(one, "NAME is no", "there is no") != strings.ReplaceAll(other, "NAME is no", "there is no") {
				t.Errorf("%s as %s: a node that is there\n%s\nand one that is not\n%s", ask, holder, one, other)
			}
		}
	}
	if _, body := h.ask(http.MethodGet, "/v2/nodes", foreign["drive"], nil); strings.Contains(string(body), "there") {
		t.Errorf("the list shows a foreign node: %s", body)
	}
}

// readable are the operations of a gateway that the scope read allows. Every other
// one of its API needs drive, also those that are added.
var readable = []string{
	"get /v2/health", "get /v2/ready", "get /v2/version", "get /v2/openapi.json", "get /v2/agents", "get /v2/agents/{agent}",
	"get /v2/agents/{agent}/install", "get /v2/sessions", "get /v2/sessions/changes", "get /v2/sessions/{id}", "get /v2/sessions/{id}/events",
	"get /v2/sessions/{id}/permissions", "get /v2/sessions/{id}/raw", "get /v2/sessions/{id}/transcript", "get /v2/processes", "get /v2/processes/config", "get /v2/processes/{id}", "get /v2/processes/{id}/logs", "get /metrics",
}

func TestAccess_EveryOperationOfANode(t *testing.T) {
	b, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(b, &api); err != nil {
		t.Fatal(err)
	}
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	read := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeRead})
	drive := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	n := 0
	for path, operations := range api.Paths {
		for method := range operations {
			if !slices.Contains([]string{"get", "head", "post", "put", "delete", "patch"}, method) {
				continue
			}
			n++
			at := "/nodes/box" + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "a-1")
			want := http.StatusForbidden
			if slices.Contains(readable, method+" "+path) {
				want = http.StatusTeapot
			}
			if status, body := h.ask(strings.ToUpper(method), at, read, nil); status != want {
				t.Errorf("%s %s with read: %d, want %d: %s", method, path, status, want, body)
			}
			if status, body := h.ask(strings.ToUpper(method), at, drive, nil); status != http.StatusTeapot {
				t.Errorf("%s %s with drive: %d: %s", method, path, status, body)
			}
		}
	}
	if n < 40 {
		t.Errorf("%d operations were found", n)
	}
	// What can be read in two ways needs more.
	for _, path := range []string{"/v2/sessions/..%2frpc", "/v2/sessions/../rpc", "/v2/./health", "/v2/sessions/a%2fclose", "//v2/health", "/v2/health/", "/V2/health", "/v2/%73essions"} {
		if status, body := h.ask(http.MethodGet, "/nodes/box"+path, read, nil); status != http.StatusForbidden {
			t.Errorf("%s with read: %d: %s", path, status, body)
		}
	}
}

func TestTokens_BadOnesAreRefused(t *testing.T) {
	h := startHub(t)
	past, none := time.Now().Add(-time.Hour), int64(0)
	for body, want := range map[any]string{
		&fleet.NewToken{}:                                                              "kind",
		&fleet.NewToken{Kind: "peer"}:                                                  "kind",
		&fleet.NewToken{Kind: store.KindClient, Scope: "root"}:                         "scope",
		&fleet.NewToken{Kind: store.KindJoin, Scope: store.ScopeRead}:                  "no scope",
		&fleet.NewToken{Kind: store.KindClient, Expires: &past}:                        "by the hub's clock: choose a time to come",
		&fleet.NewToken{Kind: store.KindClient, Expires: &past, ExpiresIn: &none}:      "expires and expiresIn are both given",
		&fleet.NewToken{Kind: store.KindClient, ExpiresIn: &none}:                      "expiresIn is 0: give 1 to",
		&fleet.NewToken{Kind: store.KindClient, Node: "../x"}:                          "name of a node",
		&fleet.NewToken{Kind: store.KindClient, Labels: map[string]string{"a b": "c"}}: "name of a label",
		&fleet.NewToken{Kind: store.KindClient, Note: strings.Repeat("x", 300)}:        "note",
		&map[string]any{"kind": "client", "scopes": "admin"}:                           "scopes",
		&map[string]any{"kind": 1}:                                                     "kind must be a string",
		&map[string]any{"kind": "client", "node": ""}:                                  "node is empty",
		&fleet.NewToken{Kind: store.KindClient, Note: "\u001b[31m"}:                    "cannot be shown",
	} {
		status, answer := h.ask(http.MethodPost, "/v2/tokens", adminToken, body)
		if status != http.StatusBadRequest || kindOf(answer) != "invalid_request" || !strings.Contains(string(answer), want) {
			t.Errorf("%+v: %d %s, want 400 with %q", body, status, answer, want)
		}
	}
	if status, body := h.ask(http.MethodPost, "/v2/tokens", adminToken, strings.Repeat("x", 70<<10)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", status, body)
	}
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/no%20one", adminToken, nil); status != http.StatusNotFound || !strings.Contains(string(body), `no token \"no one\"`) {
		t.Errorf("revoke one that there is not: %d %s", status, body)
	}
	if _, body := h.ask(http.MethodGet, "/v2/tokens", adminToken, nil); string(body) != `{"tokens":[]}`+"\n" {
		t.Errorf("after all that there are tokens: %s", body)
	}
}

// A time from now is one of the hub's clock.
func TestTokens_ExpireInSeconds(t *testing.T) {
	h := startHub(t)
	in, before := int64(3600), time.Now().Add(time.Hour).Truncate(time.Second)
	status, body := h.ask(http.MethodPost, "/v2/tokens", adminToken, fleet.NewToken{Kind: store.KindClient, ExpiresIn: &in})
	var made fleet.CreatedToken
	if err := json.Unmarshal(body, &made); status != http.StatusCreated || err != nil {
		t.Fatalf("make a token: %d %s", status, body)
	}
	if at := made.Expires; at == nil || at.Before(before) || at.After(time.Now().Add(time.Hour)) {
		t.Errorf("it expires at %v", at)
	}
}

func TestTokens_TextIsNotKept(t *testing.T) {
	dir := t.TempDir()
	h := startHubOn(t, "hub", store.Options{Dir: dir})
	text := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeRead, Note: "find-this"})
	secret := text[strings.LastIndex(text, "-")+1:]
	_, list := h.ask(http.MethodGet, "/v2/tokens", adminToken, nil)
	if strings.Contains(string(list), secret) || strings.Contains(string(list), "hash") {
		t.Errorf("the list has the token or its hash: %s", list)
	}
	found := false
	for name, b := range filesIn(t, dir) {
		if strings.Contains(b, secret) {
			t.Errorf("%s has the token", name)
		}
		found = found || strings.Contains(b, "find-this")
	}
	if !found {
		t.Error("the record of the token was not found, so nothing was looked at")
	}
}

func TestTokens_ExpireAlsoWhileUsed(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	var (
		at    time.Time
		token string
		resp  *http.Response
	)
	for lasts := 2 * time.Second; lasts < time.Minute; lasts *= 2 { // a machine with much else to do needs a longer one
		at = time.Now().Add(lasts)
		status, body := h.ask(http.MethodPost, "/v2/tokens", adminToken, fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Expires: &at})
		if status == http.StatusBadRequest && strings.Contains(string(body), "would expire") {
			continue
		}
		var made fleet.CreatedToken
		if err := json.Unmarshal(body, &made); status != http.StatusCreated || err != nil {
			t.Fatalf("make a token: %d %s", status, body)
		}
		token = made.Text
		resp = h.open(http.MethodGet, "/nodes/box/v2/sessions/changes", token, nil)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			break
		}
	}
	if resp == nil {
		t.Fatal("no token lasts until it is used")
	}
	if n, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Errorf("the stream gave %d bytes, want it cut when the token has expired", n)
	}
	if time.Now().Before(at.Truncate(time.Second)) {
		t.Error("the stream was cut before the token has expired")
	}
	if status, body := h.ask(http.MethodGet, "/v2/version", token, nil); status != http.StatusUnauthorized {
		t.Errorf("with the expired token: %d %s", status, body)
	}
}

// What has only begun with a token ends with it, too: a request that has not come to its end, and a WebSocket on
// which nothing was said.
func TestTokens_EndWhatHasBegun(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for name, head := range map[string]string{
		"a message": "POST /v2/rpc HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n",
		"a token":   "POST /v2/tokens HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n",
		"WebSocket": "GET /v2/rpc HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t)
			_, made := h.ask(http.MethodPost, "/v2/tokens", adminToken, fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin})
			var token fleet.CreatedToken
			if err := json.Unmarshal(made, &token); err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "%sHost: hub\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\n\r\n", head, token.Text); err != nil {
				t.Fatal(err)
			}
			answer := bufio.NewReader(conn)
			if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, " 10") { // it is being served
				t.Fatalf("%q, %v", line, err)
			}
			if status, b := h.ask(http.MethodDelete, "/v2/tokens/"+token.ID, adminToken, nil); status != http.StatusNoContent {
				t.Fatalf("revoke: %d %s", status, b)
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if b, err := io.ReadAll(answer); err != nil || !strings.Contains(string(b), "the token was revoked or has expired") {
				t.Errorf("it ended with %q, %v", b, err)
			}
		})
	}
}

// filesIn returns what the files below a folder hold, which are their owner's alone.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	look := func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %v", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		if err == nil {
			out[path] = string(b)
		}
		return err
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err = look(path, e, err); errors.Is(err, fs.ErrNotExist) {
			return nil // the store lives, and has let go of it meanwhile
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A body that is wrong is answered in the words of JSON: the member, and what it must be.
func TestHub_BodiesThatAreWrong(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	s := h.hello(adminToken).session("one")
	for path, bodies := range map[string]map[string]string{
		"/v2/tokens": {
			`{"kind":7}`:                          "kind must be a string, not a number",
			`{"kind":"client","labels":"a=b"}`:    "labels must be an object, not a string",
			`{"kind":"client","expires":"never"}`: "a time is written as in",
			`{"kind":"client","scopes":"read"}`:   `there is no member "scopes"`,
			``:                                    "it is empty",
		},
		"/v2/sessions/" + s + "/move": {
			`{"node":["one"]}`:    "node must be a string, not an array",
			`{"workspace":"yes"}`: "workspace must be true or false, not a string",
			`{"node":"one"`:       "it ends in the middle",
		},
	} {
		for body, want := range bodies {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+adminToken)
			resp, err := plain.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			var said struct{ Detail string }
			err = json.NewDecoder(resp.Body).Decode(&said)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(said.Detail, want) || strings.Contains(said.Detail, "Go ") {
				t.Errorf("%s %s: %d %s %v", path, body, resp.StatusCode, said.Detail, err)
			}
		}
	}
}
