package main

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// A list opens for who waits for it. Behind a key, a paste, and another list it opens nothing: the next Enter would take something
// back, or go to another session.
func TestChat_AListThatComesLateOpensNothing(t *testing.T) {
	lists := map[rune]func(*chatModel) tea.Msg{
		'g': func(m *chatModel) tea.Msg {
			return chatAllowed{id: "s", input: m.inputs, list: []runtime.Grant{{ID: "a", Title: "A", Revocable: true}}}
		},
		's': func(m *chatModel) tea.Msg {
			return chatSessions{input: m.inputs, list: []runtime.SessionInfo{{ID: "a"}}}
		},
	}
	for name, c := range map[string]struct {
		meanwhile func(*chatModel)
		opens     bool
	}{
		"nothing":      {func(*chatModel) {}, true},
		"a key":        {func(m *chatModel) { m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"}) }, false},
		"a paste":      {func(m *chatModel) { m.Update(tea.PasteMsg{Content: "x"}) }, false},
		"another list": {func(m *chatModel) { m.Update(chatSessions{input: m.inputs}) }, false},
	} {
		for key, list := range lists {
			m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
			_, ask := m.Update(tea.KeyPressMsg{Code: key, Mod: tea.ModCtrl})
			if ask == nil {
				t.Fatal("nothing is asked for")
			}
			answer := list(m)
			c.meanwhile(m)
			before := m.picker
			m.Update(answer)
			if opened := m.picker != before; opened != c.opens {
				t.Errorf("behind %s Ctrl-%c opens a list: %t", name, key, opened)
			}
		}
	}
}
