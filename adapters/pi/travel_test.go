package pi

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestTravel(t *testing.T) {
	const id = bridgetest.TravelID
	bridgetest.Travels(t, New(), map[string]string{
		"2026-01-02T03-04-05-678Z_" + id + ".jsonl": `{"type":"session","id":"` + id + `","cwd":"CWD"}` + "\n" + `{"type":"message","hello":1}` + "\n",
	}, map[string]map[string]string{
		"nothing":           {},
		"another name":      {"settings.json": "{}"},
		"two files":         {"1_a.jsonl": "{}\n", "2_b.jsonl": "{}\n"},
		"no conversation":   {"1_" + id + ".jsonl": "{}\n"},
		"another directory": {"1_" + id + ".jsonl": `{"type":"session","id":"` + id + `","cwd":"/elsewhere"}` + "\n"},
	})
}
