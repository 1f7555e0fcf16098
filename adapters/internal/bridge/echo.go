package bridge

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// maxSaid bounds the text of a model's response that is remembered in case its
// stream is repeated; beyond it a repetition is shown.
const maxSaid = 1 << 20

// piece is text of a message.
type piece struct{ id, text string }

// said is a message, as far as it came.
type said struct {
	id      string
	thought bool
	text    strings.Builder
	from    *said  // the message of a broken stream that this one repeats, as far as it does
	held    string // of that repetition
}

// Echo shows once what a model says again after its stream broke: the program
// starts the whole response anew, under other ids. The zero value is ready. It is
// used by one goroutine.
type Echo struct {
	now    []*said // of this response
	before []*said // of the response that broke
	size   int
}

// Begin starts a response.
func (e *Echo) Begin() { *e = Echo{} }

// Broken takes notice that the stream broke and that the response will be
// repeated.
func (e *Echo) Broken() {
	var before []*said
	for _, m := range append(e.now, e.before...) {
		if m.text.Len() > 0 {
			before = append(before, m)
		}
	}
	*e = Echo{before: before, size: e.size}
}

// Say takes a piece of a message and returns the chunks of what is new of it.
func (e *Echo) Say(id, text string, thought bool) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, p := range e.say(id, text, thought) {
		if p.text == "" {
			continue
		}
		if thought {
			u := schema.AgentThought(schema.TextBlock(p.text))
			u.AgentThoughtChunk.MessageID = schema.MessageID(p.id)
			out = append(out, u)
			continue
		}
		u := schema.AgentMessage(schema.TextBlock(p.text))
		u.AgentMessageChunk.MessageID = schema.MessageID(p.id)
		out = append(out, u)
	}
	return out
}

func (e *Echo) say(id, text string, thought bool) []piece {
	var m *said
	for _, one := range e.now {
		if one.id == id {
			m = one
		}
	}
	if m == nil {
		m = &said{id: id, thought: thought}
		for i, b := range e.before {
			if b.thought == thought {
				m.from = b
				e.before = append(e.before[:i:i], e.before[i+1:]...)
				break
			}
		}
		e.now = append(e.now, m)
	}
	if e.size += len(text); e.size > maxSaid {
		m.from = nil
		return []piece{{id, text}}
	}
	m.text.WriteString(text)
	if m.from == nil {
		return []piece{{id, text}}
	}
	old := m.from.text.String()
	switch m.held += text; {
	case strings.HasPrefix(old, m.held):
		return nil // as before, so far
	case strings.HasPrefix(m.held, old):
		// It goes on where the stream broke, as the same message.
		text, m.held = m.held[len(old):], old
		return []piece{{m.from.id, text}}
	}
	text, m.from = m.held, nil
	return []piece{{id, text}}
}
