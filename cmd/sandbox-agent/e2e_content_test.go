package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// said returns all text the agent sent to the session from position from on.
func said(c *client, session string, from int) string {
	var b strings.Builder
	for _, m := range c.messages()[from:] {
		if text, ok := m.chunk(session); ok {
			b.WriteString(text)
		}
	}
	return b.String()
}

// awaitSaid returns what the agent said to the session from position from on, as soon as
// it is n bytes. A response whose headers were sent long before it does not name the last
// event that precedes it, so the stream may still be on the way.
func awaitSaid(c *client, session string, from, n int) string {
	c.t.Helper()
	var b strings.Builder
	c.until(func() bool {
		for ; from < len(c.inbox); from++ {
			if text, ok := c.inbox[from].chunk(session); ok {
				b.WriteString(text)
			}
		}
		return b.Len() >= n
	}, "%d bytes of text", n)
	return b.String()
}

func TestContent_16MiBPrompt(t *testing.T) {
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			g := startGateway(t)
			c := connect(t, g, kind, options{})
			s := c.newSession()
			// Not compressible into a repeated block, so that a lost or doubled
			// part shows.
			var b strings.Builder
			for i := 0; b.Len() < 16<<20; i++ {
				fmt.Fprintf(&b, "%d,", i)
			}
			text := b.String()
			from := c.mark()
			if r := c.prompt(s, "echo "+text); r != "end_turn" {
				t.Fatalf("the turn ended with %s", r)
			}
			if got := awaitSaid(c, s, from, len(text)); got != text {
				t.Errorf("%d other bytes came back, want %d", len(got), len(text))
			}
		})
	}
}

func TestContent_LargeChunks(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			from := c.mark()
			if r := c.prompt(s, "flood 8 1048576"); r != "end_turn" {
				t.Fatalf("the turn ended with %s", r)
			}
			awaitSaid(c, s, from, 8<<20)
			n := 0
			for _, m := range c.messages()[from:] {
				if text, ok := m.chunk(s); ok {
					n++
					if len(text) < 1<<20 {
						t.Errorf("a chunk of %d bytes, want 1 MiB", len(text))
					}
				}
			}
			if n != 8 {
				t.Errorf("%d chunks, want 8", n)
			}
		})
	}
}

func TestContent_Unicode(t *testing.T) {
	g := startGateway(t)
	const text = "a\u2028b\u2029c 👩‍👩‍👧‍👦 \u0000\u001b[31m \"\\/<>& \r\n\t \ufeff é e\u0301 𝄞"
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			from := c.mark()
			c.prompt(s, "echo "+text)
			if got := said(c, s, from); got != text {
				t.Errorf("%q came back, want %q", got, text)
			}
		})
	}
}

func TestContent_LoneSurrogatesAreKept(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			raw := json.RawMessage(`{"sessionId":"` + s + `","prompt":[{"type":"text","text":"echo <\ud800>"}],"_meta":{"example.com":[1.0,1e3,"\udfff"]}}`)
			if _, err := c.call("session/prompt", raw); err != nil {
				t.Fatal(err)
			}
			kept := false
			for _, e := range g.events(s) {
				kept = kept || bytes.Contains(e.Message, []byte(`echo <\ud800>`)) && bytes.Contains(e.Message, []byte(`[1.0,1e3,"\udfff"]`))
			}
			if !kept {
				t.Error("the log does not hold the prompt as the client wrote it")
			}
		})
	}
}

func TestContent_GarbageIsReported(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			if r := c.prompt(s, "garbage"); r != "end_turn" {
				t.Errorf("the turn ended with %s", r)
			}
			var p struct{ Error, Raw, RawHash string }
			m := c.findMethod("_sandboxagent/agent/unparsed")
			if err := json.Unmarshal(m.Params, &p); err != nil || p.Error == "" || p.Raw == "" {
				t.Errorf("the notification says %s", m.Params)
			}
		})
	}
}

func TestContent_EveryUpdateIsValid(t *testing.T) {
	// The checker of the client does the work.
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{eventIDs: kind != standard})
			s := c.newSession()
			for _, text := range []string{"hello", "tool", "diff", "plan", "usage", "commands", "any words at all"} {
				from := c.mark()
				if r := c.prompt(s, text); r != "end_turn" {
					t.Errorf("%s: the turn ended with %s", text, r)
				}
				if len(c.messages()) == from {
					t.Errorf("%s: no update", text)
				}
			}
		})
	}
}

func TestSecrets_AreNotLogged(t *testing.T) {
	const payload = "payload-marker-8c1f"
	g := startGateway(t, "--token", token, "--log-level", "debug")
	for _, kind := range dialects {
		c := connect(t, g, kind, options{})
		s := c.newSession()
		c.prompt(s, "echo "+payload)
		c.prompt(s, "garbage")
		_, _ = c.call("session/prompt", promptParams(s, "crash"))
		_, _ = c.call("_example.com/unknown", map[string]any{"sessionId": s, "x": payload})
		for _, r := range []call{
			{header: map[string][]string{"Authorization": {"Bearer " + token + "x"}}},
			{path: "/v2/rpc?token=" + token, header: noToken},
			{path: "/v2/rpc?agent=" + token},
			{body: `{"` + payload + `":`},
		} {
			if kind != wsocket {
				do(t, c, r)
			}
		}
		c.close()
	}
	g.kill(15)
	log := g.stderr.String()
	if log == "" {
		t.Error("no log at level debug")
	}
	for name, secret := range map[string]string{"token": token, "payload": payload} {
		if i := strings.Index(log, secret); i >= 0 {
			t.Errorf("the log contains the %s: %s", name, log[max(0, i-200):min(len(log), i+100)])
		}
	}
	if err := filepath.WalkDir(g.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && path != g.dir {
			t.Errorf("%s has mode %v, readable by others", path, info.Mode())
		}
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if bytes.Contains(b, []byte(token)) {
				t.Errorf("%s contains the token", path)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
