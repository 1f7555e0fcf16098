package pi

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func (w *world) script(prompt string, steps ...scriptedmodel.Step) {
	w.Model.On(scriptedmodel.Exactly(prompt), steps...)
}

type anyObject = map[string]any

// edit has the model edit a file.
func editing(path string, pairs ...string) scriptedmodel.Action {
	var list []anyObject
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, anyObject{"oldText": pairs[i], "newText": pairs[i+1]})
	}
	return scriptedmodel.Call("edit", anyObject{"path": path, "edits": list})
}

// last is the newest turn of the model.
func (w *world) last() scriptedmodel.Request {
	w.T.Helper()
	turns := w.Turns()
	if len(turns) == 0 {
		w.T.Fatal("the model was not asked")
	}
	return turns[len(turns)-1]
}

var (
	linked   = schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "linked.go", URI: "file:///w/linked.go"}}
	embedded = schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{
		TextResourceContents: &schema.TextResourceContents{URI: "file:///a.txt", Text: "embedded-4711"},
	}}}
)

// asker is an extension of the user's, with a command that asks.
const asker = `export default function (pi) {
  pi.registerCommand("color", { description: "Asks for a color", handler: async (_args, ctx) => {
    ctx.ui.notify("you chose " + await ctx.ui.select("Which color?", ["Red", "Blue"]), "info");
  } });
  pi.registerCommand("sure", { description: "Asks whether", handler: async (_args, ctx) => {
    ctx.ui.notify("confirmed: " + await ctx.ui.confirm("Really?", "It cannot be undone."), "warning");
    ctx.ui.notify("typed: " + await ctx.ui.input("Your name?", "a name"), "warning");
    ctx.ui.notify("in time: " + await ctx.ui.select("Nobody answers?", ["Yes"], { timeout: 200 }), "warning");
  } });
  pi.registerCommand("doubt", { description: "Asks, and does without an answer", handler: async (_args, ctx) => {
    ctx.ui.notify("without: " + await ctx.ui.confirm("Nobody answers?", "", { signal: AbortSignal.timeout(200) }), "warning");
  } });
  pi.registerCommand("later", { description: "Asks, and does not wait", handler: async (_args, ctx) => {
    const never = new AbortController();
    ctx.ui.select("Some time later?", ["Yes"], { signal: never.signal }).then((said) => ctx.ui.notify("later: " + said, "warning"));
  } });
}
`

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// noticing are the capabilities of a client that shows all there is.
var noticing = schema.ClientCapabilities{Session: &schema.ClientSessionCapabilities{Notices: &schema.NoticeCapabilities{}, Compaction: &schema.CompactionCapabilities{}}}

// wordServer is an MCP server on stdio with a tool.
const wordServer = `const send = (o) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...o }) + "\n");
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.method === "initialize") send({ id: m.id, result: { protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "near", version: "1" } } });
  else if (m.method === "tools/list") send({ id: m.id, result: { tools: [{ name: "word", description: "the word", inputSchema: { type: "object", properties: {} } }] } });
  else if (m.method === "tools/call") send({ id: m.id, result: { content: [{ type: "text", text: "the word is " + process.env.WORD }] } });
  else if (m.id !== undefined) send({ id: m.id, error: { code: -32601, message: "unknown" } });
});
`

// near is an MCP server that knows a word.
func (w *world) near() []schema.MCPServer {
	return []schema.MCPServer{{Stdio: &schema.MCPServerStdio{
		Name: "near", Command: w.Program.Path, Args: []string{w.Write("near.cjs", wordServer, 0o600)}, Env: []schema.EnvVariable{{Name: "WORD", Value: "!heron $HOME"}},
	}}}
}

// fill says so much that Pi has something to compact.
func (w *world) fill(say func(prompt string)) {
	// In large pieces: an early Pi repeats the whole text with each of them.
	long := strings.Repeat("word ", 25_000)
	w.Model.On(scriptedmodel.Contains("fill "), scriptedmodel.Step{scriptedmodel.Chunks(32 << 10), scriptedmodel.Say(long)})
	for _, n := range []string{"one", "two"} {
		say("fill " + n + " " + long)
	}
}
