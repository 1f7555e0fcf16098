package opencode

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
	maps.Copy(all, w.showsOfTurns())
	maps.Copy(all, w.showsOfSessions())
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
			if read := bridgetest.Finished(act)["read"]; read == nil || !bytes.Contains(bridgetest.Encoded(read.Content), []byte("what it says")) {
				s.Fail("the result is %+v", read)
			}
		},
		adapters.Diffs: func(s *adaptertest.Scene) {
			file := w.Write("diff.txt", "alpha\nbeta\n", 0o600)
			w.script("show a diff", scriptedmodel.Step{scriptedmodel.ReadFile(file)},
				scriptedmodel.Step{scriptedmodel.EditFile(file, "beta", "BETA")}, scriptedmodel.Step{scriptedmodel.Say("edited")})
			edit := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "show a diff"))["edit"]
			if edit == nil || len(edit.Content) != 1 || edit.Content[0].Diff == nil || edit.Content[0].Diff.NewText != "alpha\nBETA\n" {
				s.Fail("the edit is %+v", edit)
			}
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			shell := bridgetest.Finished(s.Say(s.NewSession(nil).SessionID, "run printf out-%s put"))["bash"]
			if shell == nil || !bytes.Contains(bridgetest.Encoded(shell.Content), []byte("out-put")) {
				s.Fail("the command shows %+v", shell)
			}
		},
		adapters.Plan: func(s *adaptertest.Scene) {
			todo := object{"content": "The first step", "status": "pending", "priority": "high"}
			w.script("show a plan", scriptedmodel.Step{scriptedmodel.Call("todowrite", object{"todos": []object{todo}})}, scriptedmodel.Step{scriptedmodel.Say("planned")})
			id := s.NewSession(nil).SessionID
			s.Say(id, "show a plan")
			s.Await(id, "a plan", func(u *acp.SessionUpdate) bool {
				return u.Plan != nil && len(u.Plan.Entries) == 1 && u.Plan.Entries[0].Content == "The first step"
			})
		},
		adapters.Images: func(s *adaptertest.Scene) {
			s.Prompt(s.NewSession(nil).SessionID, acp.TextBlock("say an image came"), acp.ContentBlock{Image: &acp.ImageContent{Data: pixel, MimeType: "image/png"}})
			w.Heard(s, "say an image came", pixel, "image/png")
		},
		adapters.Questions: func(s *adaptertest.Scene) {
			w.script("show a question", scriptedmodel.Step{scriptedmodel.Call("question", asks("Which?"))}, scriptedmodel.Step{scriptedmodel.SayResult()})
			s.Answer = func(method string, params json.RawMessage) (any, *acp.Error) {
				if method != acp.MethodRequestQuestion {
					return adaptertest.Allow(method, params)
				}
				return object{"outcome": "answered", "answers": [][]string{{"B"}}}, nil
			}
			if act := s.Say(s.NewSession(nil).SessionID, "show a question"); len(act.Asked) != 1 || !strings.Contains(act.Said(), "B") {
				s.Fail("asked %d times, said %q", len(act.Asked), act.Said())
			}
		},
		adapters.Subagents: func(s *adaptertest.Scene) {
			task := scriptedmodel.Call("task", object{"description": "Sub job", "prompt": "run echo by-a-subagent", "subagent_type": "general"})
			w.script("show a subagent", scriptedmodel.Step{task}, scriptedmodel.Step{scriptedmodel.Say("delegated")})
			id := s.NewSession(nil).SessionID
			s.Say(id, "show a subagent")
			parent := ""
			s.Await(id, "a call of the subagent's", func(u *acp.SessionUpdate) bool {
				if u.ToolCall != nil && *u.ToolCall.Name == "task" {
					parent = string(u.ToolCall.ToolCallID)
				}
				return parent != "" && u.ToolCall != nil && acp.MemberString(u.ToolCall.Meta[acp.MetaKey], "parentToolCallId") == parent
			})
		},
	}
}

