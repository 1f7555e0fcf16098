package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func chatUpdate(kind, text string) acp.Message {
	content := rawjson.Object{}.String("type", "text").String("text", text).End()
	update := rawjson.Object{}.String("sessionUpdate", kind).Raw("content", content)
	if kind == "user_message_chunk" { // as the gateway shows another client's prompt
		update = update.Raw("_meta", []byte(`{"sandboxagent.dev":{"prompt":true}}`))
	}
	return acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", "s").Raw("update", update.End()).End())
}

// numbered is a message of this many pieces, as they come from the gateway: in batches.
func numbered(pieces int) (batches []chatBatch) {
	for i := range pieces {
		if i%chatBatchSize == 0 {
			batches = append(batches, nil)
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], chatUpdate("agent_message_chunk", fmt.Sprintf("%d ", i)))
	}
	return batches
}

// long are texts of which most is drawn once.
var long = map[string]string{
	"one paragraph": strings.Repeat("word after word and ", 2000),
	"soft lines":    strings.Repeat("a line that is short\nand a **bold** one of `code`\n", 800),
	"paragraphs":    strings.Repeat("A paragraph with some words in it, and with a [link](https://example.com).\n\n", 600),
	"code":          "It is:\n\n```go\n" + strings.Repeat("func f() {\n\treturn // with a comment that is longer than the window is wide, by a lot\n}\n\n", 400) + "```\n\nThis was all.",
	"a list":        strings.Repeat("- a thing that is long enough to need two lines in a narrow window\n", 600),
	"sections":      strings.Repeat("# Head\n\n1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> said\n\n~~~\ncode\n\nmore\n~~~\n\n", 300),
	"letters":       strings.Repeat("日本語のテキスト ", 2000),
	"a table":       "| a | b |\n|---|---|\n" + strings.Repeat("| one | two |\n", 2000),
	"not a word":    strings.Repeat("x", 40000),
}

// A text that is drawn while it grows looks as it does when it is drawn at once.
func TestChat_ALongTextIsDrawnInParts(t *testing.T) {
	for name, text := range long {
		whole := name == "a table" || name == "not a word" // these have no parts, and all of it is rendered each time
		step := map[bool]int{false: 1000, true: 8000}[whole]
		for _, width := range []int{40, 81} {
			look := chatLook{newChatStyles(true), width, false}
			e := &chatEntry{kind: "agent"}
			for rest := text; rest != ""; {
				n := min(step, len(rest))
				e.add(rest[:n])
				rest = rest[n:]
				e.draw(look)
			}
			if got, want := e.lines, look.drawn(text); !slices.Equal(got, want) {
				i := 0
				for i < len(got) && i < len(want) && got[i] == want[i] {
					i++
				}
				t.Errorf("%s, %d columns: %d lines are not the %d of all at once, from line %d:\n%q\n%q", name, width, len(got), len(want), i, got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
			}
			if rest := len(text) - e.done.from; !whole && rest > 3*chatPiece {
				t.Errorf("%s, %d columns: %d bytes are rendered each time", name, width, rest)
			}
		}
	}
}

// While a session is opened its conversation is not drawn.
func TestChat_IsDrawnWhenItIsOpen(t *testing.T) {
	m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	for _, b := range numbered(1000) {
		m.Update(b)
	}
	if len(m.entries) != 1 || m.entries[0].lines != nil {
		t.Errorf("%d entries, the first of which has %d lines", len(m.entries), len(m.entries[0].lines))
	}
	m.Update(chatBatch{chatOpened{of: m.opening, id: "s", agent: "mock"}})
	if !strings.Contains(m.View().Content, " 999 ") {
		t.Errorf("it is open:\n%s", m.View().Content)
	}
}

// What it costs to show a message of many pieces: when the session is opened, and while it is written.
func BenchmarkChat_ALongMessage(b *testing.B) {
	for _, pieces := range []int{10000, 20000, 100000} {
		batches := numbered(pieces)
		for _, open := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d pieces, open %t", pieces, open), func(b *testing.B) {
				for b.Loop() {
					m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
					opening := m.opening
					if open {
						m.opening = nil
					}
					m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
					for _, batch := range batches {
						m.Update(batch)
					}
					m.opening = opening
					m.opened(chatOpened{of: opening, id: "s"})
					m.Update(nil)
				}
			})
		}
	}
}
