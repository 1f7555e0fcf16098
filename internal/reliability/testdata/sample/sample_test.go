package sample

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

func TestWell(t *testing.T) {
	for range 2 {
		figure.Done(t, figure.Asked(t, "SAMPLES", 7), "samples")
	}
	figure.Done(t, 1, "cup")
}

func TestBad(t *testing.T) {
	figure.Done(t, figure.Asked(t, "SAMPLES", 7), "samples")
	t.Error("it broke at seed 4711")
}

func TestSilent(*testing.T) {}
