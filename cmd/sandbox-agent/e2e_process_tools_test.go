package main_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// post sends JSON to the HTTP API and returns the answer's status and body.
func (g *gateway) post(method, path, body string) (int, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	g.authorize(req.Header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// said runs a turn and returns what the agent said.
func (c *client) said(session, text string) string {
	c.t.Helper()
	from := c.mark()
	if r := c.prompt(session, text); r != "end_turn" {
		c.t.Errorf("%s ended with %s", text, r)
	}
	var out strings.Builder
	for _, m := range c.messages()[from:] {
		if s, ok := m.chunk(session); ok {
			out.WriteString(s)
		}
	}
	return out.String()
}

// With --host-tools agents of clients that offer nothing have files and
// terminals; nothing of them outlives a turn that is cancelled, a session, or
// the gateway.
func TestHostTools_MockAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("the file's text"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--host-tools", "--no-processes")
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			if got := c.said(s, "fs "+file); got != "the file's text" {
				t.Errorf("it said %q", got)
			}
			if got := c.said(s, "fs "+file+"-none"); !strings.Contains(got, "fs error: ") || !strings.Contains(got, "-none") {
				t.Errorf("it said %q", got)
			}
			if got := c.said(s, "terminal echo sum $((40+2)); exit 3"); got != "sum 42\n" {
				t.Errorf("it said %q", got)
			}
		})
	}
	sleeping := func() []process {
		return slices.DeleteFunc(g.processes(g.generation()), func(p process) bool { return !strings.Contains(p.args, "sleep 4711") })
	}
	const line = "terminal trap '' TERM; setsid sleep 4711 & sleep 4711"
	begin := func(c *client, s string) <-chan message {
		t.Helper()
		ch := c.start("session/prompt", promptParams(s, line))
		if left := g.await(func() []process {
			if n := len(sleeping()); n < 3 {
				return []process{{}}
			}
			return nil
		}); len(left) > 0 {
			t.Fatal("the command does not run")
		}
		return ch
	}
	c := connect(t, g, wsocket, options{})
	s := c.newSession()
	turn := begin(c, s)
	c.notify("session/cancel", map[string]any{"sessionId": s})
	if m := c.response(turn); m.Error != nil || stopReason(t, m.Result) != "cancelled" {
		t.Errorf("%+v", m)
	}
	if left := g.await(sleeping); len(left) > 0 {
		t.Errorf("after the cancel: %+v", left)
	}
	begin(c, s)
	if code, body := g.post("DELETE", "/v2/sessions/"+s, ""); code != 204 {
		t.Errorf("%d: %s", code, body)
	}
	if left := g.await(sleeping); len(left) > 0 {
		t.Errorf("after the session: %+v", left)
	}
	begin(c, c.newSession())
	if code, body := g.post("GET", "/v2/processes", ""); code != 501 {
		t.Errorf("%d: %s", code, body)
	}
	// The end of the gateway is looked at when the test ends.
}

func TestHostTools_OffByDefault(t *testing.T) {
	g := startGateway(t)
	c := connect(t, g, wsocket, options{})
	s := c.newSession()
	if got := c.said(s, "fs /etc/passwd"); !strings.Contains(got, "no attached client offers fs/read_text_file") {
		t.Errorf("it said %q", got)
	}
	if got := c.said(s, "terminal true"); !strings.Contains(got, "no attached client offers terminal/create") {
		t.Errorf("it said %q", got)
	}
}
