package opencode

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// ahead makes the messages of a session an hour younger in OpenCode's database. To have them exported, and imported again,
// OpenCode starts three times.
const ahead = `const [, , file, session] = process.argv;
const db = new (require("node:sqlite").DatabaseSync)(file);
db.exec("PRAGMA busy_timeout = 60000; BEGIN IMMEDIATE");
const later = (text) => text.replace(/\b\d{13}\b/g, (ms) => String(Number(ms) + 3_600_000));
for (const table of ["message", "part"]) {
  const rows = db.prepare("SELECT id, data FROM " + table + " WHERE session_id = ?").all(session);
  if (rows.length === 0) throw new Error("no " + table);
  const change = db.prepare("UPDATE " + table + " SET time_created = time_created + 3600000, time_updated = time_updated + 3600000, data = ? WHERE id = ?");
  for (const row of rows) change.run(later(row.data), row.id);
}
db.exec("COMMIT");
`

// liveMessagesOfATimeToCome has a session with messages of a time to come, as if this machine's clock had been set back, or another's were ahead. OpenCode
// takes what was said then for the newest, answers a prompt with that, and does nothing: whoever prompts is told so.
func liveMessagesOfATimeToCome(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say first")
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	change := exec.CommandContext(t.Context(), agentcache.Node(t), w.Write("ahead.cjs", ahead, 0o600), filepath.Join(w.Home, ".local/share/opencode/opencode.db"), string(id))
	if out, err := change.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
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
