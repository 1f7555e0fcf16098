package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// unpacked returns the entries of a session's file, by name.
func unpacked(t *testing.T, file string) (m runtime.Manifest, entries map[string][]byte) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	got, err := parcel.Unpack(f, dir, parcel.Usual, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries = map[string][]byte{}
	err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		entries[filepath.ToSlash(rel)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Manifest, entries
}

// repack makes a file of entries, with correct checksums.
func repack(t *testing.T, m runtime.Manifest, entries map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := parcel.NewWriter(&b, m)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range entries {
		if err := w.Put(name, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree lists all files below a folder, with their sizes.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTravel(t *testing.T) {
	one, _ := start(t)
	data := t.TempDir()
	two, _ := start(t, "--data-dir", data, "--ephemeral=false")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", one)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--env", "GREETING=a value that is secret", "--mcp", "near=/bin/true", "echo the key is sk-ant-0123456789abcdef0123, the word is heron")
	id := sessionIn(errOut)
	if id == "" {
		t.Fatal(errOut)
	}
	file := filepath.Join(t.TempDir(), "s.tar.zst")
	if code, out, errOut := tool(t, "", "sessions", "export", id, "-o", file, "--redact", "her.n"); code != cmdline.ExitOK || out != "" {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	m, entries := unpacked(t, file)
	if m.SessionID != id || m.Agent != "mock" || m.Cwd == "" || m.LastSeq == 0 || !slices.Contains(m.LeftOut, "env.GREETING") {
		t.Errorf("manifest: %+v", m)
	}
	var all []byte
	for _, b := range entries {
		all = append(all, b...)
	}
	for _, secret := range []string{"a value that is secret", "sk-ant-0123456789abcdef0123", "heron"} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("%q is in the file", secret)
		}
	}
	if !bytes.Contains(all, []byte("the key is [removed], the word is [removed]")) {
		t.Errorf("the words are not in it: %s", all)
	}
	_, out, _ := tool(t, "", "sessions", "export", id, "-o", "-", "--keep-secrets")
	whole := filepath.Join(t.TempDir(), "whole")
	if err := os.WriteFile(whole, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, kept := unpacked(t, whole); !bytes.Contains(kept["session/log/00000001.jsonl"], []byte("sk-ant-0123456789abcdef0123, the word is heron")) {
		t.Errorf("--keep-secrets: %s", kept["session/log/00000001.jsonl"])
	}
	// It goes on where it was.
	if code, out, errOut := tool(t, "", "prompt", "--session", id, "echo still here"); code != cmdline.ExitOK || !strings.Contains(out, "still here") {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}

	t.Setenv("SANDBOX_AGENT_ENDPOINT", two)
	before := tree(t, data)
	for name, c := range map[string]struct {
		body   func() []byte
		query  string
		status int
		kind   string
	}{
		"no file": {func() []byte { return []byte("hello") }, "", 422, "not a session"},
		"a log of another one": {func() []byte {
			return altered(t, m, entries, "session/log/00000001.jsonl", `"sessionId":"`+id, `"sessionId":"other`)
		}, "", 422, "is of session"},
		"a log that is no log":  {func() []byte { return altered(t, m, entries, "session/log/00000001.jsonl", `"seq":2,`, `"seq":1,`) }, "", 422, "stands behind entry"},
		"a record of another":   {func() []byte { return altered(t, m, entries, "session/record.json", id, "other") }, "", 422, "record is of session"},
		"another record format": {func() []byte { return altered(t, m, entries, "session/record.json", `"version": 1`, `"version": 7`) }, "", 422, "record has version 7"},
		"an agent of nowhere":   {func() []byte { return altered(t, m, entries, "session/record.json", `"mock"`, `"nobody"`) }, "", 400, "does not know"},
		"files of an agent":     {func() []byte { return altered(t, m, entries, "agent/x.json", "", "{}") }, "", 422, "takes none"},
		"no directory":          {func() []byte { return repack(t, m, entries) }, "?cwd=" + filepath.Join(data, "nowhere"), 400, "cannot be used"},
		"a relative directory":  {func() []byte { return repack(t, m, entries) }, "?cwd=here", 400, "absolute path"},
		"a strange flag":        {func() []byte { return repack(t, m, entries) }, "?trust=perhaps", 400, "true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := http.Post(two+"/v2/sessions/import"+c.query, parcel.ContentType, bytes.NewReader(c.body()))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.kind) {
				t.Errorf("%d %s, %v; want %d %s", resp.StatusCode, b, err, c.status, c.kind)
			}
			if after := tree(t, data); !slices.Equal(after, before) {
				t.Errorf("it has left %q, before it was %q", after, before)
			}
		})
	}

	cwd := t.TempDir()
	code, out, errOut := tool(t, "", "sessions", "import", file, "--cwd", cwd)
	if code != cmdline.ExitOK || !strings.Contains(out, "imported "+id) || !strings.Contains(errOut, "env.GREETING") || !strings.Contains(errOut, "mcp") {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if code, _, errOut := tool(t, "", "sessions", "import", file, "--cwd", cwd); code == cmdline.ExitOK || !strings.Contains(errOut, "is here already: delete it first") {
		t.Errorf("once more: exit %d, %s", code, errOut)
	}
	if code, out, errOut := tool(t, "", "prompt", "--session", id, "echo and on"); code != cmdline.ExitOK || !strings.Contains(out, "and on") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	api, err := client.New(two, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The mock agent keeps its sessions where nobody takes them from.
	if s, err := api.Session(context.Background(), id); err != nil || s.Continuity != runtime.ContinuityFresh {
		t.Errorf("of what its agent has not: %+v, %v", s, err)
	}
	page, err := api.Events(context.Background(), id, 0, 1000)
	if err != nil || uint64(len(page.Events)) <= m.LastSeq || page.Events[0].Seq != 1 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
	record, err := os.ReadFile(filepath.Join(data, "sessions", id, "session.json"))
	if err != nil || !strings.Contains(string(record), cwd) || strings.Contains(string(record), "/bin/true") {
		t.Errorf("the record: %s, %v", record, err)
	}
	if left, _ := os.ReadDir(filepath.Join(data, "travelling")); len(left) > 0 {
		t.Errorf("on their way are still %v", left)
	}

	// What is trusted comes along.
	tool(t, "", "sessions", "delete", id)
	if code, _, errOut := tool(t, "", "sessions", "import", file, "--cwd", cwd, "--trust"); code != cmdline.ExitOK || strings.Contains(errOut, "mcp,") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if record, err = os.ReadFile(filepath.Join(data, "sessions", id, "session.json")); err != nil || !strings.Contains(string(record), "/bin/true") {
		t.Errorf("the trusted record: %s, %v", record, err)
	}
	if code, _, errOut := tool(t, "", "sessions", "export", "no-such-session", "-o", "-"); code != cmdline.ExitNotFound {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if code, _, _ := tool(t, "", "sessions", "export", id); code != cmdline.ExitUsage {
		t.Errorf("without a file: exit %d", code)
	}
	if code, _, errOut := tool(t, "", "sessions", "export", id, "-o", "-", "--redact", "("); code != cmdline.ExitUsage {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// altered makes a file with one entry changed, or made.
func altered(t *testing.T, m runtime.Manifest, entries map[string][]byte, name, from, to string) []byte {
	t.Helper()
	all := map[string][]byte{}
	for n, b := range entries {
		all[n] = b
	}
	if from != "" && !bytes.Contains(all[name], []byte(from)) {
		t.Fatalf("%q is not in %s", from, all[name])
	}
	all[name] = []byte(strings.ReplaceAll(string(all[name]), from, to))
	if from == "" {
		all[name] = []byte(to)
	}
	return repack(t, m, all)
}

// A session that works is not exported, and one that is stays open.
func TestTravel_Working(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "hello")
	id := sessionIn(errOut)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, []string{"prompt", "--session", id, "slow"}, stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	}()
	api, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for change, err := range api.FollowSessions(ctx, 0, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if change.Session != nil && change.Session.State == runtime.StateRunning {
			break
		}
	}
	_, err = api.ExportSession(ctx, id, client.ExportOptions{})
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Conflict {
		t.Errorf("a session that works: %v", err)
	}
	cancel()
	<-done
}
