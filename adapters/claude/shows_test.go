package claude

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// with is an edit of session/new that adds our _meta.
func with(own map[string]any) func(p *acp.NewSessionRequest) {
	return func(p *acp.NewSessionRequest) { p.Meta = bridge.Meta(own) }
}

// asked returns the newest turn of the model that has the prompt; the scene
// fails when there is none.
func (w *world) asked(s *adaptertest.Scene, prompt string) scriptedmodel.Request {
	s.Helper()
	turns := w.Model.Turns()
	for _, r := range slices.Backward(turns) {
		if slices.Contains(r.Prompts(), prompt) {
			return r
		}
	}
	s.Fail("the model was not asked %q", prompt)
	return scriptedmodel.Request{}
}

// heard fails the scene when the model was not told all of the texts.
func (w *world) heard(s *adaptertest.Scene, prompt string, texts ...string) {
	s.Helper()
	body := w.asked(s, prompt).Body
	for _, text := range texts {
		if !bytes.Contains(body, []byte(text)) {
			s.Fail("the model did not hear %.40s", text)
		}
	}
}

// finished is the last content of the act's calls, by the name of the tool.
func finished(act *adaptertest.Act) map[string]*acp.ToolCallUpdate {
	names := map[acp.ToolCallID]string{}
	out := map[string]*acp.ToolCallUpdate{}
	for _, u := range act.Updates {
		if u.ToolCall != nil {
			names[u.ToolCall.ToolCallID] = *u.ToolCall.Name
		}
		if up := u.ToolCallUpdate; up != nil && up.Status == acp.ToolCallStatusCompleted {
			out[names[up.ToolCallID]] = up
		}
	}
	return out
}

// option returns the first value that is offered and is not the present one.
func option(s *adaptertest.Scene, r *acp.NewSessionResponse, id string) acp.SessionConfigValueID {
	s.Helper()
	for _, o := range r.ConfigOptions {
		if string(o.ID) != id || o.Select == nil {
			continue
		}
		for _, v := range o.Select.Options.Ungrouped {
			if v.Value != o.Select.CurrentValue && (id != configModel || strings.HasPrefix(string(v.Value), "sonnet")) {
				return v.Value
			}
		}
	}
	s.Fail("nothing to choose of %s", id)
	return ""
}

