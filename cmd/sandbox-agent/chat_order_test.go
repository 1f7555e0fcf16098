package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
)

// chatAt is a chat in an open session.
func chatAt(speaks int) *chatModel {
	m := newChatModel(&chatSession{id: "s", ctx: context.Background()}, chatOptions{acp: speaks}, nil)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	m.Update(chatBatch{chatOpened{of: m.opening, id: "s", agent: "mock"}})
	return m
}

func (m *chatModel) sends(text string) {
	m.input.SetValue(text)
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if m.own != nil && m.own.request == "" {
		m.Update(chatBatch{chatSent{m.own, acp.IntID(9)}})
	}
}

// noticed is a notification about the session.
func noticed(method, params string) acp.Message {
	return acp.NewNotification(method, []byte(`{"sessionId":"s",`+params+`}`))
}

func updated(update string) acp.Message {
	return noticed(acp.MethodSessionUpdate, `"update":{`+update+`}`)
}

func answered(result string) acp.Message { return acp.NewResult(acp.IntID(9), []byte(result)) }

// shown is what is above the rule, without empty lines.
func (m *chatModel) shown() (lines []string) {
	for _, l := range strings.Split(ansi.Strip(m.View().Content), "\n") {
		if strings.HasPrefix(l, "─") {
			break
		}
		if l = strings.TrimRight(l, " "); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

func (m *chatModel) shows(t *testing.T, want ...string) {
	t.Helper()
	if got := m.shown(); !slices.Equal(got, want) {
		t.Errorf("shown is\n\t%q, not\n\t%q", got, want)
	}
}

const turnEnded = "_sandboxagent/session/turn_ended"

// The conversation stands in the order of the log, whose prompt the gateway began with, and what
// is of different turns stays apart.
func TestChat_TwoPromptsAtOnce(t *testing.T) {
	m := chatAt(1)
	m.sends("from B")
	m.shows(t, "❯ from B")
	m.Update(chatBatch{chatUpdate("user_message_chunk", "from A")})
	m.shows(t, "❯ from A", "waits: from B")
	m.Update(chatBatch{chatUpdate("agent_message_chunk", "to A")})
	m.shows(t, "❯ from A", "to A", "waits: from B")
	m.Update(chatBatch{noticed(turnEnded, `"error":{"code":-32800,"message":"the prompt was cancelled before it began"}`)}) // somebody else's
	m.shows(t, "❯ from A", "to A", "waits: from B")
	m.Update(chatBatch{noticed(turnEnded, `"result":{"stopReason":"cancelled"},"began":false`)}) // that waited, too
	m.shows(t, "❯ from A", "to A", "waits: from B")
	m.Update(chatBatch{noticed(turnEnded, `"result":{"stopReason":"end_turn"}`)})
	m.shows(t, "❯ from A", "to A", "❯ from B")
	m.Update(chatBatch{chatUpdate("user_message_chunk", "from C")}) // it was before B, too
	m.shows(t, "❯ from A", "to A", "❯ from C", "waits: from B")
	m.Update(chatBatch{noticed(turnEnded, `"result":{"stopReason":"end_turn"}`), chatUpdate("agent_message_chunk", "to B")})
	m.shows(t, "❯ from A", "to A", "❯ from C", "❯ from B", "to B")
	// What comes behind the answer is of the next turn, also before this chat has taken it.
	m.sends("more of B")
	m.Update(chatBatch{answered(`{"stopReason":"end_turn"}`), chatUpdate("user_message_chunk", "from D"), chatUpdate("agent_message_chunk", "to D"), chatDone{what: "prompt", id: "s", own: m.own, text: "from B", result: []byte(`{"stopReason":"end_turn"}`)}})
	m.shows(t, "❯ from A", "to A", "❯ from C", "❯ from B", "to B", "❯ from D", "to D", "waits: more of B")
	if m.own != nil || !m.busy {
		t.Errorf("working %t; what was sent is %v", m.busy, m.own)
	}
}

// Some agents repeat what they were told: that is no turn of another client.
func TestChat_AgentRepeatsThePrompt(t *testing.T) {
	m := chatAt(1)
	m.sends("from B")
	m.Update(chatBatch{updated(`"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"from B"}`), chatUpdate("agent_message_chunk", "to B")})
	m.shows(t, "❯ from B", "to B")
	m.Update(chatBatch{answered(`{"stopReason":"end_turn"}`), chatDone{what: "prompt", id: "s", own: m.own, text: "from B", result: []byte(`{"stopReason":"end_turn"}`)}})
	m.shows(t, "❯ from B", "to B")
	if m.own != nil || m.busy {
		t.Errorf("working %t; what was sent is %v", m.busy, m.own)
	}
}

func TestChat_TwoPromptsAtOnceInVersionTwo(t *testing.T) {
	said := func(id, text string) acp.Message {
		return updated(`"sessionUpdate":"user_message","messageId":"` + id + `","content":[{"type":"text","text":"` + text + `"}]`)
	}
	running, idle := updated(`"sessionUpdate":"state_update","state":"running"`), updated(`"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"`)
	replied := func(id, text string) acp.Message {
		return updated(`"sessionUpdate":"agent_message_chunk","messageId":"` + id + `","content":{"type":"text","text":"` + text + `"}`)
	}
	for _, other := range []string{"from A", "from B"} { // also when both say the same
		m := chatAt(acpversion.Two)
		m.sends("from B")
		m.shows(t, "❯ from B")
		m.Update(chatBatch{said("1", other), running, replied("2", "to A")})
		if other == "from A" {
			m.shows(t, "❯ from A", "to A", "waits: from B")
		}
		m.Update(chatBatch{idle})
		m.shows(t, "❯ "+other, "to A", "❯ from B")
		m.Update(chatBatch{said("3", "from B"), running})
		m.shows(t, "❯ "+other, "to A", "❯ from B")
		m.Update(chatBatch{answered(`{"messageId":"3"}`), replied("4", "to B"), idle, chatDone{what: "prompt", id: "s", own: m.own, text: "from B", result: []byte(`{"stopReason":"end_turn"}`)}})
		m.shows(t, "❯ "+other, "to A", "❯ from B", "to B")
		if m.own != nil || m.busy {
			t.Errorf("working %t; what was sent is %v", m.busy, m.own)
		}
	}
}

// A prompt that was dropped while it waited for another's turn is none of the conversation. It waits
// again, or is where it was written when that was what Escape was for.
func TestChat_DroppedBeforeItBegan(t *testing.T) {
	for _, speaks := range []int{1, acpversion.Two} {
		for _, escape := range []bool{false, true} {
			m := chatAt(speaks)
			m.sends("from B")
			if speaks == 1 {
				m.Update(chatBatch{chatUpdate("user_message_chunk", "from A")})
			} else {
				m.Update(chatBatch{
					updated(`"sessionUpdate":"user_message","messageId":"1","content":[{"type":"text","text":"from A"}]`),
					updated(`"sessionUpdate":"state_update","state":"running"`),
				})
			}
			if escape {
				m.Update(tea.KeyPressMsg{Code: tea.KeyEscape})
			}
			dropped := answered(`{"stopReason":"cancelled"}`)
			if speaks == acpversion.Two {
				dropped = acp.NewError(acp.IntID(9), acp.Errorf(acp.CodeCancelled, "it was cancelled"))
			}
			m.Update(chatBatch{dropped, chatDone{what: "prompt", id: "s", own: m.own, text: "from B", result: []byte(`{"stopReason":"cancelled"}`)}})
			want, written := []string{"❯ from A", "waits: from B"}, ""
			if escape {
				want, written = want[:1], "from B"
			}
			m.shows(t, want...)
			if m.input.Value() != written || !m.busy || m.own != nil {
				t.Errorf("version %d: %q is written, working %t, for itself %t", speaks, m.input.Value(), m.busy, m.own != nil)
			}
		}
	}
}

// In a conversation that is shown again nothing is told of the end of a turn. Prompts to which nothing
// was said are two all the same, and one of several pieces is one.
func TestChat_PromptsWithoutAnswers(t *testing.T) {
	m := chatAt(1)
	for _, piece := range []struct {
		seq  int
		text string
	}{{2, "one, "}, {3, "in pieces"}, {6, "two"}} {
		m.Update(chatBatch{noticed(acp.MethodSessionUpdate, fmt.Sprintf(`"_meta":{"sandboxagent.dev":{"seq":%d}},"update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"%s"}}`, piece.seq, piece.text))})
	}
	m.shows(t, "❯ one, in pieces", "❯ two")
}

// A new connection is another client to the gateway: it may be told of the chat's own prompt.
func TestChat_TheOwnPromptIsToldAfterALostConnection(t *testing.T) {
	m := chatAt(1)
	m.sends("echo q1")
	m.Update(chatBatch{lasting.Link{Lost: io.EOF, Since: time.Now()}, chatUpdate("user_message_chunk", "echo q1"), lasting.Link{}})
	m.Update(chatBatch{chatUpdate("agent_message_chunk", "q1"), answered(`{"stopReason":"end_turn"}`), chatDone{what: "prompt", id: "s", own: m.own, text: "echo q1", result: []byte(`{"stopReason":"end_turn"}`)}})
	m.Update(chatBatch{chatUpdate("user_message_chunk", "echo fromb"), chatUpdate("agent_message_chunk", "fromb")})
	var said []string
	for _, l := range m.shown() {
		if !strings.HasPrefix(l, "the connection") {
			said = append(said, l)
		}
	}
	if want := []string{"❯ echo q1", "q1", "❯ echo fromb", "fromb"}; !slices.Equal(said, want) {
		t.Errorf("shown is %q, not %q", said, want)
	}
}

// How a turn of another client has ended is said, as it is to who has sent its prompt.
func TestChat_HowAnothersTurnEnded(t *testing.T) {
	const failure = `{"code":-32603,"message":"the gateway was ended while the turn ran"}`
	for _, speaks := range []int{1, acpversion.Two} {
		for reason, want := range map[string]string{"cancelled": "the turn ended: cancelled", "end_turn": "", "error": "the gateway was ended while the turn ran"} {
			m := chatAt(speaks)
			m.busy = true
			switch {
			case speaks == acpversion.Two:
				idle := `"sessionUpdate":"state_update","state":"idle","stopReason":"` + reason + `"`
				if reason == "error" {
					idle += `,"error":` + failure
				}
				m.Update(chatBatch{updated(idle), updated(idle), noticed(turnEnded, `"error":`+failure)}) // it is said once
			case reason == "error":
				m.Update(chatBatch{noticed(turnEnded, `"error":`+failure)})
			default:
				m.Update(chatBatch{noticed(turnEnded, `"result":{"stopReason":"`+reason+`"}`)})
			}
			if got := strings.Join(m.shown(), "\n"); !strings.Contains(got, want) || want == "" && got != "" || strings.Count(got, "\n") > 0 || m.busy {
				t.Errorf("version %d, %s: %q is shown, working %t", speaks, reason, got, m.busy)
			}
		}
	}
}

// The answer that opens a session may come behind what happens then, which it does not know of.
func TestTurns_OpenedWhileOneBeginsOrEnds(t *testing.T) {
	begins := noticed(acp.MethodSessionUpdate, `"update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hi"},"_meta":{"sandboxagent.dev":{"prompt":true}}},"_meta":{"sandboxagent.dev":{"seq":5}}`)
	ends := noticed(turnEnded, `"result":{"stopReason":"end_turn"},"_meta":{"sandboxagent.dev":{"seq":5}}`)
	for _, tt := range []struct {
		name   string
		event  acp.Message
		answer string
		goesOn bool
	}{
		{"begins", begins, `"turn":"idle","seq":4`, true},
		{"began before", begins, `"turn":"idle","seq":6`, false},
		{"ends", ends, `"turn":"running","seq":4`, false},
		{"one ends that waited", noticed(turnEnded, `"result":{"stopReason":"cancelled"},"began":false,"_meta":{"sandboxagent.dev":{"seq":5}}`), `"turn":"running","seq":4`, true},
		{"ended before another", ends, `"turn":"running","seq":6`, true},
	} {
		m := newChatModel(&chatSession{id: "s"}, chatOptions{acp: 1}, nil)
		answer := acp.NewResult(acp.IntID(1), []byte(`{"_meta":{"sandboxagent.dev":{`+tt.answer+`}}}`))
		m.loads(chatLoads{m.opening, acp.IntID(1)})
		m.take(tt.event)
		m.take(answer)
		if m.busy != tt.goesOn {
			t.Errorf("chat, %s: a turn goes on: %t", tt.name, m.busy)
		}
		if tt.name == "began before" {
			continue // what is resumed does not come again
		}
		p := &turn{o: promptOptions{session: "s", acp: 1}}
		p.follow(&tt.event)
		if foreign := p.follow(&answer); foreign != tt.goesOn {
			t.Errorf("prompt, %s: another client's turn goes on: %t", tt.name, foreign)
		}
	}
}
