package main

import (
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
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	neverBegan = `{"stopReason":"cancelled","_meta":{"sandboxagent.dev":{"began":false}}}`
	endTurn    = `{"stopReason":"end_turn"}`
)

// prompted is the beginning of a turn of another client.
func prompted(text string) acp.Message {
	return updated(`"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"` + text + `"},"_meta":{"sandboxagent.dev":{"prompt":true}}`)
}

// ends is how the prompt ends that was sent: its answer, and the end of the request.
func ends(own *chatOwn, result string) chatBatch {
	return chatBatch{answered(result), chatDone{what: "prompt", id: "s", own: own, text: own.text, result: []byte(result)}}
}

// comesBack goes to the session s again, which has this conversation, and says whether a turn goes on; news come before the
// chat has taken the answer.
func (m *chatModel) comesBack(turn string, conversation []acp.Message, news ...tea.Msg) {
	o := m.choosesSession("s")
	answer := acp.NewResult(acp.IntID(101), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"`+turn+`"}}}`))
	batch := chatBatch{chatLoads{o, answer.ID()}}
	for _, f := range conversation {
		batch = append(batch, f)
	}
	m.Update(append(append(append(batch, answer), news...), chatOpened{of: o, id: "s", agent: "mock", result: answer.Result()}))
}

// A prompt that ends before it began, in a session that was left, is not put into what is written meanwhile for another
// session. It is there where its own session is gone to, and until then who leaves is told of it.
func TestChat_DroppedInASessionThatWasLeft(t *testing.T) {
	for _, speaks := range []int{1, acpversion.Two} {
		for _, failure := range []error{nil, io.EOF} {
			m := chatAt(speaks)
			m.sends("first")
			done := chatDone{what: "prompt", id: "s", own: m.own, text: "first", err: failure}
			if failure == nil {
				done.result = []byte(neverBegan)
			}
			m.Update(m.opens(m.choosesSession("a"), "a", 100))
			m.input.SetValue("for a")
			m.Update(chatBatch{done})
			if m.input.Value() != "for a" {
				t.Errorf("version %d, %v: %q is written", speaks, failure, m.input.Value())
			}
			want := []string{"a prompt that did not begin in session s"}
			if failure != nil {
				want = append(want, "session s: ✗ ")
				if speaks == 1 { // nobody has told whether it began
					want[0] = "a prompt that failed, and may have begun, in session s"
				}
			}
			for _, text := range want {
				if got := strings.Join(m.shown(), "\n"); !strings.Contains(got, text) {
					t.Errorf("version %d, %v: shown is %q, without %q", speaks, failure, got, text)
				}
			}
			m.input.Reset()
			if !strings.Contains(m.farewell(), "other sessions") {
				t.Errorf("version %d, %v: who leaves is told %q", speaks, failure, m.farewell())
			}
			m.Update(m.opens(m.choosesSession("s"), "s", 101))
			if m.input.Value() != "first" || len(m.kept) > 0 || m.own != nil {
				t.Errorf("version %d, %v: back there %q is written", speaks, failure, m.input.Value())
			}
			m.Update(m.opens(m.choosesSession("a"), "a", 102))
			if got := m.unsent(); got != "first" {
				t.Errorf("version %d, %v: at a signal %q was not sent", speaks, failure, got)
			}
		}
	}
}

// What waits when its session is left is there when that is gone to, and not in what is written for another one; when the
// other one cannot be opened, it is written.
func TestChat_WaitsInASessionThatIsLeft(t *testing.T) {
	m := chatAt(1)
	m.Update(chatBatch{prompted("from A")})
	m.sends("one")
	m.sends("two")
	m.input.SetValue("draft")
	o := m.choosesSession("a")
	m.Update(nil)
	if got := strings.Join(m.shown(), "\n"); !strings.Contains(got, "what waits in session s") || m.input.Value() != "draft" || len(m.queue) > 0 {
		t.Errorf("%q is written, %q waits, shown is %q", m.input.Value(), m.queue, got)
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	m.Update(chatBatch{chatOpened{of: o, id: "a", err: io.EOF}}) // it leads back to s
	if got := m.input.Value(); got != "one\ntwo\ndraft" || len(m.kept) > 0 {
		t.Errorf("back there %q is written, %q is kept", got, m.kept)
	}
}

// What is kept for a session is not lost when nobody can go there any more, nor when who leaves has said so.
func TestChat_KeptForASessionThatEnds(t *testing.T) {
	waits := func() *chatModel {
		m := chatAt(1)
		m.Update(chatBatch{prompted("from A")})
		m.sends("one")
		m.sends("two")
		m.Update(m.opens(m.choosesSession("a"), "a", 100))
		return m
	}
	m := waits()
	m.knows = true
	if got := m.unsent(); got != "one\ntwo" {
		t.Errorf("of what was kept %q is printed", got)
	}
	for name, list := range map[string]chatSessions{
		"it has ended": {list: []runtime.SessionInfo{{ID: "a"}, {ID: "s", State: runtime.StateEnded}}},
		"it is gone":   {list: []runtime.SessionInfo{{ID: "a"}}},
	} {
		m := waits()
		m.offerSessions(list)
		if m.input.Value() != "one\ntwo" || len(m.kept) > 0 {
			t.Errorf("%s: %q is written, and %q kept", name, m.input.Value(), m.kept)
		}
	}
	m = waits()
	m.offerSessions(chatSessions{list: []runtime.SessionInfo{{ID: "a"}}, more: true})
	if m.input.Value() != "" || len(m.kept) != 1 {
		t.Errorf("it may be one of those that are not listed: %q is written, and %q kept", m.input.Value(), m.kept)
	}
}

// What was written for a session that cannot be opened is written still, also where there is none to go back to.
func TestChat_WrittenForASessionThatCannotBeOpened(t *testing.T) {
	m := chatAt(1)
	m.over = true
	o := m.choosesSession("b")
	m.sends("do X")
	m.Update(chatBatch{chatOpened{of: o, id: "b", err: io.EOF}})
	if m.input.Value() != "do X" || len(m.queue) > 0 {
		t.Errorf("%q is written, and %q waits", m.input.Value(), m.queue)
	}
}

// A turn that began in a session that was left, and fails there, was no prompt that came back.
func TestChat_FailedInASessionThatWasLeft(t *testing.T) {
	for _, speaks := range []int{1, acpversion.Two} {
		m := chatAt(speaks)
		m.sends("first")
		m.Update(chatBatch{chatUpdate("agent_message_chunk", "to first"), answered(`{"messageId":"1"}`)})
		own := m.own
		m.Update(m.opens(m.choosesSession("a"), "a", 100))
		m.Update(chatBatch{chatDone{what: "prompt", id: "s", own: own, text: "first", err: io.EOF}})
		if len(m.kept) > 0 || len(m.away) > 0 || m.input.Value() != "" {
			t.Errorf("version %d: %q is kept, %q is written", speaks, m.kept, m.input.Value())
		}
	}
}

// A prompt that waits behind another's turn is the same one after the chat was in another session, whatever the conversation
// says: with these words before, with the end of that turn before the chat has taken that the session is open.
func TestChat_ComesBackToAPromptThatWaits(t *testing.T) {
	earlier := []acp.Message{prompted("continue"), chatUpdate("agent_message_chunk", "I did"), prompted("from A"), chatUpdate("agent_message_chunk", "to A")}
	otherEnds := noticed(turnEnded, `"result":{"stopReason":"end_turn"}`)
	for _, between := range []bool{false, true} {
		for _, result := range []string{neverBegan, endTurn} {
			m := chatAt(1)
			m.Update(chatBatch{prompted("from A")})
			m.sends("waits")
			m.queue, m.busy = nil, false // it was sent before that one's beginning was told
			m.sends("continue")
			m.Update(chatBatch{prompted("from A")})
			own := m.own
			m.Update(m.opens(m.choosesSession("a"), "a", 100))
			m.input.Reset()
			var news []tea.Msg
			if between {
				news = append(news, otherEnds)
			}
			m.comesBack("running", earlier, news...)
			name := fmt.Sprintf("between turns %t, %s", between, result)
			if m.own != own || own.begun {
				t.Fatalf("%s: what was sent is %v", name, m.own)
			}
			if !between {
				m.shows(t, "❯ continue", "I did", "❯ from A", "to A", "waits: continue")
			}
			if result == neverBegan {
				if m.Update(ends(own, result)); m.own == nil && !slices.Contains(m.queue, "continue") || m.own != nil && m.own.text != "continue" || m.own == own {
					t.Errorf("%s: it waits no more: %q, %v", name, m.queue, m.own)
				}
				continue
			}
			if !between {
				m.Update(chatBatch{otherEnds})
			}
			m.Update(chatBatch{chatUpdate("agent_message_chunk", "to B")})
			if !own.begun || !strings.HasPrefix(ansi.Strip(m.statusLine()), "working") {
				t.Errorf("%s: its turn is not shown", name)
			}
			m.Update(ends(own, result))
			m.shows(t, "❯ continue", "I did", "❯ from A", "to A", "❯ continue", "to B")
			if m.own != nil || m.busy {
				t.Errorf("%s: in the end working %t, what was sent is %v", name, m.busy, m.own)
			}
		}
	}
}

// When another client's turn has the same words, the end of the prompt says which of both it was: one that never began
// waits again, or is written when it was cancelled here.
func TestChat_TheEndSaysWhetherThereWasATurn(t *testing.T) {
	for _, escape := range []bool{false, true} {
		m := chatAt(1)
		m.sends("continue")
		own := m.own
		m.Update(m.opens(m.choosesSession("a"), "a", 100))
		m.comesBack("running", []acp.Message{prompted("continue"), chatUpdate("agent_message_chunk", "to A")})
		if escape {
			m.Update(tea.KeyPressMsg{Code: tea.KeyEscape})
		}
		m.Update(ends(own, neverBegan))
		if again := m.own != nil && m.own.text == "continue" || slices.Contains(m.queue, "continue"); again == escape || (m.input.Value() == "continue") != escape {
			t.Errorf("Escape %t: %q is written, %q waits, sent is %v", escape, m.input.Value(), m.queue, m.own)
		}
	}
}

// A turn may end between what the answer that opens its session knows and that answer: it does not go on then, unless another
// one has begun.
func TestChat_EndsWhileItsSessionIsOpened(t *testing.T) {
	for _, next := range []string{"", "from A"} {
		m := chatAt(1)
		m.sends("first")
		own := m.own
		m.Update(m.opens(m.choosesSession("a"), "a", 100))
		o := m.choosesSession("s")
		answer := acp.NewResult(acp.IntID(101), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"running"}}}`))
		m.Update(append(chatBatch{chatLoads{o, answer.ID()}, prompted("first"), chatUpdate("agent_message_chunk", "to first")}, ends(own, endTurn)...))
		if next != "" {
			m.Update(chatBatch{prompted(next)})
		}
		m.Update(chatBatch{answer, chatOpened{of: o, id: "s", agent: "mock", result: answer.Result()}})
		if m.busy != (next != "") || m.own != nil {
			t.Errorf("then %q: working %t, what was sent is %v", next, m.busy, m.own)
		}
	}
}

