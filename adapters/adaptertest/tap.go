package adaptertest

import (
	"bytes"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// tap looks for one text in what goes to the agent, and counts what comes behind it.
type tap struct {
	mu      sync.Mutex
	text    []byte // nil: it looks for nothing
	asked   bool
	replies int
}

var _ adapters.Tap = (*tap)(nil)

func (h *tap) listen(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text, h.asked, h.replies = []byte(text), false, 0
}

func (h *tap) heard() (asked bool, replies int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = nil
	return h.asked, h.replies
}

// ToAgent implements [adapters.Tap].
func (h *tap) ToAgent(line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = h.asked || h.text != nil && bytes.Contains(line, h.text)
}

// FromAgent implements [adapters.Tap].
func (h *tap) FromAgent([]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked {
		h.replies++
	}
}

// tapHearsBoth: what goes to the agent's program and what comes from it can be recorded.
func (s *suite) tapHearsBoth(t testing.TB) {
	c, id := s.ready(t)
	c.tap.listen(s.Prompts.Say.Text)
	c.prompt(id, s.Prompts.Say)
	switch asked, replies := c.tap.heard(); {
	case !asked:
		c.fatalf("the tap was not told of the prompt")
	case replies == 0:
		c.fatalf("the tap was told of nothing that came behind the prompt")
	}
}
