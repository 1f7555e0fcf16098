package pi

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// shows has the real program show each feature that is claimed.
func (w *world) shows() bridgetest.Shows {
	all := w.Shows()
	maps.Copy(all, w.showsOfTurns())
	maps.Copy(all, w.showsOfSessions())
	return all
}

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

func (w *world) showsOfTurns() bridgetest.Shows {
	return bridgetest.Shows{
		adapters.ToolResults: func(s *adaptertest.Scene) {
			act := s.Say(s.NewSession(nil).SessionID, "read "+w.Write("result.txt", "what it says\n", 0o600))
			if read := bridgetest.Finished(act)["read"]; read == nil || !bytes.Contains(bridgetest.Encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
			if len(act.Asked) != 0 {
				s.Fail("reading was asked for")
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			w.script("show a diff", scriptedmodel.Step{editing(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			id := s.NewSession(nil).SessionID
			s.Say(id, "show a diff")
			s.Await(id, "the diff", func(u *acp.SessionUpdate) bool {
				if u.ToolCallUpdate == nil || len(u.ToolCallUpdate.Content) != 1 || u.ToolCallUpdate.Content[0].Diff == nil {
					return false
				}
				d := u.ToolCallUpdate.Content[0].Diff
				return d.Path == file && d.OldText != nil && *d.OldText == "alpha\nbeta\n" && d.NewText == "alpha\nBETA\n"
			})
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			shell := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "run printf out-%s put"))["bash"]
			if shell == nil || !bytes.Contains(bridgetest.Encoded(shell.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", shell)
			}
		},
		adapters.Images: func(s *adaptertest.Scene) {
			s.Prompt(s.NewSession(nil).SessionID, acp.TextBlock("say an image came"), acp.ContentBlock{Image: &acp.ImageContent{Data: dot, MimeType: "image/png"}})
			if body := w.last().Body; !bytes.Contains(body, []byte("data:image/png;base64,"+dot)) {
				s.Fail("the model got %s", body)
			}
		},
		// Pi takes one text, so the parts of a prompt are joined.
		adapters.Attachments: func(s *adaptertest.Scene) {
			s.Prompt(s.NewSession(nil).SessionID, acp.TextBlock("say attached"), linked, embedded)
			if got := w.last(); !got.Says(scriptedmodel.User, "[@linked.go](file:///w/linked.go)") || !got.Says(scriptedmodel.User, "embedded-4711") {
				s.Fail("the model got %s", got.Body)
			}
		},
		adapters.Questions: func(s *adaptertest.Scene) {
			w.Write(".pi/agent/extensions/asker.js", asker, 0o600)
			defer func() { _ = os.Remove(filepath.Join(w.Home, ".pi/agent/extensions/asker.js")) }()
			s.Answer = func(method string, params json.RawMessage) (any, *acp.Error) {
				if method != acp.MethodRequestQuestion {
					return adaptertest.Allow(method, params)
				}
				return anyObject{"outcome": "answered", "answers": [][]string{{"Blue"}}}, nil
			}
			s.Capabilities = &noticing
			id := s.NewSession(nil).SessionID
			if act := s.Say(id, "/color"); len(act.Asked) != 1 {
				s.Fail("asked %d times", len(act.Asked))
			}
			s.Await(id, "the answer", func(u *acp.SessionUpdate) bool { return u.Notice != nil && strings.Contains(u.Notice.Title, "Blue") })
		},
	}
}

// last is the newest turn of the model.
func (w *world) last() scriptedmodel.Request {
	w.T.Helper()
	turns := w.Model.Turns()
	if len(turns) == 0 {
		w.T.Fatal("the model was not asked")
	}
	return turns[len(turns)-1]
}

var (
	linked   = acp.ContentBlock{ResourceLink: &acp.ResourceLink{Name: "linked.go", URI: "file:///w/linked.go"}}
	embedded = acp.ContentBlock{Resource: &acp.EmbeddedResource{Resource: acp.EmbeddedResourceResource{
		TextResourceContents: &acp.TextResourceContents{URI: "file:///a.txt", Text: "embedded-4711"},
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
}
`

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// noticing are the capabilities of a client that shows all there is.
var noticing = acp.ClientCapabilities{Session: &acp.ClientSessionCapabilities{Notices: &acp.NoticeCapabilities{}, Compaction: &acp.CompactionCapabilities{}}}

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
func (w *world) near() []acp.MCPServer {
	return []acp.MCPServer{{Stdio: &acp.MCPServerStdio{
		Name: "near", Command: w.Program.Path, Args: []string{w.Write("near.cjs", wordServer, 0o600)}, Env: []acp.EnvVariable{{Name: "WORD", Value: "!heron $HOME"}},
	}}}
}

func (w *world) showsOfSessions() bridgetest.Shows {
	return bridgetest.Shows{
		adapters.Modes: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			s.Call(acp.MethodSessionSetMode, anyObject{"sessionId": r.SessionID, "modeId": modeReadonly})
			file := filepath.Join(s.Cwd, "by-mode.txt")
			if act := s.Say(r.SessionID, "write "+file+" x"); len(act.Asked) != 0 {
				s.Fail("mode %s asks", modeReadonly)
			}
			if _, err := os.Stat(file); err == nil {
				s.Fail("mode %s wrote", modeReadonly)
			}
		},
		adapters.Models: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			bridgetest.Choose(s, r.SessionID, configModel, "scripted/two")
			s.Say(r.SessionID, "say by another model")
			if m := w.Asked(s, "say by another model").Model; m != "two" {
				s.Fail("model %s was asked", m)
			}
		},
		adapters.ThoughtLevels: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			bridgetest.Choose(s, r.SessionID, configThinking, "high")
			s.Say(r.SessionID, "say with effort")
			if e := w.Asked(s, "say with effort").Effort; e != "high" {
				s.Fail("the effort is %s", e)
			}
		},
		adapters.MCPServers: func(s *adaptertest.Scene) {
			r := s.NewSession(func(p *acp.NewSessionRequest) { p.MCPServers = w.near() })
			w.script("show a server", scriptedmodel.Step{scriptedmodel.Call("mcp__near__word", anyObject{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			if act := s.Say(r.SessionID, "show a server"); !strings.Contains(act.Said(), "the word is !heron $HOME") || len(act.Asked) != 1 {
				s.Fail("the tool returned %q, asked %d times", act.Said(), len(act.Asked))
			}
		},
		adapters.Directories: func(s *adaptertest.Scene) {
			extra := s.TempDir()
			own := bridgetest.Own(anyObject{"additionalDirectories": []string{extra}, "permissionMode": modeWrite})
			if act := s.Say(s.NewSession(own).SessionID, "write "+filepath.Join(extra, "made.txt")+" x"); len(act.Asked) != 0 {
				s.Fail("a file in the additional directory was asked for")
			}
			if _, err := os.Stat(filepath.Join(extra, "made.txt")); err != nil {
				s.Fail("%v", err)
			}
		},
		adapters.Commands: func(s *adaptertest.Scene) {
			w.Write(".pi/agent/prompts/greet.md", "---\ndescription: Greets\n---\nsay greetings to $1\n", 0o600)
			id := s.NewSession(nil).SessionID
			s.Await(id, "the commands", func(u *acp.SessionUpdate) bool {
				return u.AvailableCommandsUpdate != nil && slices.ContainsFunc(u.AvailableCommandsUpdate.AvailableCommands, func(c acp.AvailableCommand) bool { return c.Name == "greet" })
			})
			if said := s.Say(id, "/greet you").Said(); said != "greetings to you" {
				s.Fail("/greet said %q", said)
			}
		},
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			w.terminal("say made in a terminal")
			s.Cwd = w.Cwd
			s.Connect()
			list, _ := acp.Member(s.Call(acp.MethodSessionList, anyObject{"cwd": w.Cwd}), "sessions")
			if len(acp.Elements(list)) != 1 {
				s.Fail("the sessions are %s", list)
			}
			id := acp.SessionID(acp.MemberString(acp.Elements(list)[0], "sessionId"))
			s.Call(acp.MethodSessionLoad, &acp.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []acp.MCPServer{}})
			if said := s.Say(id, "recall").Said(); !strings.Contains(said, "made in a terminal") {
				s.Fail("it knows %q", said)
			}
		},
		adapters.Usage: func(s *adaptertest.Scene) {
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Used == 120 && u.Size == 128_000 })
		},
		adapters.Cost: func(s *adaptertest.Scene) {
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Cost != nil && u.Cost.Amount > 0 })
		},
		adapters.Compaction: func(s *adaptertest.Scene) {
			s.Capabilities = &noticing
			id := s.NewSession(nil).SessionID
			w.fill(func(prompt string) { s.Say(id, prompt) })
			s.Say(id, "/compact")
			s.Await(id, "the compaction", func(u *acp.SessionUpdate) bool {
				return u.CompactionUpdate != nil && u.CompactionUpdate.Status == acp.CompactionStatusCompleted
			})
		},
	}
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
