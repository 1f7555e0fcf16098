package claude

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
	for _, more := range []bridgetest.Shows{w.showsOfTurns(), w.showsOfSettings(), w.showsOfSessions()} {
		maps.Copy(all, more)
	}
	return all
}

func (w *world) showsOfTurns() bridgetest.Shows {
	type object = map[string]any
	script := func(prompt string, steps ...scriptedmodel.Step) { w.Model.On(scriptedmodel.Exactly(prompt), steps...) }
	return bridgetest.Shows{
		adapters.ToolResults: func(s *adaptertest.Scene) {
			act := s.Say(s.NewSession(nil).SessionID, "read "+w.Write("result.txt", "what it says\n", 0o600))
			if read := bridgetest.Finished(act)["Read"]; read == nil || !bytes.Contains(bridgetest.Encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			script("show a diff", scriptedmodel.Step{scriptedmodel.ReadFile(file)}, scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			edit := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "show a diff"))["Edit"]
			if edit == nil || len(edit.Content) != 1 || edit.Content[0].Diff == nil {
				s.Fail("the edit is %+v", edit)
			}
			if d := edit.Content[0].Diff; d.Path != file || d.OldText == nil || *d.OldText != "alpha\nbeta\n" || d.NewText != "alpha\nBETA\n" {
				s.Fail("the diff is %+v", d)
			}
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			bash := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "run printf out-%s put"))["Bash"]
			if bash == nil || !bytes.Contains(bridgetest.Encoded(bash.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", bash)
			}
		},
		adapters.Plan: func(s *adaptertest.Scene) {
			id := s.NewSession(bridgetest.Own(object{"agentSpecific": object{"claude": object{
				"model": "claude-sonnet-4-5", "settings": object{"env": object{"CLAUDE_CODE_ENABLE_TASKS": "1"}},
			}}})).SessionID
			script("show a plan", scriptedmodel.Step{scriptedmodel.Call("TaskCreate", object{"subject": "The first step", "description": "d"})}, scriptedmodel.Step{scriptedmodel.Say("planned")})
			s.Say(id, "show a plan")
			s.Await(id, "a plan", func(u *acp.SessionUpdate) bool {
				return u.Plan != nil && len(u.Plan.Entries) == 1 && u.Plan.Entries[0].Content == "The first step"
			})
		},
		adapters.Images: func(s *adaptertest.Scene) {
			id := s.NewSession(nil).SessionID
			s.Prompt(id, acp.TextBlock("say an image came"), acp.ContentBlock{Image: &acp.ImageContent{Data: dot, MimeType: "image/png"}})
			w.Heard(s, "say an image came", dot, "image/png")
			png, _ := base64.StdEncoding.DecodeString(dot)
			read := bridgetest.Finished(s.Say(id, "read "+w.Write("dot.png", string(png), 0o600)))["Read"]
			if read == nil || len(read.Content) != 1 || read.Content[0].Content == nil || read.Content[0].Content.Content.Image == nil {
				s.Fail("the image was read as %+v", read)
			}
		},
		adapters.Questions: func(s *adaptertest.Scene) {
			script("show a question", scriptedmodel.Step{scriptedmodel.Call("AskUserQuestion", object{"questions": []object{{
				"question": "Which color?", "header": "Color", "multiSelect": false,
				"options": []object{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}},
			}}})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			s.Answer = func(method string, params json.RawMessage) (any, *acp.Error) {
				if method != acp.MethodRequestQuestion {
					return adaptertest.Allow(method, params)
				}
				return object{"outcome": "answered", "answers": [][]string{{"Blue"}}}, nil
			}
			if act := s.Say(s.NewSession(nil).SessionID, "show a question"); len(act.Asked) != 1 || !strings.Contains(act.Said(), "Blue") {
				s.Fail("asked %d times, said %q", len(act.Asked), act.Said())
			}
		},
		adapters.PlanApproval: func(s *adaptertest.Scene) {
			planFile := regexp.MustCompile(`[^\s"'\\]+/\.claude/plans/[\w.-]+\.md`) // the program names it to the model
			w.Model.OnRequest(scriptedmodel.Exactly("show an approval"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
				return []scriptedmodel.Step{
					{scriptedmodel.Call("EnterPlanMode", object{})},
					{scriptedmodel.WriteFile(string(planFile.Find(r.Body)), "# The plan")},
					{scriptedmodel.Call("ExitPlanMode", object{})},
					{scriptedmodel.Say("approved")},
				}
			})
			act := s.Say(s.NewSession(nil).SessionID, "show an approval")
			last := act.Asked[len(act.Asked)-1]
			if !bytes.Contains(last.Params(), []byte("# The plan")) || act.Said() != "approved" {
				s.Fail("asked %s, said %q", last.Params(), act.Said())
			}
		},
		adapters.Subagents: func(s *adaptertest.Scene) {
			script("show a subagent", scriptedmodel.Step{scriptedmodel.Call("Agent", object{
				"description": "Look", "prompt": "run echo by-a-subagent", "subagent_type": "general-purpose", "run_in_background": false,
			})}, scriptedmodel.Step{scriptedmodel.Say("delegated")})
			var parent acp.ToolCallID
			for _, u := range s.Say(s.NewSession(nil).SessionID, "show a subagent").Updates {
				switch call := u.ToolCall; {
				case call == nil:
				case *call.Name == "Agent":
					parent = call.ToolCallID
				case parent != "" && acp.MemberString(call.Meta[acp.MetaKey], "parentToolCallId") == string(parent):
					return
				}
			}
			s.Fail("no call of the subagent's names call %q", parent)
		},
	}
}

