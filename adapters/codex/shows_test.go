package codex

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
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
	for _, more := range []bridgetest.Shows{w.showsOfTurns(), w.showsOfSettings(), w.showsOfSessions()} {
		maps.Copy(all, more)
	}
	return all
}

func (w *world) script(prompt string, steps ...scriptedmodel.Step) {
	w.Model.On(scriptedmodel.Exactly(prompt), steps...)
}

func (w *world) showsOfTurns() bridgetest.Shows {
	type object = map[string]any
	return bridgetest.Shows{
		adapters.ToolResults: func(s *adaptertest.Scene) {
			act := s.Say(s.NewSession(nil).SessionID, "read "+w.Write("result.txt", "what it says\n", 0o600))
			if read := bridgetest.Finished(act)["shell"]; read == nil || !bytes.Contains(bridgetest.Encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			w.script("show a diff", scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			edit := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "show a diff"))["apply_patch"]
			if edit == nil || len(edit.Content) != 1 || edit.Content[0].Diff == nil {
				s.Fail("the edit is %+v", edit)
			}
			if d := edit.Content[0].Diff; d.Path != file || d.OldText == nil || *d.OldText != "alpha\nbeta\n" || d.NewText != "alpha\nBETA\n" {
				s.Fail("the diff is %+v", d)
			}
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			shell := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "run printf out-%s put"))["shell"]
			if shell == nil || !bytes.Contains(bridgetest.Encoded(shell.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", shell)
			}
		},
		adapters.Plan: func(s *adaptertest.Scene) {
			w.script("show a plan", scriptedmodel.Step{scriptedmodel.Call("update_plan", object{"plan": []object{{"step": "The first step", "status": "pending"}}})}, scriptedmodel.Step{scriptedmodel.Say("planned")})
			id := s.NewSession(nil).SessionID
			s.Say(id, "show a plan")
			s.Await(id, "a plan", func(u *acp.SessionUpdate) bool {
				return u.Plan != nil && len(u.Plan.Entries) == 1 && u.Plan.Entries[0].Content == "The first step"
			})
		},
		adapters.Images: func(s *adaptertest.Scene) {
			s.Prompt(s.NewSession(nil).SessionID, acp.TextBlock("say an image came"), acp.ContentBlock{Image: &acp.ImageContent{Data: dot, MimeType: "image/png"}})
			w.Heard(s, "say an image came", dot, "image/png")
		},
		adapters.Questions: func(s *adaptertest.Scene) {
			w.script("show a question", scriptedmodel.Step{scriptedmodel.Call("request_user_input", object{"questions": []object{{
				"id": "color", "header": "Color", "question": "Which color?",
				"options": []object{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}},
			}}})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			s.Answer = func(method string, params json.RawMessage) (any, *acp.Error) {
				if method != acp.MethodRequestQuestion {
					return adaptertest.Allow(method, params)
				}
				return object{"outcome": "answered", "answers": [][]string{{"Blue"}}}, nil
			}
			id := s.NewSession(nil).SessionID
			bridgetest.Choose(s, id, configMode, modePlan)
			if act := s.Say(id, "show a question"); len(act.Asked) != 1 || !strings.Contains(act.Said(), "Blue") {
				s.Fail("asked %d times, said %q", len(act.Asked), act.Said())
			}
		},
		adapters.Subagents: func(s *adaptertest.Scene) {
			w.script("show a subagent", scriptedmodel.Step{scriptedmodel.Call("multi_agent_v1/spawn_agent", object{"message": "run echo by-a-subagent"})}, scriptedmodel.Step{scriptedmodel.Say("delegated")})
			id := s.NewSession(nil).SessionID
			var parent acp.ToolCallID
			for _, u := range s.Say(id, "show a subagent").Updates {
				if u.ToolCall != nil && *u.ToolCall.Name == "spawnAgent" {
					parent = u.ToolCall.ToolCallID
				}
			}
			s.Await(id, "a call of the subagent's", func(u *acp.SessionUpdate) bool {
				return parent != "" && u.ToolCall != nil && acp.MemberString(u.ToolCall.Meta[acp.MetaKey], "parentToolCallId") == string(parent)
			})
		},
	}
}

