package main

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// What is always allowed is listed for who waits for it. Behind a key, a paste, and another list it opens nothing: the next Enter
// would take something back.
func TestChat_AListOfWhatIsAllowedThatComesLateOpensNothing(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*chatModel)
		opens     bool
	}{
		"nothing":      {func(*chatModel) {}, true},
		"a key":        {func(m *chatModel) { m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"}) }, false},
		"a paste":      {func(m *chatModel) { m.Update(tea.PasteMsg{Content: "x"}) }, false},
		"another list": {func(m *chatModel) { m.Update(chatSessions{}) }, false},
	} {
		m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
		_, ask := m.Update(tea.KeyPressMsg{Code: 'g', Mod: tea.ModCtrl})
		if ask == nil {
			t.Fatal("nothing is asked for")
		}
		answer := chatAllowed{id: "s", input: m.inputs, list: []runtime.Grant{{ID: "a", Title: "A", Revocable: true}}}
		c.meanwhile(m)
		before := m.picker
		m.Update(answer)
		if opened := m.picker != before; opened != c.opens {
			t.Errorf("behind %s it opens: %t", name, opened)
		}
	}
}
