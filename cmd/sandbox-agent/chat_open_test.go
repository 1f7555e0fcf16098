package main

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"sandboxagent.dev/sandbox-agent/acp"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
)

// of is a message about a session.
func of(session, method, params string) acp.Message {
	return acp.NewNotification(method, []byte(`{"sessionId":"`+session+`",`+params+`}`))
}

// said is what an agent says in a session.
func said(session, text string) acp.Message {
	return of(session, acp.MethodSessionUpdate, `"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`+text+`"}}`)
}

// choosesSession goes to a session as if it was taken from the list.
func (m *chatModel) choosesSession(id string) *chatOpening {
	m.offerSessions(chatSessions{input: m.inputs})
	m.picker.take(id)
	m.picker = nil
	return m.opening
}

// opens is how a session opens, whose conversation is one message.
func (m *chatModel) opens(o *chatOpening, id string, request int64) chatBatch {
	answer := acp.NewResult(acp.IntID(request), []byte(`{}`))
	return chatBatch{chatLoads{o, acp.IntID(request)}, said(id, "told in "+id), answer, chatOpened{of: o, id: id, agent: "mock", result: answer.Result()}}
}

// The answer to an opening that was given up changes nothing, in whatever order the answers come: what is written goes to
// the session that was chosen last, whose conversation is shown once.
func TestChat_OnlyTheNewestOpeningCounts(t *testing.T) {
	const fails = "fails"
	for _, chosen := range [][]string{{"a", "b"}, {"a", "b", "a"}, {"a", "s"}, {"a", "b", "a", "s"}, {"a", "a"}} {
		for _, newestFirst := range []bool{false, true} {
			for _, outcome := range []string{"opens", fails} {
				m := chatAt(1)
				var openings []*chatOpening
				for _, id := range chosen {
					openings = append(openings, m.choosesSession(id))
				}
				m.sends("for the last")
				openings = slices.Compact(openings) // who chooses the one that is awaited goes on to await it
				if newestFirst {
					slices.Reverse(openings)
				}
				last := chosen[len(chosen)-1]
				for i, o := range openings {
					if o.waits { // nothing was sent for it
						continue
					}
					given := m.opening != o
					news := m.opens(o, o.id, int64(100+i))
					if given && outcome == fails {
						news = chatBatch{chatOpened{of: o, id: o.id, err: io.EOF}}
					}
					m.Update(news)
					if given && m.own != nil && m.opening != nil {
						t.Errorf("%q: a prompt was sent before its session was open", chosen)
					}
				}
				if o := m.opening; o != nil && !o.waits { // it had waited for an older one
					m.Update(m.opens(o, o.id, 200))
				}
				if m.opening != nil || m.session.id != last || m.own == nil || m.own.text != "for the last" {
					t.Errorf("%q, %s: in %s, awaited %v, what was sent is %v", chosen, outcome, m.session.id, m.opening, m.own)
				}
				m.shows(t, "told in "+last, "❯ for the last")
			}
		}
	}
}

// A session that cannot be opened leads back to the one that was open last, not to one that was only awaited.
func TestChat_GoesBackToTheOpenSession(t *testing.T) {
	m := chatAt(1)
	m.choosesSession("a")
	b := m.choosesSession("b")
	m.Update(chatBatch{chatOpened{of: b, id: "b", err: io.EOF}})
	if m.opening == nil || m.opening.id != "s" {
		t.Fatalf("awaited is %v", m.opening)
	}
	m.Update(m.opens(m.opening, "s", 100))
	if got := m.shown(); m.session.id != "s" || len(got) != 2 || got[0] != "told in s" || !strings.HasPrefix(got[1], "✗ ") {
		t.Errorf("in %s, shown is %q", m.session.id, got)
	}
}

// A new session that comes when another was chosen takes nothing over, and neither does its failure.
func TestChat_ANewSessionThatWasLeft(t *testing.T) {
	for _, err := range []error{nil, io.EOF} {
		m := newChatModel(&chatSession{ctx: context.Background()}, chatOptions{acp: 1}, nil)
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
		first := m.opening
		m.Update(chatBatch{of("n", acp.MethodSessionUpdate, `"update":{"sessionUpdate":"current_mode_update"}`)})
		m.Update(m.opens(m.choosesSession("a"), "a", 100))
		m.Update(chatBatch{chatOpened{of: first, id: map[bool]string{true: "n"}[err == nil], err: err}})
		m.sends("hi")
		if m.session.id != "a" || m.over || m.failed != nil || m.own == nil {
			t.Errorf("%v: in %s, over %t, failed %v", err, m.session.id, m.over, m.failed)
		}
	}
}

// Who has chosen a session stays in the chat when neither that one nor the new one before it can be opened.
func TestChat_StaysWhenTheChosenSessionIsRefused(t *testing.T) {
	m := newChatModel(&chatSession{ctx: context.Background()}, chatOptions{acp: 1}, nil)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	if cmd := m.receive(chatOpened{of: m.choosesSession("a"), id: "a", err: io.EOF}); cmd != nil || !m.over || m.failed != nil {
		t.Errorf("it quits %t, over %t, failed %v", cmd != nil, m.over, m.failed)
	}
}

