package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// cutting is a way to a gateway that breaks once in the middle of what matches.
func cutting(t *testing.T, to, path string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	var broken atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, path) || broken.Swap(true) {
			proxy.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPost && strings.HasSuffix(path, "close") {
			panic(http.ErrAbortHandler) // before the gateway hears of it
		}
		resp, err := http.Get(to + r.URL.RequestURI())
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.CopyN(w, resp.Body, 600)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTeleport(t *testing.T) {
	dataOne, dataTwo, files := t.TempDir(), t.TempDir(), t.TempDir()
	one, _ := start(t, "--data-dir", dataOne, "--ephemeral=false")
	two, _ := start(t, "--data-dir", dataTwo, "--ephemeral=false")
	apis := map[string]*client.Client{}
	for _, u := range []string{one, two} {
		api, err := client.New(u, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		apis[u] = api
	}
	session := func(at, id string) runtime.SessionInfo {
		t.Helper()
		s, err := apis[at].Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	home, there := filepath.Join(files, "home"), filepath.Join(files, "there")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "notes"), []byte("here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SANDBOX_AGENT_ENDPOINT", one)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", home, "--mcp", "near=/bin/true", "echo the key is sk-ant-0123456789abcdef0123")
	id := sessionIn(errOut)

	// The connection breaks while the session is read: it is where it was.
	if code, _, errOut := tool(t, "", "teleport", "--from", cutting(t, one, "/export"), "--to", two, "--cwd", there, id); code == cmdline.ExitOK || !strings.Contains(errOut, "could not be read to its end") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if _, err := apis[two].Session(t.Context(), id); err == nil {
		t.Error("half of a session is there")
	}
	// The gateway opens it again when it sees that nobody reads.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for change, err := range apis[one].FollowSessions(ctx, 0, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if s := change.Session; s != nil && s.ID == id && s.State != runtime.StateClosed {
			break
		}
	}
	if _, err := os.Stat(there); err == nil {
		t.Error("half of a workspace")
	}
	// It breaks when the session is to be closed: it is at both, and the command goes on.
	if code, _, errOut := tool(t, "", "teleport", "--from", cutting(t, one, "/close"), "--to", two, "--cwd", there, id); code == cmdline.ExitOK {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if session(two, id).EventCount != session(one, id).EventCount {
		t.Errorf("%+v and %+v", session(one, id), session(two, id))
	}
	if err := os.WriteFile(filepath.Join(home, "late"), []byte("made meanwhile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // repeated, it says the same
		code, out, errOut := tool(t, "", "teleport", "--to", two, "--cwd", there) // the session that was used last
		if code != cmdline.ExitOK || !strings.Contains(out, "moved "+id+" to "+two+", "+there) {
			t.Fatalf("exit %d, %s%s", code, out, errOut)
		}
	}
	if s := session(one, id); s.State != runtime.StateClosed || !strings.Contains(string(s.Metadata), `"movedTo":"`+two+`"`) {
		t.Errorf("left behind: %+v, %s", s, s.Metadata)
	}
	for name, want := range map[string]string{"notes": "here\n", "late": "made meanwhile\n"} {
		if b, err := os.ReadFile(filepath.Join(there, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v; want %q", name, b, err, want)
		}
	}
	if record, err := os.ReadFile(filepath.Join(dataTwo, "sessions", id, "session.json")); err != nil || !strings.Contains(string(record), "/bin/true") || strings.Contains(string(record), "movedTo") {
		t.Errorf("the record: %s, %v", record, err)
	}
	if code, out, errOut := tool(t, "", "prompt", "--endpoint", two, "--session", id, "echo and on"); code != cmdline.ExitOK || !strings.Contains(out, "and on") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}

	// And back, to where the files are already. What both have changed stops it.
	write := func(dir, name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(there, "notes", "changed there\n")
	write(there, "new", "new there\n")
	write(home, "notes", "changed here\n")
	write(home, "own", "new here\n")
	if code, _, errOut := tool(t, "", "teleport", "--from", two, "--to", one, id); code == cmdline.ExitOK || !strings.Contains(errOut, "nothing was touched") || !strings.Contains(errOut, "\n  notes\n") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if _, err := os.Stat(filepath.Join(home, "new")); err == nil || session(one, id).State != runtime.StateClosed || session(two, id).State == runtime.StateClosed {
		t.Errorf("after a conflict: %v, %+v, %+v", err, session(one, id), session(two, id))
	}
	write(home, "notes", "here\n")
	if code, out, errOut := tool(t, "", "teleport", "--from", two, "--to", one, id); code != cmdline.ExitOK || !strings.Contains(errOut, "session: move") || !strings.Contains(errOut, "% of ") {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	for name, want := range map[string]string{"notes": "changed there\n", "new": "new there\n", "own": "new here\n"} {
		if b, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if s := session(one, id); s.State == runtime.StateClosed || s.Cwd != home || s.EventCount < session(two, id).EventCount {
		t.Errorf("back: %+v", s)
	}
	page, err := apis[one].Events(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range page.Events {
		all.Write(e.Message)
	}
	for _, part := range []string{"sk-ant-0123456789abcdef0123", "and on"} {
		if !strings.Contains(all.String(), part) {
			t.Errorf("%q is not in the log", part)
		}
	}
	if code, _, errOut := tool(t, "", "teleport", "--from", two, "--to", "http://127.0.0.1:9", id); code == cmdline.ExitOK || !strings.Contains(errOut, "went to "+one) {
		t.Errorf("what has gone is moved: exit %d, %s", code, errOut)
	}

	// To where it is already nothing goes, by whatever name that is called.
	for _, same := range []string{one, strings.Replace(one, "127.0.0.1", "localhost", 1)} {
		if code, _, errOut := tool(t, "", "teleport", "--from", one, "--to", same, id); code != cmdline.ExitUsage || !strings.Contains(errOut, "is the gateway that has the session already") {
			t.Errorf("to itself: exit %d, %s", code, errOut)
		}
	}
	if s := session(one, id); s.State == runtime.StateClosed {
		t.Errorf("after it was to go to itself: %s, %s", s.State, s.Metadata)
	}

	// It breaks when all is there and closed here, and the gateway is at another address then: it is told how it goes on.
	if code, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", home, "echo more"); code != cmdline.ExitOK {
		t.Fatal(errOut)
	} else {
		id = sessionIn(errOut)
	}
	before := cutting(t, two, "/v2/rpc")
	if code, _, errOut := tool(t, "", "teleport", "--no-workspace", "--to", before, id); code == cmdline.ExitOK || !strings.Contains(errOut, "where it is") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if code, _, errOut := tool(t, "", "teleport", "--no-workspace", "--to", two, id); code == cmdline.ExitOK || !strings.Contains(errOut, "went to "+before) || !strings.Contains(errOut, "prompt --endpoint "+two+" --session "+id) {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if code, out, errOut := tool(t, "", "prompt", "--endpoint", two, "--session", id, "echo and on"); code != cmdline.ExitOK || !strings.Contains(out, "and on") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	if code, out, errOut := tool(t, "", "teleport", "--no-workspace", "--to", before+"/", id); code != cmdline.ExitOK {
		t.Errorf("to the address that is noted: exit %d, %s%s", code, out, errOut)
	}

	// A copy leaves it open; one that goes on at both is not overwritten.
	if code, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", home, "--close", "echo another"); code != cmdline.ExitOK {
		t.Fatal(errOut)
	} else {
		id = sessionIn(errOut)
	}
	if code, out, errOut := tool(t, "", "teleport", "--copy", "--no-workspace", "--to", two, id); code != cmdline.ExitOK || !strings.Contains(out, "copied "+id) {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if s := session(one, id); strings.Contains(string(s.Metadata), "movedTo") {
		t.Errorf("a copy: %s", s.Metadata)
	}
	tool(t, "", "prompt", "--session", id, "echo here")
	if code, _, errOut := tool(t, "", "teleport", "--no-workspace", "--to", two, id); code == cmdline.ExitOK || !strings.Contains(errOut, "is not the same as here") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	for _, args := range [][]string{{}, {"--to", "nowhere"}, {"--to", two, "--cwd", "here"}, {"--to", two, id, id}, {"--from", "nowhere", "--to", two}} {
		if code, _, errOut := tool(t, "", append([]string{"teleport"}, args...)...); code != cmdline.ExitUsage {
			t.Errorf("%q: exit %d, %s", args, code, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "teleport", "--to", two, "no-such-session"); code != cmdline.ExitNotFound {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
