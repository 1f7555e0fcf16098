package opencode

import (
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// liveMessagesOfATimeToCome has a session from a machine whose clock is ahead of this one's, as if this one's had been set back. OpenCode takes what
// was said there for the newest, answers a prompt with that, and does nothing: whoever prompts is told so.
func liveMessagesOfATimeToCome(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say first")
	travel := adapters.Travel{Options: w.Options(), SessionID: string(id), Cwd: w.Cwd}
	times, files := regexp.MustCompile(`\d{13}\b`), fstest.MapFS{}
	put := func(name string, r io.Reader) error {
		b, err := io.ReadAll(r)
		files[name] = &fstest.MapFile{Data: times.ReplaceAllFunc(b, func(ms []byte) []byte {
			n, _ := strconv.ParseInt(string(ms), 10, 64)
			return strconv.AppendInt(nil, n+time.Hour.Milliseconds(), 10)
		})}
		return err
	}
	if err := New().Export(t.Context(), travel, put); err != nil {
		t.Fatal(err)
	}
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id})
	if _, err := New().Import(t.Context(), travel, files); err != nil {
		t.Fatal(err)
	}
	c.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	from := c.Seen()
	_, err := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock("say second")}})
	if said := bridgetest.Said(c.Updates(from)); err == nil || !strings.Contains(err.Message, "did not take the prompt up") || said != "" {
		t.Errorf("the prompt ended with %v, and it said %q", err, said)
	}
	if _, updates := c.Turn(c.New(""), "say in a new one"); bridgetest.Said(updates) != "in a new one" {
		t.Errorf("a new session says %q", bridgetest.Said(updates))
	}
}