// The end of a prompt that the chat has let go of is no end of a later one of the same session.
func TestChat_TwoPromptsOfASessionThatWasLeft(t *testing.T) {
	m := chatAt(1)
	m.sends("first")
	m.Update(chatBatch{chatUpdate("agent_message_chunk", "to first")})
	first := m.own
	m.Update(m.opens(m.choosesSession("a"), "a", 100))
	m.comesBack("idle", []acp.Message{prompted("first"), chatUpdate("agent_message_chunk", "to first")})
	if m.own != nil {
		t.Fatalf("its turn has ended: what was sent is %v", m.own)
	}
	m.sends("second")
	second := m.own
	m.Update(m.opens(m.choosesSession("a"), "a", 102))
	m.Update(ends(first, endTurn))
	if m.comesBack("running", []acp.Message{prompted("first"), chatUpdate("agent_message_chunk", "to first"), prompted("second")}); m.own != second || !second.begun {
		t.Errorf("what was sent is %v", m.own)
	}
}

// What is written while there is no connection is not sent before there is one again, and until then not lost by leaving.
func TestChat_WrittenWithoutAConnection(t *testing.T) {
	lost := chatBatch{lasting.Link{Lost: io.EOF, Since: time.Now()}}
	for _, speaks := range []int{1, acpversion.Two} {
		m := chatAt(speaks)
		m.Update(lost)
		m.sends("written")
		if m.own != nil || !slices.Equal(m.queue, []string{"written"}) {
			t.Errorf("version %d: sent is %v, %q waits", speaks, m.own, m.queue)
		}
		if _, cmd := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); m.knows || cmd != nil || !strings.Contains(m.statusLine(), "a prompt that waits") {
			t.Errorf("version %d: the first Ctrl-C leaves, or says %q", speaks, m.statusLine())
		}
		if m.Update(chatBatch{lasting.Link{}}); m.own == nil || m.own.text != "written" {
			t.Errorf("version %d: with a connection again sent is %v", speaks, m.own)
		}
		m.Update(tea.KeyPressMsg{Code: tea.KeyPgDown})
		m.Update(lost) // nobody has heard of it
		if m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); m.knows || m.doubtful() != "written" {
			t.Errorf("version %d: the first Ctrl-C leaves, or %q is in doubt", speaks, m.doubtful())
		}
		m = chatAt(speaks)
		m.Update(lost)
		if m.sends("written"); m.unsent() != "written" {
			t.Errorf("version %d: at a signal it is lost", speaks)
		}
	}
}