func (w *world) showsOfSettings() bridgetest.Shows {
	type object = map[string]any
	return bridgetest.Shows{
		adapters.Modes: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			s.Call(acp.MethodSessionSetMode, object{"sessionId": r.SessionID, "modeId": modeAcceptEdits})
			s.Await(r.SessionID, "the mode", func(u *acp.SessionUpdate) bool {
				return u.CurrentModeUpdate != nil && u.CurrentModeUpdate.CurrentModeID == modeAcceptEdits
			})
			if act := s.Say(r.SessionID, "write "+filepath.Join(s.Cwd, "by-mode.txt")+" x"); len(act.Asked) != 0 {
				s.Fail("an edit was asked for in mode %s", modeAcceptEdits)
			}
		},
		adapters.Models: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			bridgetest.Choose(s, r.SessionID, configModel, bridgetest.Option(s, r, configModel, "sonnet"))
			s.Say(r.SessionID, "say by another model")
			if m := w.Asked(s, "say by another model").Model; !strings.Contains(m, "sonnet") {
				s.Fail("model %s was asked", m)
			}
		},
		adapters.ThoughtLevels: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			level := bridgetest.Option(s, r, configEffort, "")
			bridgetest.Choose(s, r.SessionID, configEffort, level)
			s.Say(r.SessionID, "say with effort")
			if e := w.Asked(s, "say with effort").Effort; e != string(level) {
				s.Fail("the effort is %s, not %s", e, level)
			}
		},
		adapters.MCPServers: func(s *adaptertest.Scene) {
			exe, err := os.Executable()
			if err != nil {
				s.Fatal(err)
			}
			r := s.NewSession(func(p *acp.NewSessionRequest) {
				p.MCPServers = []acp.MCPServer{{Stdio: &acp.MCPServerStdio{
					Name: "shown", Command: exe, Args: []string{"-test.run=^TestMCPServer$"}, Env: []acp.EnvVariable{{Name: "TEST_MCP_SERVER", Value: "1"}},
				}}}
			})
			w.Model.On(scriptedmodel.Exactly("show a server"), scriptedmodel.Step{scriptedmodel.Call("mcp__shown__ask", object{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			if said := s.Say(r.SessionID, "show a server").Said(); !strings.Contains(said, "decline") {
				s.Fail("the tool returned %q", said) // it asks the user, whom this client does not offer
			}
		},
		adapters.Directories: func(s *adaptertest.Scene) {
			extra := s.TempDir()
			made := filepath.Join(extra, "made.txt")
			own := bridgetest.Own(object{"additionalDirectories": []string{extra}, "permissionMode": "write"})
			if act := s.Say(s.NewSession(own).SessionID, "write "+made+" x"); len(act.Asked) != 0 {
				s.Fail("a file in the additional directory was asked for")
			}
			if _, err := os.Stat(made); err != nil {
				s.Fail("%v", err)
			}
		},
		adapters.Commands: func(s *adaptertest.Scene) {
			id := s.NewSession(nil).SessionID
			s.Await(id, "the commands", func(u *acp.SessionUpdate) bool {
				return u.AvailableCommandsUpdate != nil && slices.ContainsFunc(u.AvailableCommandsUpdate.AvailableCommands, func(c acp.AvailableCommand) bool { return c.Name == "context" })
			})
			if said := s.Say(id, "/context").Said(); !strings.Contains(said, "Context Usage") {
				s.Fail("/context said %q", said)
			}
		},
	}
}

func (w *world) showsOfSessions() bridgetest.Shows {
	return bridgetest.Shows{
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			const id = "21111111-2222-4333-8444-555555555555"
			w.terminal(id, "say made in a terminal")
			s.Cwd = w.Cwd
			s.Connect()
			if list := s.Call(acp.MethodSessionList, map[string]any{"cwd": w.Cwd}); !bytes.Contains(list, []byte(id)) {
				s.Fail("session %s is not in %s", id, list)
			}
			s.Call(acp.MethodSessionLoad, &acp.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []acp.MCPServer{}})
			if said := s.Say(id, "recall").Said(); !strings.Contains(said, "made in a terminal") {
				s.Fail("it knows %q", said)
			}
		},
		adapters.Usage: func(s *adaptertest.Scene) {
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Used == 120 && u.Size >= 100_000 })
		},
		adapters.Cost: func(s *adaptertest.Scene) {
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Cost != nil && u.Cost.Amount > 0 && u.Cost.Currency == "USD" })
		},
		adapters.Compaction: func(s *adaptertest.Scene) {
			s.Capabilities = &noticing
			id := s.NewSession(nil).SessionID
			s.Say(id, "say remember the sea")
			s.Say(id, "/compact")
			s.Await(id, "the compaction", func(u *acp.SessionUpdate) bool {
				return u.CompactionUpdate != nil && u.CompactionUpdate.Status == acp.CompactionStatusCompleted
			})
			s.Say(id, "say and on")
			w.Heard(s, "say and on", "remember the sea")
			if r := w.Asked(s, "say and on"); slices.Contains(r.Prompts(), "say remember the sea") {
				s.Fail("nothing was compacted")
			}
		},
	}
}