func choose(s *adaptertest.Scene, session acp.SessionID, id string, value acp.SessionConfigValueID) {
	s.Helper()
	s.Call(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": session, "configId": id, "value": value})
}

// shows has the real program show each feature that is claimed.
func (w *world) shows() map[adapters.Feature]func(s *adaptertest.Scene) {
	all := w.showsOfTurns()
	for f, show := range w.showsOfSettings() {
		all[f] = show
	}
	for f, show := range w.showsOfSessions() {
		all[f] = show
	}
	return all
}

type scenes = map[adapters.Feature]func(s *adaptertest.Scene)

func (w *world) showsOfTurns() scenes {
	type object = map[string]any
	script := func(prompt string, steps ...scriptedmodel.Step) { w.Model.On(scriptedmodel.Exactly(prompt), steps...) }
	return scenes{
		adapters.Reasoning: func(s *adaptertest.Scene) {
			id := s.NewSession(nil).SessionID
			s.Say(id, "think deep thoughts")
			s.Await(id, "a thought", func(u *acp.SessionUpdate) bool {
				return u.AgentThoughtChunk != nil && strings.Contains(u.AgentThoughtChunk.Content.Text.Text, "deep")
			})
		},
		adapters.ToolResults: func(s *adaptertest.Scene) {
			act := s.Say(s.NewSession(nil).SessionID, "read "+w.Write("result.txt", "what it says\n", 0o600))
			if read := finished(act)["Read"]; read == nil || !bytes.Contains(encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			script("show a diff", scriptedmodel.Step{scriptedmodel.ReadFile(file)}, scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			edit := finished(s.Say(s.NewSession(nil).SessionID, "show a diff"))["Edit"]
			if edit == nil || len(edit.Content) != 1 || edit.Content[0].Diff == nil {
				s.Fail("the edit is %+v", edit)
			}
			if d := edit.Content[0].Diff; d.Path != file || d.OldText == nil || *d.OldText != "alpha\nbeta\n" || d.NewText != "alpha\nBETA\n" {
				s.Fail("the diff is %+v", d)
			}
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			bash := finished(s.Say(s.NewSession(nil).SessionID, "run printf out-%s put"))["Bash"]
			if bash == nil || !bytes.Contains(encoded(bash.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", bash)
			}
		},
		adapters.Plan: func(s *adaptertest.Scene) {
			id := s.NewSession(with(object{"agentSpecific": object{"claude": object{
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
			w.heard(s, "say an image came", dot, "image/png")
			png, _ := base64.StdEncoding.DecodeString(dot)
			read := finished(s.Say(id, "read "+w.Write("dot.png", string(png), 0o600)))["Read"]
			if read == nil || len(read.Content) != 1 || read.Content[0].Content == nil || read.Content[0].Content.Content.Image == nil {
				s.Fail("the image was read as %+v", read)
			}
		},
		adapters.Attachments: func(s *adaptertest.Scene) {
			s.Prompt(s.NewSession(nil).SessionID, acp.TextBlock("say attached"),
				acp.ContentBlock{ResourceLink: &acp.ResourceLink{Name: "linked.go", URI: "file:///w/linked.go"}},
				acp.ContentBlock{Resource: &acp.EmbeddedResource{Resource: acp.EmbeddedResourceResource{
					TextResourceContents: &acp.TextResourceContents{URI: "file:///a.txt", Text: "embedded-4711"},
				}}})
			w.heard(s, "say attached", "linked.go", "embedded-4711")
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

func (w *world) showsOfSettings() scenes {
	type object = map[string]any
	skill := func() string {
		return filepath.Dir(filepath.Dir(w.Write("skills/greeting/SKILL.md", "---\nname: greeting\ndescription: GREET PEOPLE WELL\n---\nsay hello\n", 0o600)))
	}
	return scenes{
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
			choose(s, r.SessionID, configModel, option(s, r, configModel))
			s.Say(r.SessionID, "say by another model")
			if m := w.asked(s, "say by another model").Model; !strings.Contains(m, "sonnet") {
				s.Fail("model %s was asked", m)
			}
		},
		adapters.ThoughtLevels: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			level := option(s, r, configEffort)
			choose(s, r.SessionID, configEffort, level)
			s.Say(r.SessionID, "say with effort")
			if e := w.asked(s, "say with effort").Effort; e != string(level) {
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
		adapters.Skills: func(s *adaptertest.Scene) {
			s.Say(s.NewSession(with(object{"skills": object{"paths": []string{skill()}}})).SessionID, "say with a skill")
			w.heard(s, "say with a skill", "GREET PEOPLE WELL")
		},
		adapters.Instructions: func(s *adaptertest.Scene) {
			s.Say(s.NewSession(with(object{"instructions": "BE INSTRUCTED"})).SessionID, "say instructed")
			w.heard(s, "say instructed", "BE INSTRUCTED")
		},
		adapters.SystemPrompt: func(s *adaptertest.Scene) {
			s.Say(s.NewSession(with(object{"appendSystemPrompt": "AND THIS AS WELL"})).SessionID, "say appended")
			w.heard(s, "say appended", "AND THIS AS WELL")
		},
		adapters.Directories: func(s *adaptertest.Scene) {
			extra := s.TempDir()
			made := filepath.Join(extra, "made.txt")
			own := with(object{"additionalDirectories": []string{extra}, "permissionMode": "write"})
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

// used waits for a turn's usage.
func used(s *adaptertest.Scene, ok func(u *acp.UsageUpdate) bool) {
	s.Helper()
	id := s.NewSession(nil).SessionID
	s.Say(id, "say used")
	s.Await(id, "the usage", func(u *acp.SessionUpdate) bool { return u.UsageUpdate != nil && ok(u.UsageUpdate) })
}

func encoded(v any) []byte {
	b, _ := acp.Encode(v)
	return b
}

func (w *world) showsOfSessions() scenes {
	return scenes{
		adapters.Fork: func(s *adaptertest.Scene) {
			id := s.NewSession(nil).SessionID
			s.Say(id, "say common past")
			fork := acp.SessionID(acp.MemberString(s.Call(acp.MethodSessionFork, &acp.ForkSessionRequest{SessionID: id, Cwd: s.Cwd, MCPServers: []acp.MCPServer{}}), "sessionId"))
			if said := s.Say(fork, "recall").Said(); fork == id || !strings.Contains(said, "common past") {
				s.Fail("fork %s of %s says %q", fork, id, said)
			}
		},
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
			used(s, func(u *acp.UsageUpdate) bool { return u.Used == 120 && u.Size >= 100_000 })
		},
		adapters.Cost: func(s *adaptertest.Scene) {
			used(s, func(u *acp.UsageUpdate) bool { return u.Cost != nil && u.Cost.Amount > 0 && u.Cost.Currency == "USD" })
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
			w.heard(s, "say and on", "remember the sea")
			if r := w.asked(s, "say and on"); slices.Contains(r.Prompts(), "say remember the sea") {
				s.Fail("nothing was compacted")
			}
		},
	}
}
