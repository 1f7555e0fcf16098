package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// The adapters of others that speak version 1 only. Those that speak version 2, too, stand in agentcache.
const (
	piACP    = "0.0.34"
	zedCodex = "0.16.0"
)

// gatewaySide is the name of the gateway among sides.
const gatewaySide = "gateway"

// runPeers measures the gateway, perhaps an older one, and the adapters of others by turns.
func runPeers(ctx context.Context, r *report, self, program, before string, count int, wanted, ways *regexp.Regexp) error {
	gateway := func(name, program string) side {
		return side{name: name, gateway: true, command: []string{program, "acp", "--data-dir", "{home}/data", "--require-preinstall", "--agent"}}
	}
	for _, of := range []func(ctx context.Context) (*peer, error){claudePeer, codexPeer, piPeer, opencodePeer} {
		p, err := of(ctx)
		if err != nil {
			return fmt.Errorf("get an agent and its adapters: %w", err)
		}
		p.sides = append(p.sides, gateway(gatewaySide, program))
		if before != "" {
			p.sides = append(p.sides, gateway("before", before))
		}
		for i := range p.sides {
			if s := &p.sides[i]; s.gateway {
				s.command = append(s.command, p.name)
				s.env = append(s.env, "SANDBOX_AGENT_"+strings.ToUpper(p.name)+"_BIN={home}/"+agentScript)
			}
		}
		for _, m := range []struct {
			name    string
			measure func(l *life) ([]figure, error)
			tapped  bool
		}{{"Peer/" + p.name, whole, false}, {"Peer/" + p.name + "/added", added, true}} {
			if !wanted.MatchString(m.name) || m.tapped && p.untapped {
				continue
			}
			for i := range count {
				for j := range p.sides {
					s := p.sides[(i+j)%len(p.sides)] // not always the same one first
					if !ways.MatchString(s.name) || m.tapped && s.inside {
						continue
					}
					got, err := p.run(ctx, self, s, m.measure, m.tapped)
					if ctx.Err() != nil {
						return errors.Join(ctx.Err(), err)
					}
					if err != nil {
						return fmt.Errorf("%s on %s: %w", m.name, s.name, err)
					}
					r.note(m.name, s.name, got)
				}
			}
		}
	}
	r.peers()
	return nil
}

// installed returns the program of an agent that the gateway can install, from the folder of the tests.
func installed(ctx context.Context, agent, version string) (string, error) {
	dir, err := agentcache.Dir()
	if err != nil {
		return "", err
	}
	r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{Agent: agent, Version: version, Sources: []install.Source{install.NPM}})
	return r.Program, err
}

// adapter returns the side of an adapter that is a script for Node.js.
func adapter(ctx context.Context, name, file, packages string, env ...string) (side, error) {
	node, err := agentcache.NodeProgram(ctx)
	if err != nil {
		return side{}, err
	}
	path, err := agentcache.Packages(ctx, file, packages)
	return side{name: name, command: []string{node, path}, env: env}, err
}

func claudePeer(ctx context.Context) (*peer, error) {
	program, err := installed(ctx, "claude", agentcache.Claude)
	if err != nil {
		return nil, err
	}
	other, err := adapter(ctx, "claude-agent-acp", "@agentclientprotocol/claude-agent-acp/dist/index.js", "@agentclientprotocol/claude-agent-acp@"+agentcache.ClaudeACP,
		"CLAUDE_CODE_EXECUTABLE={home}/"+agentScript)
	return &peer{
		name: "claude", agent: []string{program}, sides: []side{other},
		env: []string{
			"ANTHROPIC_BASE_URL={model}", "ANTHROPIC_API_KEY=sk-ant-not-a-key", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
			"DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		},
	}, err
}

func codexPeer(ctx context.Context) (*peer, error) {
	program, err := installed(ctx, "codex", agentcache.Codex)
	if err != nil {
		return nil, err
	}
	other, err := adapter(ctx, "codex-acp", "@agentclientprotocol/codex-acp/dist/index.js", "@agentclientprotocol/codex-acp@"+agentcache.CodexACP,
		"CODEX_PATH={home}/"+agentScript)
	if err != nil {
		return nil, err
	}
	zed, err := agentcache.Packages(ctx, "@zed-industries/codex-acp-linux-x64/bin/codex-acp", "@zed-industries/codex-acp@"+zedCodex)
	return &peer{
		name: "codex", agent: []string{program}, shared: true,
		sides: []side{other, {name: "zed-codex-acp", command: []string{zed}, inside: true}},
		env:   []string{"CODEX_HOME={home}/.codex", "SCRIPTED_KEY=not-a-key", "OPENAI_API_KEY=not-a-key"},
		files: map[string]string{".codex/config.toml": `model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[analytics]
enabled = false
`},
	}, err
}

func piPeer(ctx context.Context) (*peer, error) {
	node, err := agentcache.NodeProgram(ctx)
	if err != nil {
		return nil, err
	}
	file, err := agentcache.PiFile(ctx)
	if err != nil {
		return nil, err
	}
	other, err := adapter(ctx, "pi-acp", "pi-acp/dist/index.js", "pi-acp@"+piACP, "PI_ACP_PI_COMMAND={home}/"+agentScript)
	return &peer{
		name: "pi", agent: []string{node, file}, sides: []side{other},
		env: []string{"PI_OFFLINE=1", "PI_TELEMETRY=0", "VERSION=" + agentcache.Pi},
		files: map[string]string{
			".pi/agent/models.json": `{"providers":{"scripted":{"baseUrl":"{model}/v1","api":"openai-completions","apiKey":"not-a-key","models":[
	{"id":"one","name":"Model One","input":["text"],"contextWindow":128000,"maxTokens":4096}]}}}`,
			".pi/agent/settings.json": `{"defaultProvider":"scripted","defaultModel":"one"}`,
		},
	}, err
}

// opencodePeer compares the bridge with what OpenCode speaks itself: the adapter is its own process.
func opencodePeer(ctx context.Context) (*peer, error) {
	program, err := installed(ctx, "opencode", agentcache.OpenCode)
	return &peer{
		name: "opencode", agent: []string{program}, shared: true, untapped: true,
		sides: []side{{name: "opencode-acp", command: []string{program, "acp"}, inside: true}},
		env: []string{
			"OPENCODE_DISABLE_MODELS_FETCH=1", "npm_config_registry=http://127.0.0.1:9/", "OPENCODE_MODELS_PATH=" + filepath.Join("{home}", "models.json"),
		},
		files: map[string]string{"models.json": agentcache.OpenCodeModels, ".config/opencode/opencode.json": `{
	"share": "disabled", "model": "scripted/large", "small_model": "scripted/large", "enabled_providers": ["scripted"],
	"provider": {"scripted": {
		"name": "Scripted", "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{model}/v1", "apiKey": "not-a-key"},
		"models": {"large": {"name": "Large", "tool_call": true, "limit": {"context": 200000, "output": 8192}}}
	}}
}`},
	}, err
}
