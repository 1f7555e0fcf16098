package mock_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
)

// The test binary is also the mock agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mock.Arg {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

func program(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestAdapter_KeepsTheContract(t *testing.T) {
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: mock.New(program(t)),
		Prompts: adaptertest.Prompts{
			Say:     adaptertest.Prompt{Text: "hello", Says: "I am the mock agent"},
			Stream:  adaptertest.Prompt{Text: "stream 500 100", Says: "499 "},
			Tool:    adaptertest.Prompt{Text: "tool", Says: "I read notes.txt."},
			Ask:     adaptertest.Prompt{Text: "permission", Says: "permission: allow_once"},
			Run:     adaptertest.Prompt{Text: "slow"},
			Echo:    func(text string) string { return "echo " + text },
			Garbage: adaptertest.Prompt{Text: "garbage", Says: "good 3"},
			Crash:   adaptertest.Prompt{Text: "crash"},
			Spawn:   adaptertest.Prompt{Text: "fork-child", Says: "child: "},
		},
		Crash:      adaptertest.Crash{Code: 3, Stderr: "mock-agent: giving up"},
		Chunks:     500,
		EchoesMeta: true,
		Shows:      shows,
	})
}

// says runs a turn and looks for an update.
func says(prompt string, match func(u *schema.SessionUpdate) bool) func(s *adaptertest.Scene) {
	return func(s *adaptertest.Scene) {
		s.Helper()
		act := s.Say(s.NewSession(nil).SessionID, prompt)
		for i := range act.Updates {
			if match(&act.Updates[i]) {
				return
			}
		}
		s.Fail("%s: the agent sent %s", prompt, act.Raw)
	}
}

// sets chooses a value of an option of the category, and finds it chosen.
func sets(category schema.SessionConfigOptionCategory, to schema.SessionConfigValueID) func(s *adaptertest.Scene) {
	return func(s *adaptertest.Scene) {
		s.Helper()
		r := s.NewSession(nil)
		for _, o := range r.ConfigOptions {
			if o.Category == category {
				s.Call(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": r.SessionID, "configId": o.ID, "value": to})
				s.Await(r.SessionID, "the new value", func(u *schema.SessionUpdate) bool {
					if u.ConfigOptionUpdate == nil {
						return false
					}
					for _, o := range u.ConfigOptionUpdate.ConfigOptions {
						if o.Category == category && o.Select.CurrentValue == to {
							return true
						}
					}
					return false
				})
				return
			}
		}
		s.Fail("no option has the category %s", category)
	}
}

func sendsBlock(b schema.ContentBlock) func(s *adaptertest.Scene) {
	return func(s *adaptertest.Scene) {
		s.Helper()
		act := s.Prompt(s.NewSession(nil).SessionID, b)
		if !strings.Contains(act.Said(), "received 1 non-text blocks") {
			s.Fail("the agent said %q", act.Said())
		}
	}
}

var shows = map[adapters.Feature]func(s *adaptertest.Scene){
	adapters.Subagents: says("subagent", func(u *schema.SessionUpdate) bool {
		return u.ToolCall != nil && rawjson.MemberString(u.ToolCall.Meta[acp.MetaKey], "parentToolCallId") != ""
	}),
	adapters.ToolResults: says("tool", func(u *schema.SessionUpdate) bool {
		return u.ToolCallUpdate != nil && len(u.ToolCallUpdate.Content) > 0 && len(u.ToolCallUpdate.RawOutput) > 0
	}),
	adapters.Diffs: says("diff", func(u *schema.SessionUpdate) bool {
		return u.ToolCall != nil && len(u.ToolCall.Content) > 0 && u.ToolCall.Content[0].Diff != nil
	}),
	adapters.Plan:        says("plan", func(u *schema.SessionUpdate) bool { return u.Plan != nil && len(u.Plan.Entries) == 3 }),
	adapters.Images:      sendsBlock(schema.ContentBlock{Image: &schema.ImageContent{Data: "AA==", MimeType: "image/png"}}),
	adapters.Attachments: sendsBlock(schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "a", URI: "file:///a"}}),
	adapters.Questions: func(s *adaptertest.Scene) {
		asked := false
		s.Answer = func(method string, params json.RawMessage) (any, *acp.Error) {
			asked = method == "_sandboxagent/session/request_question"
			return map[string]any{"outcome": "cancelled", "answers": []any{}}, nil
		}
		s.Prompt(s.NewSession(nil).SessionID, schema.TextBlock("question"))
		if !asked {
			s.Fail("the agent asked no question")
		}
	},
	adapters.Modes: func(s *adaptertest.Scene) {
		r := s.NewSession(nil)
		s.Call(acp.MethodSessionSetMode, map[string]any{"sessionId": r.SessionID, "modeId": "plan"})
		s.Await(r.SessionID, "the new mode", func(u *schema.SessionUpdate) bool {
			return u.CurrentModeUpdate != nil && u.CurrentModeUpdate.CurrentModeID == "plan"
		})
	},
	adapters.Models:        sets(schema.SessionConfigOptionCategoryModel, "mock-large"),
	adapters.ThoughtLevels: sets(schema.SessionConfigOptionCategoryThoughtLevel, "high"),
	adapters.Fork: func(s *adaptertest.Scene) {
		r := s.NewSession(nil)
		s.Say(r.SessionID, "hello")
		var f schema.ForkSessionResponse
		if err := json.Unmarshal(s.Call(acp.MethodSessionFork, map[string]any{"sessionId": r.SessionID, "cwd": s.Cwd}), &f); err != nil || f.SessionID == "" || f.SessionID == r.SessionID {
			s.Fail("the fork of %s is %+v, %v", r.SessionID, f, err)
		}
		s.Say(f.SessionID, "hello")
	},
	adapters.NativeSessions: func(s *adaptertest.Scene) {
		r := s.NewSession(nil)
		if list := s.Call(acp.MethodSessionList, map[string]any{}); !strings.Contains(string(list), string(r.SessionID)) {
			s.Fail("session %s is not in %s", r.SessionID, list)
		}
	},
	adapters.MCPStatus: func(s *adaptertest.Scene) {
		id := s.NewSession(nil).SessionID
		s.Say(id, "mcp")
		s.Servers(id, "broken=failed! files=ready(find,read) issues=needs_login!")
	},
	adapters.Usage:    says("usage", func(u *schema.SessionUpdate) bool { return u.UsageUpdate != nil && u.UsageUpdate.Used > 0 }),
	adapters.Cost:     says("usage", func(u *schema.SessionUpdate) bool { return u.UsageUpdate != nil && u.UsageUpdate.Cost != nil }),
	adapters.Commands: says("commands", func(u *schema.SessionUpdate) bool { return u.AvailableCommandsUpdate != nil }),
}

// Without its load powers the agent neither claims nor has them.
func TestAdapter_WithoutLoading(t *testing.T) {
	t.Setenv(agent.EnvNoLoad, "1")
	const other = "is the same with loading"
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:  mock.New(program(t)),
		Prompts:  adaptertest.Prompts{Say: adaptertest.Prompt{Text: "hello"}},
		NoLoad:   true,
		NoResume: true,
		Skip: map[string]string{
			"updates-precede-response": other, "tool-call-lifecycle": other, "reused-call-id": other, "permission-allow": other,
			"permission-reject": other, "permission-cancelled": other, "cancel-ends-the-turn": other,
			"features": other, "two-sessions-interleave": other, "garbage-line-survived": other, "10-MiB-message": other,
			"crash-fails-pending": other, "close-idempotent": other, "close-leaves-no-process": other,
		},
	})
}
