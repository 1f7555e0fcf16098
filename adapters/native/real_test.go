package native_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/native"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// spec returns the table's entry of an agent.
func spec(t *testing.T, id string) native.Spec {
	t.Helper()
	table := native.Table()
	i := slices.IndexFunc(table, func(s native.Spec) bool { return s.Info.ID == id })
	if i < 0 {
		t.Fatalf("the table has no %s", id)
	}
	return table[i]
}

// world is what a real agent sees: a home, a workspace and a model, nothing else.
type world struct {
	t     *testing.T
	model *scriptedmodel.Model
	home  string
	dir   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	agentcache.NotShort(t)
	t.Parallel()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, model: scriptedmodel.Start(t), home: home, dir: filepath.Join(home, "workspace")}
	w.write("workspace/notes.txt", "the secret word is heron\n")
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) env(more ...string) []string {
	return append([]string{
		"HOME=" + w.home, "XDG_CONFIG_HOME=" + w.home + "/.config", "XDG_DATA_HOME=" + w.home + "/.local/share",
		"XDG_CACHE_HOME=" + w.home + "/.cache", "XDG_STATE_HOME=" + w.home + "/.local/state",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + w.model.URL, "HTTP_PROXY=" + w.model.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + w.model.URL, "http_proxy=" + w.model.URL, "no_proxy=127.0.0.1,localhost",
	}, more...)
}

// said looks for a text in what the model was asked last.
func (w *world) asked(s *adaptertest.Scene, what string, found func(q scriptedmodel.Request) bool) {
	s.Helper()
	if !slices.ContainsFunc(w.model.Turns(), found) {
		s.Fail("the model was not given %s", what)
	}
}