// Whether a turn goes on is said by the answer of the session that is awaited, and by no other.
func TestChat_AnotherAnswerSaysNothingOfTheTurn(t *testing.T) {
	m := chatAt(1)
	a, b := m.choosesSession("a"), m.choosesSession("b")
	answer := func(id int64, turn string) acp.Message {
		return acp.NewResult(acp.IntID(id), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"`+turn+`"}}}`))
	}
	m.Update(chatBatch{chatLoads{a, acp.IntID(100)}, chatLoads{b, acp.IntID(101)}, answer(101, "idle"), answer(100, "running"), chatOpened{of: b, id: "b"}})
	if m.busy {
		t.Error("it waits for a turn of a session that was left")
	}
}

// In any order of what a person does and what is answered, a prompt is sent to the session that is open and was chosen last,
// and in the end one is open that shows its own conversation, or none can be.
func TestChat_OpeningsInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		dice := rand.New(rand.NewPCG(seed, 1))
		m := newChatModel(&chatSession{ctx: context.Background()}, chatOptions{acp: 1}, nil)
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 60})
		var awaited, seen []*chatOpening // that were sent and not answered; all that were sent
		requests, chosen := int64(100), ""
		step := func(msg tea.Msg) {
			own := m.own
			m.Update(msg)
			if o := m.opening; o != nil && !o.waits && !slices.Contains(seen, o) {
				awaited, seen = append(awaited, o), append(seen, o)
			}
			if m.own != nil && m.own != own && m.own.request == "" {
				requests++
				m.Update(chatBatch{chatSent{m.own, acp.IntID(requests)}})
				if m.opening != nil || m.own.text != "for "+m.session.id {
					t.Fatalf("seed %d: %q is sent to %s, awaited is %v", seed, m.own.text, m.session.id, m.opening)
				}
			}
		}
		answers := func(i int, fails bool) {
			o := awaited[i]
			awaited = slices.Delete(awaited, i, i+1)
			requests++
			id := cmp.Or(o.id, "new")
			switch {
			case fails:
				step(chatBatch{chatOpened{of: o, id: o.id, err: io.EOF}})
			case o.again:
				step(chatBatch{chatLoads{o, acp.IntID(requests)}, chatOpened{of: o, id: id}})
			default:
				step(m.opens(o, id, requests))
			}
		}
		step(nil)
		for range 40 {
			switch dice.IntN(6) {
			case 0:
				chosen = []string{"a", "b", "c"}[dice.IntN(3)]
				m.choosesSession(chosen)
				m.input.Reset() // what was for another session is back there
				step(nil)
			case 1, 2:
				if len(awaited) > 0 {
					answers(dice.IntN(len(awaited)), chosen != "" && dice.IntN(4) == 0)
				}
			case 3:
				if m.session.id != "" {
					m.input.SetValue("for " + m.session.id)
					step(tea.KeyPressMsg{Code: tea.KeyEnter})
				}
			case 4:
				if m.opening == nil && m.own == nil && !m.over {
					step(chatBatch{of(m.session.id, "_sandboxagent/session/ended", `"data":{"reason":"closed"}`)})
				}
			case 5:
				if own := m.own; own != nil {
					res := []byte(`{"stopReason":"end_turn"}`)
					step(chatBatch{acp.NewResult(own.request, res), chatDone{what: "prompt", id: m.session.id, own: own, result: res}})
				}
			}
		}
		for len(awaited) > 0 {
			answers(dice.IntN(len(awaited)), false)
		}
		for _, line := range m.shown() {
			if told, ok := strings.CutPrefix(line, "told in "); ok && told != m.session.id {
				t.Errorf("seed %d: in %s what was told in %s is shown", seed, m.session.id, told)
			}
		}
		if m.opening != nil || !m.over && len(m.queue) > 0 && m.own == nil {
			t.Errorf("seed %d: awaited is %v, %q waits", seed, m.opening, m.queue)
		}
	}
}

// A prompt of a session that was left is under way when the chat comes back, as long as the session says that a turn goes
// on, and its answer ends that; the answer is nobody else's.
func TestChat_ComesBackToItsPrompt(t *testing.T) {
	for _, speaks := range []int{1, acpversion.Two} {
		for _, when := range []string{"ends later", "has ended", "has ended, which nobody tells"} {
			goesOn := when == "ends later"
			m := chatAt(speaks)
			m.sends("first")
			own := m.own
			if speaks == acpversion.Two {
				m.Update(chatBatch{answered(`{"messageId":"1"}`)})
			}
			m.Update(m.opens(m.choosesSession("a"), "a", 100))
			m.sends("second")
			m.own.request = acp.IntID(10)
			end, done := answered(`{"stopReason":"end_turn"}`), chatDone{what: "prompt", id: "s", own: own, text: "first", result: []byte(`{"stopReason":"end_turn"}`)}
			if when == "has ended" {
				m.Update(chatBatch{end, done})
			}
			if m.own == nil || m.own.begun || m.own.text != "second" {
				t.Errorf("version %d: what was sent is %v", speaks, m.own)
			}
			turn, state := "idle", `"sessionUpdate":"state_update","state":"idle"`
			if goesOn {
				turn, state = "running", `"sessionUpdate":"state_update","state":"running"`
			}
			o := m.choosesSession("s")
			answer := acp.NewResult(acp.IntID(101), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"`+turn+`"}}}`))
			m.Update(chatBatch{chatLoads{o, answer.ID()}})
			if speaks == acpversion.Two {
				m.Update(chatBatch{updated(state)})
			} else {
				m.Update(chatBatch{updated(`"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"first"},"_meta":{"sandboxagent.dev":{"prompt":true}}`)})
			}
			m.Update(chatBatch{answer, chatOpened{of: o, id: "s", result: answer.Result()}})
			if works := strings.HasPrefix(ansi.Strip(m.statusLine()), "working"); works != goesOn {
				t.Errorf("version %d, %s: %q", speaks, when, m.statusLine())
			}
			if goesOn && speaks == 1 {
				m.Update(chatBatch{end, done})
			} else if goesOn {
				m.Update(chatBatch{updated(`"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"`), done})
			}
			if !strings.HasPrefix(ansi.Strip(m.statusLine()), "ready") {
				t.Errorf("version %d, %s, in the end: %q", speaks, when, m.statusLine())
			}
			m.sends("third")
			if m.own == nil || m.own.text != "third" {
				t.Errorf("version %d: what is sent is %v", speaks, m.own)
			}
		}
	}
}