func (w *world) showsOfSessions() bridgetest.Shows {
	type object = map[string]any
	return bridgetest.Shows{
		adapters.Modes: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			s.Call(acp.MethodSessionSetMode, object{"sessionId": r.SessionID, "modeId": "plan"})
			file := filepath.Join(s.Cwd, "by-mode.txt")
			s.Say(r.SessionID, "write "+file+" x")
			if _, err := os.Stat(file); err == nil {
				s.Fail("mode plan wrote")
			}
		},
		adapters.Models: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			bridgetest.Choose(s, r.SessionID, configModel, "scripted/small")
			s.Say(r.SessionID, "say by another model")
			if m := w.Asked(s, "say by another model").Model; m != "small" {
				s.Fail("model %s was asked", m)
			}
		},
		adapters.ThoughtLevels: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			bridgetest.Choose(s, r.SessionID, configEffort, "high")
			s.Say(r.SessionID, "say with effort")
			if e := w.Asked(s, "say with effort").Effort; e != "high" {
				s.Fail("the effort is %s", e)
			}
		},
		adapters.MCPServers: func(s *adaptertest.Scene) {
			r := s.NewSession(func(p *acp.NewSessionRequest) {
				p.MCPServers = []acp.MCPServer{{Stdio: &acp.MCPServerStdio{
					Name: "near", Command: "python3", Args: []string{w.Write("near.py", wordServer, 0o600)}, Env: []acp.EnvVariable{{Name: "WORD", Value: "heron"}},
				}}}
			})
			w.script("show a server", scriptedmodel.Step{scriptedmodel.Call("near_word", object{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
			if said := s.Say(r.SessionID, "show a server").Said(); !strings.Contains(said, "the word is heron") {
				s.Fail("the tool returned %q", said)
			}
		},
		adapters.Directories: func(s *adaptertest.Scene) {
			w.configure(`{"external_directory": "ask"}`)
			defer w.configure(touching)
			file := w.Write(filepath.Join(w.T.TempDir(), "there.txt"), "what is there\n", 0o600)
			own := bridgetest.Own(object{"additionalDirectories": []string{filepath.Dir(file)}})
			if act := s.Say(s.NewSession(own).SessionID, "read "+file); len(act.Asked) != 0 || !strings.Contains(act.Said(), "what is there") {
				s.Fail("asked %d times, said %q", len(act.Asked), act.Said())
			}
		},
		adapters.Commands: func(s *adaptertest.Scene) {
			s.Cwd = w.T.TempDir()
			w.Write(filepath.Join(s.Cwd, ".opencode/command/greet.md"), "say greetings to $ARGUMENTS\n", 0o600)
			id := s.NewSession(nil).SessionID
			s.Await(id, "the commands", func(u *acp.SessionUpdate) bool {
				return u.AvailableCommandsUpdate != nil && slices.ContainsFunc(u.AvailableCommandsUpdate.AvailableCommands, func(c acp.AvailableCommand) bool { return c.Name == "greet" })
			})
			if said := s.Say(id, "/greet you").Said(); said != "greetings to you" {
				s.Fail("/greet said %q", said)
			}
		},
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			cmd := exec.Command(w.Program.Path, "run", "say", "made", "in", "a", "terminal")
			cmd.Dir = w.Cwd
			cmd.Env = append(cmd.Environ(), w.Env...) // with PWD, which opencode goes by
			if out, err := cmd.CombinedOutput(); err != nil {
				s.Fatalf("%v: %s", err, out)
			}
			s.Cwd = w.Cwd
			s.Connect()
			list, _ := acp.Member(s.Call(acp.MethodSessionList, object{"cwd": w.Cwd}), "sessions")
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
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Used == 120 && u.Size == 200_000 })
		},
		adapters.Cost: func(s *adaptertest.Scene) {
			bridgetest.Used(s, func(u *acp.UsageUpdate) bool { return u.Cost != nil && u.Cost.Amount > 0 })
		},
		adapters.Compaction: func(s *adaptertest.Scene) {
			s.Capabilities = &acp.ClientCapabilities{Session: &acp.ClientSessionCapabilities{Compaction: &acp.CompactionCapabilities{}}}
			id := s.NewSession(nil).SessionID
			s.Say(id, "say remember the sea")
			s.Say(id, "/compact")
			s.Await(id, "the compaction", func(u *acp.SessionUpdate) bool {
				return u.CompactionUpdate != nil && u.CompactionUpdate.Status == acp.CompactionStatusCompleted
			})
		},
	}
}