func image() schema.ContentBlock {
	const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\b\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\x0f\x00\x00\x01\x01\x00\x05\x18\xd8N\x00\x00\x00\x00IEND\xaeB`\x82"
	return schema.ContentBlock{Image: &schema.ImageContent{Data: base64.StdEncoding.EncodeToString([]byte(png)), MimeType: "image/png"}}
}

func anyUpdate(act *adaptertest.Act, match func(u *schema.SessionUpdate) bool) bool {
	for i := range act.Updates {
		if match(&act.Updates[i]) {
			return true
		}
	}
	return false
}

// shows are the features that agents of the table show in the same way.
func (w *world) shows(mode string) map[adapters.Feature]func(s *adaptertest.Scene) {
	session := func(s *adaptertest.Scene) schema.SessionID {
		s.Helper()
		id := s.Session()
		if mode != "" {
			s.Call(acp.MethodSessionSetMode, map[string]any{"sessionId": id, "modeId": mode})
		}
		return id
	}
	says := func(prompt, what string, match func(u *schema.SessionUpdate) bool) func(s *adaptertest.Scene) {
		return func(s *adaptertest.Scene) {
			s.Helper()
			if act := s.Say(session(s), prompt); !anyUpdate(act, match) {
				s.Fail("no %s among %s", what, act.Raw)
			}
		}
	}
	return map[adapters.Feature]func(s *adaptertest.Scene){
		adapters.Reasoning: says("think deep thoughts", "thought", func(u *schema.SessionUpdate) bool {
			c := u.AgentThoughtChunk
			return c != nil && c.Content.Text != nil && strings.Contains(c.Content.Text.Text, "deep thoughts")
		}),
		adapters.ToolResults: says("write "+w.dir+"/made.txt some text", "finished call", func(u *schema.SessionUpdate) bool {
			return u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted && len(u.ToolCallUpdate.Content) > 0
		}),
		adapters.Diffs: says("write "+w.dir+"/other.txt some text", "diff", func(u *schema.SessionUpdate) bool {
			content := []schema.ToolCallContent{}
			if u.ToolCall != nil {
				content = append(content, u.ToolCall.Content...)
			}
			if u.ToolCallUpdate != nil {
				content = append(content, u.ToolCallUpdate.Content...)
			}
			return slices.ContainsFunc(content, func(c schema.ToolCallContent) bool {
				return c.Diff != nil && strings.Contains(c.Diff.NewText, "some text")
			})
		}),
		adapters.Images: func(s *adaptertest.Scene) {
			s.Prompt(session(s), schema.TextBlock("say an image"), image())
			w.asked(s, "an image", func(q scriptedmodel.Request) bool { return strings.Contains(string(q.Body), "image/png") })
		},
		adapters.Attachments: func(s *adaptertest.Scene) {
			s.Prompt(session(s), schema.TextBlock("say an attachment"), schema.ContentBlock{Resource: &schema.EmbeddedResource{
				Resource: schema.EmbeddedResourceResource{TextResourceContents: &schema.TextResourceContents{URI: "file:///a.txt", Text: "embedded-4711", MimeType: new("text/plain")}},
			}})
			w.asked(s, "the attached text", func(q scriptedmodel.Request) bool { return strings.Contains(string(q.Body), "embedded-4711") })
		},
		adapters.Modes: func(s *adaptertest.Scene) {
			r := s.NewSession(nil)
			if r.Modes == nil || len(r.Modes.AvailableModes) < 2 {
				s.Fail("modes %+v", r.Modes)
			}
			s.Call(acp.MethodSessionSetMode, map[string]any{"sessionId": r.SessionID, "modeId": "plan"}) // one that needs no trust
		},
		adapters.MCPServers: func(s *adaptertest.Scene) {
			mark := filepath.Join(w.dir, "mcp-was-started")
			r := s.NewSession(func(p *schema.NewSessionRequest) {
				p.MCPServers = []schema.MCPServer{{Stdio: &schema.MCPServerStdio{
					Name: "probe", Command: w.write("mcp.sh", "#!/bin/sh\ntouch "+mark+"\nexit 1\n"), Args: []string{}, Env: []schema.EnvVariable{},
				}}}
			})
			s.Prompt(r.SessionID, schema.TextBlock("say with a server"))
			// An agent may start it beside the turn, and nothing tells when.
			for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				if _, err := os.Stat(mark); err == nil {
					return
				} else if time.Now().After(until) {
					s.Fail("the server was not started: %v", err)
				}
			}
		},
		adapters.Commands: func(s *adaptertest.Scene) {
			s.Await(session(s), "commands", func(u *schema.SessionUpdate) bool {
				return u.AvailableCommandsUpdate != nil && len(u.AvailableCommandsUpdate.AvailableCommands) > 0
			})
		},
		adapters.CommandOutput: func(s *adaptertest.Scene) {
			act := s.Say(session(s), "run printf out-%s put")
			if !strings.Contains(string(slices.Concat(toBytes(act.Raw)...)), "out-put") {
				s.Fail("no output among %s", act.Raw)
			}
		},
		adapters.NativeSessions: func(s *adaptertest.Scene) {
			id := session(s)
			s.Say(id, "say listed")
			if list := s.Call(acp.MethodSessionList, map[string]any{"cwd": w.dir}); !strings.Contains(string(list), string(id)) {
				s.Fail("session %s is not in %s", id, list)
			}
		},
	}
}

// toBytes leaves the calls and drops the words: only a call's output counts.
func toBytes(raw []json.RawMessage) [][]byte {
	var out [][]byte
	for _, r := range raw {
		if strings.HasPrefix(rawjson.MemberString(r, "sessionUpdate"), "tool_call") {
			out = append(out, r)
		}
	}
	return out
}

func TestReal_Gemini(t *testing.T) {
	w := newWorld(t)
	agentcache.Turn(t, "gemini")
	s := spec(t, "gemini")
	w.write(".gemini/settings.json", `{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}`)
	// In a folder that nobody trusts the agent starts no MCP server.
	w.write(".gemini/trustedFolders.json", `{"`+w.dir+`":"TRUST_FOLDER"}`)
	shows := w.shows("")
	delete(shows, adapters.CommandOutput)
	delete(shows, adapters.NativeSessions)
	shows[adapters.Usage] = func(sc *adaptertest.Scene) {
		if act := sc.Say(sc.NewSession(nil).SessionID, "say used"); !strings.Contains(string(act.Result), `"input_tokens":100`) {
			sc.Fail("no usage in %s", act.Result)
		}
	}
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: native.New(s),
		Options: adapters.Options{
			Program: adapters.Program{Path: agentcache.Node(t), Args: []string{agentcache.NPM(t, "@google/gemini-cli/bundle/gemini.js", "@google/gemini-cli@"+agentcache.Gemini)}},
			Env:     w.env("GEMINI_API_KEY=no-secret", "GOOGLE_GEMINI_BASE_URL="+w.model.URL, "GEMINI_TELEMETRY_ENABLED=false"),
		},
		Prompts:  w.prompts(),
		Cwd:      w.dir,
		Shows:    shows,
		NoResume: true,
		Skip: map[string]string{
			"garbage-line-survived": cannot, "no-goroutine-left": beside, "crash-fails-pending": cannot, "10-MiB-message": "the agent copies it too often for a test",
			"permission-cancelled": "the agent takes it for a refusal, and the turn goes on",
			"load":                 "the agent takes a session loaded in the minute of its creation for a new one; shown through the gateway",
		},
		Unshown: map[adapters.Feature]string{
			adapters.Models: "session/set_model is no method of the schema that frames are checked with",
			adapters.Load:   "shown through the gateway", adapters.Resume: "made by the gateway, and shown there",
		},
	})
}

func TestReal_Qwen(t *testing.T) {
	w := newWorld(t)
	agentcache.Turn(t, "qwen")
	s := spec(t, "qwen")
	// It does not ask the model beside the turns, for what to remember and what the user may say next, and it does not start itself
	// again with more memory. It does the first in TestReal_Qwen of cmd/sandbox-agent, as at its users'; Gemini CLI does the other.
	w.write(".qwen/settings.json", `{
	"general": {"enableAutoUpdate": false, "preventSystemSleep": false}, "privacy": {"usageStatisticsEnabled": false},
	"memory": {"enableManagedAutoMemory": false}, "ui": {"enableFollowupSuggestions": false},
	`+agentcache.QwenTools+`
}`)
	shows := w.shows("default")
	shows[adapters.Models] = w.choosesModel
	shows[adapters.Usage] = func(sc *adaptertest.Scene) {
		act := sc.Say(sc.NewSession(nil).SessionID, "say used")
		if !strings.Contains(string(slices.Concat(append([][]byte{act.Result}, all(act.Raw)...)...)), `"inputTokens":100`) {
			sc.Fail("no usage in %s, %s", act.Raw, act.Result)
		}
	}
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: native.New(s),
		Options: adapters.Options{
			Program: adapters.Program{Path: agentcache.Node(t), Args: []string{agentcache.NPM(t, "@qwen-code/qwen-code/cli-entry.js", "@qwen-code/qwen-code@"+agentcache.Qwen)}},
			Env:     w.env("OPENAI_API_KEY=no-secret", "OPENAI_BASE_URL="+w.model.URL+"/v1", "OPENAI_MODEL=scripted-1", "QWEN_CODE_NO_RELAUNCH=1"),
		},
		Elsewhere: map[string]string{"load": "TestReal_Qwen/load of cmd/sandbox-agent shows it through the gateway"},
		Prompts:   w.prompts(),
		Cwd:       w.dir,
		Shows:     shows,
		Skip: map[string]string{
			"garbage-line-survived": cannot, "no-goroutine-left": beside, "crash-fails-pending": cannot, "10-MiB-message": "the agent copies it too often for a test",
			"permission-cancelled": "the agent takes it for a refusal, and the turn goes on",
			"every-frame-valid":    "the agent's own notifications, qwen/notify/..., have names that the protocol keeps for itself",
		},
	})
}

// choosesModel shows models as a config option.
func (w *world) choosesModel(s *adaptertest.Scene) {
	s.Helper()
	r := s.NewSession(nil)
	for _, o := range r.ConfigOptions {
		if o.Category == schema.SessionConfigOptionCategoryModel {
			s.Call(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": r.SessionID, "configId": o.ID, "value": o.Select.CurrentValue})
			return
		}
	}
	s.Fail("no option for the model among %+v", r.ConfigOptions)
}

func TestReal_Copilot(t *testing.T) {
	w := newWorld(t)
	agentcache.Turn(t, "copilot")
	shows := w.shows("")
	delete(shows, adapters.MCPServers)
	shows[adapters.Attachments] = func(s *adaptertest.Scene) {
		s.Prompt(s.Session(), schema.TextBlock("say an attachment"), schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "notes.txt", URI: "file://" + w.dir + "/notes.txt"}})
		w.asked(s, "the attached file", func(q scriptedmodel.Request) bool { return strings.Contains(string(q.Body), "notes.txt") })
	}
	shows[adapters.Modes] = func(s *adaptertest.Scene) {
		r := s.NewSession(nil)
		last := r.Modes.AvailableModes[len(r.Modes.AvailableModes)-1]
		s.Call(acp.MethodSessionSetMode, map[string]any{"sessionId": r.SessionID, "modeId": last.ID})
	}
	shows[adapters.Usage] = func(sc *adaptertest.Scene) {
		if act := sc.Say(sc.NewSession(nil).SessionID, "say used"); !strings.Contains(string(act.Result), `"inputTokens":100`) {
			sc.Fail("no usage in %s", act.Result)
		}
	}
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: native.New(spec(t, "copilot")),
		Options: adapters.Options{
			Program: adapters.Program{Path: agentcache.NPM(t, "@github/copilot-"+nodePlatform+"/copilot", "@github/copilot@"+agentcache.Copilot)},
			Env: w.env("COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL="+w.model.URL+"/v1",
				"COPILOT_PROVIDER_API_KEY=no-secret", "COPILOT_MODEL=scripted-1"),
		},
		Elsewhere: map[string]string{"load": "TestReal_Copilot/load of cmd/sandbox-agent shows it through the gateway"},
		Prompts:   w.prompts(),
		Cwd:       w.dir,
		Shows:     shows,
		NoResume:  true,
		Skip: map[string]string{
			"garbage-line-survived": cannot, "no-goroutine-left": beside, "crash-fails-pending": cannot, "10-MiB-message": "the agent copies it too often for a test",
			"permission-cancelled": "the agent takes it for a refusal, and the turn goes on",
		},
		Unshown: map[adapters.Feature]string{
			adapters.Resume:     "made by the gateway, and shown there",
			adapters.MCPServers: "the agent starts none in the offline mode that this test runs it in",
			adapters.Models:     "offered to those who are logged in at GitHub only",
		},
	})
}

// nodePlatform is how packages with a program for one platform end.
var nodePlatform = runtime.GOOS + "-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]

func all(raw []json.RawMessage) [][]byte {
	var out [][]byte
	for _, r := range raw {
		out = append(out, r)
	}
	return out
}

const (
	cannot = "a real agent cannot be made to do it"
	beside = "goroutines of tests beside this one would count; TestAgent_KeepsTheContract shows it of the same code"
)

func (w *world) prompts() adaptertest.Prompts {
	return adaptertest.Prompts{
		Say:    adaptertest.Prompt{Text: "say hello there", Says: "hello there"},
		Stream: adaptertest.Prompt{Text: "stream 20", Says: "chunk 20"},
		Tool:   adaptertest.Prompt{Text: "read " + w.dir + "/notes.txt"},
		Ask:    adaptertest.Prompt{Text: "run touch made", Says: "ran: "},
		Run:    adaptertest.Prompt{Text: "forever"},
		Echo:   func(text string) string { return "say " + text },
	}
}
