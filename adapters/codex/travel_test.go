package codex

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestTravel(t *testing.T) {
	const id = bridgetest.TravelID
	bridgetest.Travels(t, New(), map[string]string{
		"2026/01/02/rollout-2026-01-02T03-04-05-" + id + ".jsonl": `{"type":"session_meta","payload":{"id":"hello"}}` + "\n",
	}, map[string]map[string]string{
		"nothing":       {},
		"another name":  {"config.toml": "x"},
		"another place": {"x/rollout-2026-01-02T03-04-05-" + id + ".jsonl": "{}\n"},
		"no id":         {"2026/01/02/rollout-2026-01-02T03-04-05-x.jsonl": "{}\n"},
		"two of two":    {"2026/01/02/rollout-1-" + id + ".jsonl": "{}\n", "2026/01/02/rollout-2-1f9d6f7c-2a52-4d5b-9a51-6a4d5bd0a3a1.jsonl": "{}\n"},
	})
}
