package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program that looks does not find the token in what the system shows of the
// gateway, however it was given.
func TestToken_IsNotShownBySystem(t *testing.T) {
	const secret = "canary-0123456789abcdef"
	for name, give := range map[string]func(g *gateway){
		"environment": func(g *gateway) { g.env = append(g.env, "SANDBOX_AGENT_TOKEN="+secret) },
		"argument":    func(g *gateway) { g.args = append(g.args, "--token", secret) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			give(g)
			g.start()
			for _, file := range []string{"environ", "cmdline"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", g.cmd.Process.Pid, file))
				if err != nil && !os.IsPermission(err) {
					t.Fatal(err)
				}
				if bytes.Contains(b, []byte(secret)) {
					t.Errorf("%s shows the token", file)
				}
			}
		})
	}
}

// A token whose letters are in a path, or in a variable, leaves these as they are.
func TestToken_IsAPartOfOtherWords(t *testing.T) {
	for name, give := range map[string]func(g *gateway, token string){
		"environment": func(g *gateway, token string) { g.env = append(g.env, "SANDBOX_AGENT_TOKEN="+token) },
		"argument":    func(g *gateway, token string) { g.args = append(g.args, "--token="+token) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			word := filepath.Base(g.dir)
			home := filepath.Join(t.TempDir(), word)
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			g.env = append(g.env, "HOME="+home, "OTHER="+word)
			give(g, word)
			g.start()
			if !slices.Contains(entries(t, g.dir), "lock") {
				t.Errorf("the data directory has %q", entries(t, g.dir))
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/v2/processes/run", strings.NewReader(`{"command":"sh","args":["-c","echo $HOME $OTHER"]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+word)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), `"data":"`+home+" "+word+`\n"`) {
				t.Errorf("%d: %s, %v", resp.StatusCode, b, err)
			}
		})
	}
}
