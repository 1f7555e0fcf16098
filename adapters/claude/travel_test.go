package claude

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestTravel(t *testing.T) {
	const id = bridgetest.TravelID
	bridgetest.Travels(t, New(), map[string]string{
		"session.json":                               `{"native":["1f9d6f7c-2a52-4d5b-9a51-6a4d5bd0a3a1"],"cost":0.5}`,
		id + ".jsonl":                                `{"type":"user","cwd":"CWD","message":{"content":"hello"}}` + "\n",
		id + "/subagents/agent-1.jsonl":              "{}\n",
		id + "/tool-results/x.txt":                   "text",
		"1f9d6f7c-2a52-4d5b-9a51-6a4d5bd0a3a1.jsonl": `{"type":"user","cwd":"CWD"}` + "\n",
	}, map[string]map[string]string{
		"nothing":              {},
		"no list":              {id + ".jsonl": "{}\n"},
		"a list that is none":  {"session.json": "[]", id + ".jsonl": "{}\n"},
		"an id that leads out": {"session.json": `{"native":["../../../x"]}`, id + ".jsonl": "{}\n"},
	})
}
