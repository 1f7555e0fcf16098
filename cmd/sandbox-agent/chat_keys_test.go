package main

import (
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A digit in a text that is being written grants nothing: it stays in the text.
func TestChat_DigitsOfATextAnswerNothing(t *testing.T) {
	asked := func() *chatModel {
		m := newChatModel(&chatSession{}, chatOptions{}, nil, true)
		m.asks = []*chatAsk{{id: acp.IntID(1), params: []byte(`{"options":[{"optionId":"once","name":"Allow"},{"optionId":"always","name":"Always allow"}]}`)}}
		return m
	}
	press := func(m *chatModel, text string, alt bool) {
		for _, r := range text {
			m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}, Alt: alt})
		}
	}
	m := asked()
	press(m, "use port 2 now", false)
	if got := m.input.Value(); got != "use port 2 now" || len(m.asks) != 1 {
		t.Errorf("a text with a digit became %q, and %d questions are open", got, len(m.asks))
	}
	press(m, "2", true)
	if len(m.asks) != 0 || m.input.Value() != "use port 2 now" {
		t.Errorf("Alt and a number: %d questions are open, and the text is %q", len(m.asks), m.input.Value())
	}
	m = asked()
	press(m, "2", false)
	if len(m.asks) != 0 || m.input.Value() != "" {
		t.Errorf("a number alone: %d questions are open, and %q was written", len(m.asks), m.input.Value())
	}
	m = asked()
	m.input.SetValue("")
	m.typed = time.Now() // the last letter was taken back a moment ago
	press(m, "2", false)
	if len(m.asks) != 1 {
		t.Error("a digit right behind a letter answered")
	}
}