// A closed session is opened before what waits is sent, each time until that succeeds.
func TestChat_OpensAClosedSessionAgain(t *testing.T) {
	m := chatAt(1)
	m.Update(chatBatch{said("s", "before"), noticed("_sandboxagent/session/ended", `"data":{"reason":"closed"}`)})
	for range 2 {
		m.sends("again")
		o := m.opening
		if o == nil || !o.again || m.own != nil || len(m.queue) != 1 {
			t.Fatalf("awaited is %v, sent %v", o, m.own)
		}
		m.Update(chatBatch{chatLoads{o, acp.IntID(100)}, chatOpened{of: o, id: "s", err: io.EOF}})
		if m.own != nil || len(m.queue) != 0 || m.input.Value() != "again" || m.opening != nil {
			t.Errorf("it was refused: %q is written, %q waits, sent %v", m.input.Value(), m.queue, m.own)
		}
	}
	m.sends("again")
	o := m.opening
	m.Update(chatBatch{chatLoads{o, acp.IntID(100)}, acp.NewResult(acp.IntID(100), []byte(`{}`)), chatOpened{of: o, id: "s", agent: "mock"}})
	if m.own == nil || m.own.text != "again" || !slices.Contains(m.shown(), "before") {
		t.Errorf("sent is %v, shown is %q", m.own, m.shown())
	}
}

// How an installation goes on is said until anything else is told.
func TestChat_AnInstallationIsOver(t *testing.T) {
	m := chatAt(1)
	m.sends("hi")
	progress := acp.NewNotification(methodInstallProgress, []byte(`{"agent":"mock","step":"land"}`))
	m.Update(chatBatch{progress})
	if got := ansi.Strip(m.statusLine()); !strings.HasPrefix(got, "installing mock: land") {
		t.Errorf("while it is installed: %q", got)
	}
	m.Update(chatBatch{acp.NewRequest(acp.IntID(1), acp.MethodSessionRequestPermission, []byte(`{"sessionId":"s","options":[{"name":"Allow"}]}`))})
	if got := ansi.Strip(m.statusLine()); !strings.HasPrefix(got, "waits for you") {
		t.Errorf("then: %q", got)
	}
	m.asks = nil
	m.Update(chatBatch{progress, acp.NewError(acp.IntID(9), acp.Errorf(acp.CodeInternal, "it cannot be installed"))})
	if got := ansi.Strip(m.statusLine()); strings.HasPrefix(got, "installing") {
		t.Errorf("it was not installed: %q", got)
	}
}

// A connection that ends for good while the first session opens leaves what was written where it is.
func TestChat_TheConnectionEndsBeforeASessionIsOpen(t *testing.T) {
	m := newChatModel(&chatSession{ctx: context.Background()}, chatOptions{acp: 1}, nil)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	m.sends("waits")
	m.input.SetValue("written")
	m.Update(chatBatch{chatGone{io.EOF}})
	if cmd := m.receive(chatOpened{of: m.opening, err: io.EOF}); cmd != nil || m.input.Value() != "waits\nwritten" {
		t.Errorf("it quits %t, and %q is written", cmd != nil, m.input.Value())
	}
	if got := strings.Join(m.shown(), "\n"); strings.Contains(got, "--session") || !strings.Contains(got, "what you write stays") {
		t.Errorf("shown is %q", got)
	}
	if got := m.unsent(); got != "waits\nwritten" {
		t.Errorf("at a signal %q was not sent", got)
	}
}
