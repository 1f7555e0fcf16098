package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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

// A log that was harmed says so in every format: at the place, and at the end.
func TestTranscript_OfADamagedLog(t *testing.T) {
	for name, harm := range map[string]func(log []byte) []byte{
		"in the middle": func(log []byte) []byte { clear(log[len(log)*2/5 : len(log)/2]); return log },
		"at the end":    func(log []byte) []byte { return log[:len(log)*3/4] },
		"empty":         func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var id string
			t.Run("before", func(t *testing.T) {
				url, _ := start(t, "--default-agent", "mock", "--data-dir", dir)
				t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
				_, _, errOut := tool(t, "", "prompt", "echo word0")
				id = sessionIn(errOut)
				for i := range 6 {
					if code, _, errOut := tool(t, "", "prompt", "--session", id, "echo word"+string(rune('1'+i))); code != cmdline.ExitOK {
						t.Fatalf("exit %d, %s", code, errOut)
					}
				}
			})
			path := filepath.Join(dir, "sessions", id, "log.journal")
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, harm(log), 0o600); err != nil {
				t.Fatal(err)
			}
			url, _ := start(t, "--default-agent", "mock", "--data-dir", dir)
			t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
			for format, want := range map[string]string{
				"markdown": `(?s)\n> Missing here: events? (\d+).* which the log has no more\.\n.*\nLeft out:\n\n- events? (\d+).* which its log has no more\n`,
				"html":     `(?s)<p class="note">Missing here: events? (\d+).*<p>Left out:</p>\n<ul>\n<li>events? (\d+)`,
				"jsonl":    `(?s)"kind":"lost".*?"lost":\{"firstSeq":(\d+).*"leftOut":\{"lost":\[\{"firstSeq":(\d+)`,
				"handover": `(?s)\nMissing here: events? (\d+).*\n## What is missing here\n- events? (\d+)`,
			} {
				code, out, errOut := tool(t, "", "sessions", "show", id, "--format", format)
				found := regexp.MustCompile(want).FindStringSubmatch(out)
				if code != cmdline.ExitOK || found == nil || found[1] != found[2] || strings.Contains(out, "the beginning of the session") || (found[1] == "1") != (name == "empty") {
					t.Errorf("%s: exit %d, %s, found %q in\n%s", format, code, errOut, found, out)
				}
			}
		})
	}
}
