package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const secret = "sk-ant-it's$(touch /tmp/never)`x`\"0123456789"
	key, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	put(".claude.json", `{"primaryApiKey":`+string(key)+`}`)
	put(".claude/.credentials.json", fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"oauth-token-0123456789","refreshToken":"r","expiresAt":%d}}`, time.Now().Add(-time.Hour).UnixMilli()))
	put(".codex/auth.json", `{"OPENAI_API_KEY": broken`)
	c := &commandLine{t: t, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GROQ_API_KEY=gsk-from-environment-1"}}

	code, out, errOut := c.run("credentials", "extract")
	if code != 0 || strings.Contains(out, secret) || strings.Contains(out, "oauth-token-0123456789") || !strings.Contains(out, "sk-ant-…6789") ||
		!strings.Contains(out, "expired, can be renewed") || !strings.Contains(out, "GROQ_API_KEY") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if !strings.Contains(errOut, ".codex/auth.json: it is no JSON") {
		t.Errorf("the broken file is not told of: %s", errOut)
	}
	if _, out, _ = c.run("credentials", "extract", "--reveal", "--agent", "claude", "--no-oauth"); !strings.Contains(out, secret) || strings.Contains(out, "oauth") {
		t.Errorf("%s", out)
	}
	var listed struct {
		Credentials []struct{ Provider, Kind, Value, Source string }
		Problems    []struct{ File string }
	}
	_, out, _ = c.run("credentials", "extract", "--json", "--provider", "anthropic")
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed.Credentials) != 2 || len(listed.Problems) != 1 || strings.Contains(out, "0123456789\"") {
		t.Errorf("%v, %s", err, out)
	}
	// What is printed is what a shell makes of it, whatever the value.
	code, out, errOut = c.run("credentials", "extract-env", "--export")
	if code != 0 || !strings.Contains(errOut, "left out: anthropic oauth") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", out+`printf '%s|%s' "$ANTHROPIC_API_KEY" "$GROQ_API_KEY"`)
	shell.Env = []string{"PATH=" + os.Getenv("PATH")}
	got, err := shell.CombinedOutput()
	if err != nil || string(got) != secret+"|gsk-from-environment-1" {
		t.Errorf("%v, %s", err, got)
	}
	if code, _, errOut = c.run("credentials", "extract", "--agent", "nobody"); code != 2 || !strings.Contains(errOut, "claude, codex, opencode, amp, pi") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	elsewhere := t.TempDir()
	if code, out, errOut = c.run("credentials", "extract", "--home-dir", elsewhere, "--provider", "anthropic"); code != 0 || out != "" || !strings.Contains(errOut, "none found") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	// The gateway sees the same.
	g := newGateway(t)
	g.env = []string{"HOME=" + home, "ANTHROPIC_API_KEY=", "OPENAI_API_KEY="}
	g.start()
	for agent, want := range map[string]bool{"claude": true, "codex": false} {
		var row struct{ CredentialsAvailable bool }
		if g.get("/v2/agents/"+agent, &row); row.CredentialsAvailable != want {
			t.Errorf("%s: credentialsAvailable is %v", agent, row.CredentialsAvailable)
		}
	}
}
