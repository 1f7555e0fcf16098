package amp

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

type object = map[string]any

// mcpServer speaks the Model Context Protocol on its standard streams and has one
// tool, which tells a variable of its environment.
const mcpScript = `
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = {}
    if m["method"] == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "tell", "description": "tells", "inputSchema": {"type": "object", "properties": {}}}]}
    elif m["method"] == "tools/call":
        r = {"content": [{"type": "text", "text": "it is " + os.environ.get("WORD", "nothing")}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`

// shows has the real program show each feature that is claimed.
func (w *world) shows() bridgetest.Shows {
	// wished is one session with all that a client may wish for.
	var wished schema.SessionID
	asked := false
	wish := func(s *adaptertest.Scene) schema.SessionID {
		s.Helper()
		if wished == "" {
			skill := w.Write("skills/greeting/SKILL.md", "---\nname: greeting\ndescription: GREET PEOPLE WELL\n---\nsay hello\n", 0o600)
			own := bridgetest.Own(object{
				"skills": object{"paths": []string{filepath.Dir(filepath.Dir(skill))}}, "instructions": "BE INSTRUCTED", "appendSystemPrompt": "AND THIS AS WELL",
			})
			wished = s.NewSession(func(p *schema.NewSessionRequest) {
				own(p)
				p.MCPServers = []schema.MCPServer{{Stdio: &schema.MCPServerStdio{
					Name: "teller", Command: "python3", Args: []string{w.Write("mcp.py", mcpScript, 0o600)}, Env: []schema.EnvVariable{{Name: "WORD", Value: "a-secret-word"}},
				}}}
			}).SessionID
		}
		return wished
	}
	told := func(text string) func(s *adaptertest.Scene) {
		return func(s *adaptertest.Scene) {
			id := wish(s)
			if !asked {
				s.Say(id, "say what was wished for")
				asked = true
			}
			w.Heard(s, "say what was wished for", text)
		}
	}
	return bridgetest.Shows{
		adapters.Reasoning: func(s *adaptertest.Scene) {
			id := s.Session()
			s.Say(id, "think deep thoughts")
			s.Await(id, "a thought", func(u *schema.SessionUpdate) bool {
				return u.AgentThoughtChunk != nil && strings.Contains(u.AgentThoughtChunk.Content.Text.Text, "deep")
			})
		},
		adapters.Attachments: func(s *adaptertest.Scene) {
			s.Prompt(s.Session(), schema.TextBlock("say attached"),
				schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "linked.go", URI: "file:///w/linked.go"}},
				schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{
					TextResourceContents: &schema.TextResourceContents{URI: "file:///a.txt", Text: "embedded-4711"},
				}}})
			w.Heard(s, "say attached", "linked.go", "embedded-4711")
		},
		adapters.Skills:       told("GREET PEOPLE WELL"),
		adapters.Instructions: told("BE INSTRUCTED"),
		adapters.SystemPrompt: told("AND THIS AS WELL"),
		adapters.ToolResults: func(s *adaptertest.Scene) {
			act := s.Say(s.Session(), "read "+w.Write("result.txt", "what it says\n", 0o600))
			if read := bridgetest.Finished(act)["Read"]; read == nil || !bytes.Contains(bridgetest.Encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			w.Model.On(scriptedmodel.Exactly("show a diff"), scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			act := s.Say(s.Session(), "show a diff")
			for _, u := range act.Updates {
				if u.ToolCall != nil && len(u.ToolCall.Content) == 1 && u.ToolCall.Content[0].Diff != nil {
					if d := u.ToolCall.Content[0].Diff; d.Path != file || d.OldText == nil || *d.OldText != "alpha\nbeta\n" || d.NewText != "alpha\nBETA\n" {
						s.Fail("the diff is %+v", d)
					}
					return
				}
			}
			s.Fail("there is no diff")
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			bash := bridgetest.Finished(s.Say(s.Session(), "run printf out-%s put"))["Bash"]
			if bash == nil || !bytes.Contains(bridgetest.Encoded(bash.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", bash)
			}
		},
		adapters.MCPServers: func(s *adaptertest.Scene) {
			w.Model.On(scriptedmodel.Exactly("show the server"), scriptedmodel.Step{scriptedmodel.Call("mcp__teller__tell", object{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			if act := s.Say(wish(s), "show the server"); !bytes.Contains([]byte(act.Said()), []byte("it is a-secret-word")) {
				s.Fail("it said %q", act.Said())
			}
		},
		adapters.MCPStatus: func(s *adaptertest.Scene) {
			s.Servers(wish(s), "teller=ready(tell)")
		},
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			id := wish(s) // what others show with it, they have shown
			s.Say(id, "say in a terminal")
			s.Call(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id}) // Amp has written all of it when it has ended
			s.Connect()                                                                // with a state of its own, so that nobody remembers making it
			listed := s.Call(acp.MethodSessionList, object{"cwd": s.Cwd})
			if !bytes.Contains(listed, []byte(id)) || !bytes.Contains(listed, []byte(`"native":true`)) {
				s.Fail("listed %s", listed)
			}
			s.Call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: s.Cwd, MCPServers: []schema.MCPServer{}})
			s.Await(id, "the replay", func(u *schema.SessionUpdate) bool {
				return u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text.Text == "say in a terminal"
			})
		},
		adapters.Usage: func(s *adaptertest.Scene) {
			bridgetest.Used(s, s.Session(), func(u *schema.UsageUpdate) bool { return u.Used == 120 && u.Size > 1000 })
		},
	}
}

func TestInfo_EveryFeatureHasALevel(t *testing.T) {
	for _, f := range adapters.AllFeatures {
		if s := features[f]; s.Level == "" || s.Level == adapters.Unsupported && s.Reason == "" {
			t.Errorf("%s: %+v", f, s)
		}
	}
}
