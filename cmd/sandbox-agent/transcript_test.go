package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func TestTranscript(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "diff")
	id := sessionIn(errOut)
	for _, prompt := range []string{"tool", "echo the word is heron"} {
		if code, _, errOut := tool(t, "", "prompt", "--session", id, prompt); code != cmdline.ExitOK {
			t.Fatalf("exit %d, %s", code, errOut)
		}
	}
	for format, want := range map[string][]string{
		"markdown": {"# diff\n", "\n## User\n\ndiff\n", "```diff\n@@ -1 +1,2 @@\n first line\n+second line\n```", "✓ Read notes.txt</summary>", "the word is [removed]", "Left out:"},
		"html":     {"<!doctype html>", `<span class="added">+second line`, "the word is [removed]", "Left out:"},
		"jsonl":    {`"kind":"user"`, `"text":"the word is [removed]"`, `"leftOut":{"secrets":2}`},
	} {
		code, out, errOut := tool(t, "", "sessions", "show", id, "--format", format, "--redact", "heron")
		if code != cmdline.ExitOK {
			t.Errorf("%s: exit %d, %s", format, code, errOut)
		}
		for _, part := range want {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q is not in\n%s", format, part, out)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "page.html")
	code, out, _ := tool(t, "", "sessions", "show", id, "--format", "html", "-o", file)
	if page, err := os.ReadFile(file); code != cmdline.ExitOK || out != "" || err != nil || !strings.HasSuffix(string(page), "</html>\n") || !strings.Contains(string(page), "heron") {
		t.Errorf("exit %d, %q, %v", code, out, err)
	}
	for _, tt := range []struct {
		query string
		want  int
		kind  string // of the answer, or a part of the problem
	}{
		{"", 200, "text/markdown"},
		{"?format=html", 200, "text/html"},
		{"?format=jsonl&thoughts=true", 200, "application/x-ndjson"},
		{"?format=pdf", 400, "format must be one of"},
		{"?redact=(", 400, "missing closing"},
		{"?redact=x*", 400, "matches the empty text"},
		{"?thoughts=perhaps", 400, "thoughts must be true or false"},
	} {
		resp, err := http.Get(url + "/v2/sessions/" + id + "/transcript" + tt.query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tt.want || !strings.Contains(resp.Header.Get("Content-Type")+string(body), tt.kind) {
			t.Errorf("%q: %d %s, %v\n%s", tt.query, resp.StatusCode, resp.Header.Get("Content-Type"), err, body)
		}
		if tt.want == 200 && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%q: a browser would run it as the gateway's own page: %v", tt.query, resp.Header)
		}
	}
	for _, args := range [][]string{{"--format", "pdf"}, {"--redact", "x"}, {"--format", "html", "--redact", "("}} {
		if code, _, errOut := tool(t, "", append([]string{"sessions", "show", id}, args...)...); code != cmdline.ExitUsage {
			t.Errorf("%q: exit %d, %s", args, code, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "sessions", "show", "no-such-session", "--format", "html"); code != cmdline.ExitNotFound {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