func (w *world) showsOfSettings() bridgetest.Shows {
	type object = map[string]any
	return bridgetest.Shows{
		adapters.Modes: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			s.Call(acp.MethodSessionSetMode, object{"sessionId": r.SessionID, "modeId": modeReadOnly})
			s.Await(r.SessionID, "the mode", func(u *acp.SessionUpdate) bool {
				return u.CurrentModeUpdate != nil && u.CurrentModeUpdate.CurrentModeID == modeReadOnly
			})
			file := filepath.Join(s.Cwd, "by-mode.txt")
			s.Say(r.SessionID, "run echo x > "+file)
			if _, err := os.Stat(file); err == nil {
				s.Fail("mode %s wrote", modeReadOnly)
			}
		},
		adapters.Models: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			model := bridgetest.Option(s, r, configModel, "gpt-")
			bridgetest.Choose(s, r.SessionID, configModel, model)
			s.Say(r.SessionID, "say by another model")
			if m := w.Asked(s, "say by another model").Model; m != string(model) {
				s.Fail("model %s was asked, not %s", m, model)
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
			url, _ := mcpOverHTTP(w.T)
			r := s.NewSession(func(p *acp.NewSessionRequest) {
				p.MCPServers = []acp.MCPServer{{HTTP: &acp.MCPServerHTTP{Name: "far", URL: url, Headers: []acp.HTTPHeader{}}}}
			})
			w.script("show a server", scriptedmodel.Step{scriptedmodel.Call("mcp__far/greet", object{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			if said := s.Say(r.SessionID, "show a server").Said(); !strings.Contains(said, "greetings from afar") {
				s.Fail("the tool returned %q", said)
			}
		},
		adapters.Directories: func(s *adaptertest.Scene) {
			made := filepath.Join(outside(w.T), "made.txt")
			own := bridgetest.Own(object{"additionalDirectories": []string{filepath.Dir(made)}, "permissionMode": "write"})
			if act := s.Say(s.NewSession(own).SessionID, "run echo x > "+made); len(act.Asked) != 0 {
				s.Fail("a file in the additional directory was asked for")
			}
			if _, err := os.Stat(made); err != nil {
				s.Fail("%v", err)
			}
		},
		adapters.Commands: func(s *adaptertest.Scene) {
			id := s.NewSession(nil).SessionID
			s.Await(id, "the commands", func(u *acp.SessionUpdate) bool {
				return u.AvailableCommandsUpdate != nil && slices.ContainsFunc(u.AvailableCommandsUpdate.AvailableCommands, func(c acp.AvailableCommand) bool { return c.Name == "review" })
			})
			w.Model.On(scriptedmodel.Contains("SHOW A REVIEW"), scriptedmodel.Step{scriptedmodel.Say(`{"findings":[],"overall_correctness":"patch is correct","overall_explanation":"nothing is wrong","overall_confidence_score":0.9}`)})
			if said := s.Say(id, "/review SHOW A REVIEW").Said(); !strings.Contains(said, "nothing is wrong") {
				s.Fail("/review said %q", said)
			}
		},
	}
}

func (w *world) showsOfSessions() bridgetest.Shows {
	return bridgetest.Shows{
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			cmd := exec.Command(w.Program.Path, "exec", "--skip-git-repo-check", "say made in a terminal")
			cmd.Dir, cmd.Env = w.Cwd, append(os.Environ(), w.Env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				s.Fatalf("%v: %s", err, out)
			}
			s.Cwd = w.Cwd
			s.Connect()
			list, _ := acp.Member(s.Call(acp.MethodSessionList, map[string]any{"cwd": w.Cwd}), "sessions")
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
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Used == 120 && u.Size >= 100_000 })
		},
		adapters.Compaction: func(s *adaptertest.Scene) {
			s.Capabilities = &acp.ClientCapabilities{Session: &acp.ClientSessionCapabilities{Compaction: &acp.CompactionCapabilities{}}}
			id := s.NewSession(nil).SessionID
			s.Say(id, "say remember the sea")
			s.Say(id, "/compact")
			s.Await(id, "the compaction", func(u *acp.SessionUpdate) bool {
				return u.CompactionUpdate != nil && u.CompactionUpdate.Status == acp.CompactionStatusCompleted
			})
			// The model is told the summary, which the scripted one repeats.
			if said := s.Say(id, "say and on").Said(); !strings.Contains(said, "Summary: say remember the sea") {
				s.Fail("it said %q", said)
			}
		},
	}
}
