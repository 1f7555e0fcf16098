package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A digit in a text that is being written grants nothing: it stays in the text.
func TestChat_DigitsOfATextAnswerNothing(t *testing.T) {
	asked := func() *chatModel {
		m := newChatModel(&chatSession{}, chatOptions{}, nil)
		m.asks = []*chatAsk{{id: acp.IntID(1), params: []byte(`{"options":[{"optionId":"once","name":"Allow"},{"optionId":"always","name":"Always allow"}]}`)}}
		return m
	}
	press := func(m *chatModel, text string, alt bool) {
		for _, r := range text {
			k := tea.KeyPressMsg{Code: r, Text: string(r)}
			if alt {
				k.Mod, k.Text = tea.ModAlt, ""
			}
			m.key(k)
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
	m.noteAsked() // it has just appeared: nobody has read it
	press(m, "2", false)
	if len(m.asks) != 1 || m.input.Value() != "2" {
		t.Errorf("a digit in the moment in which something is asked: %d questions are open, and %q was written", len(m.asks), m.input.Value())
	}
	m.input.SetValue("")
	m.typed, m.askedAt = time.Time{}, time.Now().Add(-surprise)
	press(m, "2", false)
	if len(m.asks) != 0 {
		t.Error("a digit a moment later answers nothing")
	}
	m = asked()
	m.noteAsked()
	press(m, "2", true)
	if len(m.asks) != 0 {
		t.Error("Alt and a number does not answer at once")
	}
	m = asked()
	m.input.SetValue("")
	m.typed = time.Now() // the last letter was taken back a moment ago
	press(m, "2", false)
	if len(m.asks) != 1 {
		t.Error("a digit right behind a letter answered")
	}
}

// Who leaves is told once of what would not be sent, and that the agent goes on; any other key
// goes back to the chat.
func TestChat_LeavingLosesNothingInSilence(t *testing.T) {
	quits := func(m *chatModel, letter rune) bool {
		cmd := m.key(tea.KeyPressMsg{Code: letter, Mod: tea.ModCtrl})
		if cmd == nil {
			return false
		}
		_, quit := cmd().(tea.QuitMsg)
		return quit
	}
	for name, c := range map[string]struct {
		prepare func(*chatModel)
		says    string
	}{
		"nothing":         {func(*chatModel) {}, ""},
		"a text":          {func(m *chatModel) { m.input.SetValue("draft") }, "without sending the text you write"},
		"a prompt":        {func(m *chatModel) { m.queue = []string{"one"}; m.own = &chatOwn{} }, "without sending a prompt that waits"},
		"prompts, a text": {func(m *chatModel) { m.queue = []string{"one", "two"}; m.input.SetValue("x") }, "without sending 2 prompts that wait and the text you write"},
		"a turn":          {func(m *chatModel) { m.own = &chatOwn{} }, "the agent goes on"},
		"a turn far away": {func(m *chatModel) { m.own, m.lost = &chatOwn{begun: true}, time.Now() }, ""},
		"a prompt far away": {func(m *chatModel) {
			m.own, m.lost = &chatOwn{chatEntry: &chatEntry{text: "sent"}}, time.Now()
		}, "may not have arrived"},
		"of another session": {func(m *chatModel) { m.kept["a"] = "came back" }, "without sending what waits for other sessions"},
		"blanks are no text": {func(m *chatModel) { m.input.SetValue(" \n") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newChatModel(&chatSession{}, chatOptions{}, nil)
			m.width = 120
			c.prepare(m)
			if c.says == "" {
				if !quits(m, 'c') {
					t.Error("it does not end")
				}
				return
			}
			if quits(m, 'c') || !strings.Contains(m.statusLine(), c.says) {
				t.Errorf("it ended, or the status line is %q", m.statusLine())
			}
			m.key(tea.KeyPressMsg{Code: tea.KeyPgUp})
			if strings.Contains(m.statusLine(), c.says) || quits(m, 'c') {
				t.Error("another key does not go back")
			}
			if !quits(m, 'c') {
				t.Error("the second one does not end it")
			}
			m.leaving, m.queue = false, []string{"one"}
			m.input.SetValue("")
			if quits(m, 'd') || !quits(m, 'd') {
				t.Error("Ctrl-D is not asked once")
			}
		})
	}
}

// A terminal that tells keys apart which are one elsewhere changes nothing but Shift-Enter.
func TestChat_KeysOfNewerTerminals(t *testing.T) {
	m := newChatModel(&chatSession{}, chatOptions{}, nil)
	m.input.SetValue("ab")
	m.key(tea.KeyPressMsg{Code: tea.KeyBackspace, Mod: tea.ModShift})
	m.key(tea.KeyPressMsg{Code: tea.KeyEnter, Mod: tea.ModShift})
	if got := m.input.Value(); got != "a\n" || len(m.queue) != 0 {
		t.Errorf("Shift: %q, and %q waits", got, m.queue)
	}
	m.key(tea.KeyPressMsg{Code: 'm', Mod: tea.ModCtrl})
	if len(m.queue) != 1 {
		t.Error("Ctrl-M does not send")
	}
	m.picker = &chatPicker{}
	m.update(tea.PasteMsg{Content: "text"})
	if m.input.Value() != "" {
		t.Error("what is pasted into a list is written")
	}
	if m.picker = (&chatPicker{}); m.key(tea.KeyPressMsg{Code: '[', Mod: tea.ModCtrl}) != nil {
		t.Error("Ctrl-[ in a list does something")
	}
}

// Where there is no room for all, the end is shown: what is asked, and the input.
func TestChat_ASmallTerminal(t *testing.T) {
	m := newChatModel(&chatSession{}, chatOptions{}, nil)
	if v := m.View(); v.Content != "" || !v.AltScreen {
		t.Errorf("before the size is known: %q", v.Content)
	}
	m.opening = nil
	m.asks = []*chatAsk{{id: acp.IntID(1), params: []byte(`{"options":[{"name":"Allow"},{"name":"Reject"}]}`)}}
	for height := 2; height < 12; height++ {
		m.Update(tea.WindowSizeMsg{Width: 40, Height: height})
		v := m.View()
		lines := strings.Split(v.Content, "\n")
		if len(lines) != height || !strings.Contains(lines[height-1], "waits for you") || !strings.Contains(lines[v.Cursor.Y], "❯") {
			t.Errorf("%d lines, the cursor in %d:\n%s", height, v.Cursor.Y, v.Content)
		}
	}
}

// What is asked is answered by a number only where all of it can be read: what it is, and each choice.
func TestChat_NothingIsAnsweredUnread(t *testing.T) {
	const options = `"options":[{"optionId":"a","name":"Allow"},{"optionId":"b","name":"Always allow"},{"optionId":"c","name":"Reject"}]`
	for name, params := range map[string]string{
		"short":    `{"toolCall":{"title":"Remove all"},` + options + `}`,
		"long":     `{"toolCall":{"title":"Remove all ` + strings.Repeat("of what is there and of what comes later ", 20) + `to the end"},` + options + `}`,
		"question": `{"questions":[{"question":"Remove all","options":[{"label":"Allow"},{"label":"Always allow"},{"label":"Reject"}]}]}`,
	} {
		for width := 20; width <= 100; width += 10 {
			answers := false
			for height := 1; height <= 30; height++ {
				m := newChatModel(&chatSession{}, chatOptions{}, nil)
				m.opening = nil
				m.note("before")
				m.asks = []*chatAsk{{id: acp.IntID(1), params: []byte(params), question: name == "question"}}
				m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				shown := m.View().Content
				if n := strings.Count(shown, "\n") + 1; n > height {
					t.Fatalf("%s, %dx%d: %d lines", name, width, height, n)
				}
				missing := slices.IndexFunc([]string{"Remove", "1 Allow", "2 Always", "3 Reject", "❯"}, func(s string) bool { return !strings.Contains(ansi.Strip(shown), s) })
				m.askedAt = time.Time{} // it was read
				m.Update(tea.KeyPressMsg{Code: '1', Text: "1"})
				if len(m.asks) > 0 {
					m.input.Reset()
					m.Update(tea.KeyPressMsg{Code: '1', Mod: tea.ModAlt})
				}
				if len(m.asks) == 0 && missing >= 0 || len(m.asks) > 0 && answers {
					t.Errorf("%s, %dx%d: answered %t, of:\n%s", name, width, height, len(m.asks) == 0, shown)
				}
				answers = len(m.asks) == 0
				if answers {
					continue
				}
				if m.Update(tea.KeyPressMsg{Code: tea.KeyEscape}); len(m.asks) > 0 {
					t.Errorf("%s, %dx%d: Escape does not reject", name, width, height)
				}
			}
			if !answers {
				t.Errorf("%s, %d columns: it is answered in no window", name, width)
			}
		}
	}
}

// A long title is read with PgDn, to its last word.
func TestChat_ALongQuestionIsRead(t *testing.T) {
	var words []string
	for i := range 300 {
		words = append(words, fmt.Sprintf("word%d.", i))
	}
	m := newChatModel(&chatSession{}, chatOptions{}, nil)
	m.asks = []*chatAsk{{id: acp.IntID(1), params: []byte(`{"toolCall":{"title":"` + strings.Join(words, " ") + `"},"options":[{"name":"Allow"}]}`)}}
	m.Update(tea.WindowSizeMsg{Width: 60, Height: 14})
	read := ansi.Strip(m.View().Content)
	for range 100 {
		m.Update(tea.KeyPressMsg{Code: tea.KeyPgDown})
		read += ansi.Strip(m.View().Content)
	}
	for _, w := range words {
		if !strings.Contains(read, w) {
			t.Fatalf("%s is not shown", w)
		}
	}
	if strings.Contains(ansi.Strip(m.View().Content), "PgDn") {
		t.Errorf("at the end:\n%s", m.View().Content)
	}
	for range 100 {
		m.Update(tea.KeyPressMsg{Code: tea.KeyPgUp})
	}
	if shown := ansi.Strip(m.View().Content); !strings.Contains(shown, "word0.") || !strings.Contains(shown, "more: PgDn") {
		t.Errorf("at the beginning:\n%s", shown)
	}
}

// A text that nobody has taken is where it was written: of a session that has ended, of a prompt
// that failed, and what waited behind it.
func TestChat_WhatIsNotTakenStays(t *testing.T) {
	fresh := func() *chatModel {
		m := newChatModel(&chatSession{id: "s", ctx: t.Context()}, chatOptions{}, nil)
		m.width = 80
		m.opened(chatOpened{of: m.opening, id: "s", agent: "mock"})
		return m
	}
	end := func(m *chatModel, reason string) {
		m.take(acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"_sandboxagent/session/ended","params":{"sessionId":"s","data":{"reason":"` + reason + `"}}}`)))
	}
	enter := tea.KeyPressMsg{Code: tea.KeyEnter}
	for _, reason := range []string{"terminated", "deleted"} {
		m := fresh()
		m.own, m.queue = &chatOwn{chatEntry: &chatEntry{kind: "user", text: "zero"}}, []string{"one", "two"}
		end(m, reason)
		m.Update(enter)
		if m.done(chatDone{what: "prompt", id: "s", own: m.own, text: "zero", err: io.EOF}); m.input.Value() != "zero\none\ntwo" || len(m.queue) > 0 || m.own != nil {
			t.Errorf("%s: %q is written, %q waits", reason, m.input.Value(), m.queue)
		}
		if m.Update(enter); m.input.Value() != "zero\none\ntwo" || !strings.Contains(m.entries[len(m.entries)-1].text, "takes no more prompts") {
			t.Errorf("%s: %q is written", reason, m.input.Value())
		}
	}
	m := fresh()
	m.input.SetValue("a prompt")
	m.Update(enter)
	m.input.SetValue("next")
	m.done(chatDone{what: "prompt", id: "s", own: m.own, text: "a prompt", err: io.EOF})
	if m.input.Value() != "a prompt\nnext" {
		t.Errorf("after an error %q is written", m.input.Value())
	}
	m = fresh()
	m.input.SetValue("a prompt")
	m.Update(enter)
	m.grow("agent", "I have begun")
	m.done(chatDone{what: "prompt", id: "s", own: m.own, text: "a prompt", err: io.EOF})
	if m.input.Value() != "" {
		t.Errorf("the agent has begun: %q is written", m.input.Value())
	}
	end(m, "closed")
	if m.over || !m.closed || !strings.Contains(m.statusLine(), "ready") {
		t.Errorf("closed: %q", m.statusLine())
	}
}

// PgUp goes back from the end, where it stays while more comes; the end is followed again from there.
func TestChat_Scrolls(t *testing.T) {
	m := newChatModel(&chatSession{}, chatOptions{}, nil)
	var text []string
	more := func(n int) {
		for range n {
			text = append(text, fmt.Sprintf("line %d.", len(text)))
		}
		m.entries = []*chatEntry{{kind: "note", text: strings.Join(text, "\n")}}
	}
	sees := func(msg tea.Msg, first int) {
		t.Helper()
		m.Update(msg)
		lines := strings.Split(m.View().Content, "\n")
		if !strings.Contains(lines[0], fmt.Sprintf("line %d.", first)) || !strings.Contains(lines[8], fmt.Sprintf("line %d.", first+8)) {
			t.Errorf("line %d is not the first of:\n%s", first, strings.Join(lines, "\n"))
		}
	}
	up, down := tea.KeyPressMsg{Code: tea.KeyPgUp}, tea.KeyPressMsg{Code: tea.KeyPgDown}
	more(35)
	sees(tea.WindowSizeMsg{Width: 40, Height: 13}, 25)
	sees(up, 15)
	more(10)
	sees(nil, 15)
	sees(down, 25)
	sees(down, 35)
	more(10)
	sees(nil, 45)
	for _, first := range []int{35, 25, 15, 5, 0, 0} {
		sees(up, first)
	}
	m.input.SetValue("a prompt")
	sees(tea.KeyPressMsg{Code: tea.KeyEnter}, 46) // one line is taken by the prompt, which waits
}

// Ctrl-C at the question for an agent is no wrong use.
func TestPickAgent_IsInterrupted(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"agents":[{"id":"one","installed":true},{"id":"two","installed":true}]}`)
	}))
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithCancelCause(t.Context())
	keys := interrupts{cancel, t.Context().Done()}
	var out bytes.Buffer
	std := stdio{in: keys, out: &out, err: &out}
	one := &turn{o: promptOptions{target: target{endpoint: srv.URL}, interactive: true}, std: std, view: newView(std, false, false)}
	one.asker = newAsker(keys, one.view)
	_, err := one.pickAgent(ctx)
	if exitCode(err) != exitInterrupted || !strings.Contains(out.String(), "nothing to leave") {
		t.Errorf("exit %d: %v, after %q", exitCode(err), err, out.String())
	}
}

// interrupts is a terminal at which Ctrl-C is pressed when it is read.
type interrupts struct {
	press context.CancelCauseFunc
	ended <-chan struct{}
}

func (i interrupts) Read([]byte) (int, error) {
	i.press(errInterrupted)
	<-i.ended
	return 0, io.EOF
}

// A chat that opens a session shows whether a turn goes on as its answer says, whatever order the
// answer, the replay and the end of the request come in.
func TestChat_AReplayIsNoTurn(t *testing.T) {
	said := acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hi"}}}}`))
	ended := acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s"}}`))
	for _, turn := range []string{"idle", "running"} {
		answer := acp.NewResult(acp.IntID(1), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"`+turn+`"}}}`))
		for _, at := range []int{1, 2} { // the answer, then the end of the request
			m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
			m.loads(chatLoads{m.opening, answer.ID()})
			opened := chatOpened{of: m.opening, id: "s", agent: "mock", result: answer.Result()}
			for i, f := range []acp.Message{said, answer, acp.NewResult(acp.IntID(2), []byte(`{}`))} {
				if m.take(f); at == i {
					m.opened(opened)
				}
			}
			if m.busy != (turn == "running") {
				t.Errorf("%s, opened at %d: working %t", turn, at, m.busy)
			}
			if m.take(ended); m.busy {
				t.Errorf("%s: it has ended", turn)
			}
		}
	}
}

// A mode or model that was refused is not shown as the one that is used: what is, or what was chosen since.
func TestChat_AChoiceThatIsRefused(t *testing.T) {
	for _, what := range []string{"mode", "model"} {
		m := chatAt(1)
		m.readConfigs([]byte(`{"modes":{"currentModeId":"one","availableModes":[{"id":"one"},{"id":"two"},{"id":"three"}]},"models":{"currentModelId":"one","availableModels":[{"modelId":"one"},{"modelId":"two"},{"modelId":"three"}]}}`))
		choose := func(value string) int {
			m.choose(m.config(what), value)
			return m.choices
		}
		ends := func(choice int, value string, err error) {
			m.Update(chatDone{what: "choose", id: "s", choice: choice, of: what, text: value, result: []byte(`{}`), err: err})
		}
		shows := func(want string) {
			t.Helper()
			if got := m.config(what).current; got != want || !strings.Contains(m.statusLine(), " "+want+" ") {
				t.Errorf("%s %s is shown, not %s: %q", what, got, want, m.statusLine())
			}
		}
		ends(choose("two"), "two", io.EOF)
		shows("one")
		second, third := choose("two"), choose("three")
		ends(second, "two", io.EOF)
		shows("three")
		ends(third, "three", io.EOF)
		shows("one")
		second, third = choose("two"), choose("three")
		ends(second, "two", nil)
		shows("three")
		ends(third, "three", io.EOF)
		shows("two")
	}
}

// A session that somebody has ended is not ready for prompts.
func TestChat_TheSessionIsOver(t *testing.T) {
	m := newChatModel(&chatSession{id: "s"}, chatOptions{}, nil)
	m.width = 120
	m.opened(chatOpened{of: m.opening, id: "s", agent: "mock"})
	end := func(session, reason string) {
		m.take(acp.MustParse([]byte(`{"jsonrpc":"2.0","method":"_sandboxagent/session/ended","params":{"sessionId":"` + session + `","data":{"reason":"` + reason + `"}}}`)))
	}
	end("s", "agent_process_exited") // the next prompt starts it again
	if got := m.statusLine(); !strings.Contains(got, "ready") {
		t.Errorf("its process ended: %q", got)
	}
	end("s", "terminated")
	if got := m.statusLine(); strings.Contains(got, "ready") || !strings.Contains(got, "the session has ended") {
		t.Errorf("it was terminated: %q", got)
	}
}

// A connection that has ended for good takes nothing of what was written: it stays until the chat is left, and the reason is its error.
func TestChat_TheConnectionHasEnded(t *testing.T) {
	for _, waits := range []bool{false, true} {
		m := chatAt(1)
		want := "what I write"
		if waits {
			m.sends("sent")
			m.sends("waits")
			want = "sent\nwaits\n" + want
		}
		m.input.SetValue("what I write")
		why := fmt.Errorf("%w: %w", errConnectionLost, io.ErrUnexpectedEOF)
		m.Update(chatBatch{chatGone{why}})
		if waits {
			m.Update(chatBatch{chatDone{what: "prompt", id: "s", own: m.own, text: "sent", err: why}})
		}
		for range 2 {
			if got := m.input.Value(); got != want || len(m.queue) > 0 {
				t.Errorf("%q is written, %q waits", got, m.queue)
			}
			if !strings.HasPrefix(ansi.Strip(m.statusLine()), "no connection any more") {
				t.Errorf("the status line is %q", m.statusLine())
			}
			if m.update(tea.KeyPressMsg{Code: tea.KeyEnter}) != nil || m.next() != nil {
				t.Error("Enter does something")
			}
		}
		if got := strings.Join(m.shown(), "\n"); !strings.Contains(got, "what you write stays until you leave") || !strings.Contains(got, "chat --session s") {
			t.Errorf("shown is %q", got)
		}
		// Text is lost by leaving: it takes two.
		if cmd := m.key(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); cmd != nil {
			t.Error("the first Ctrl-C leaves")
		}
		cmd := m.key(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
		if cmd == nil || m.failed != why {
			t.Errorf("the second Ctrl-C does not leave, or with %v", m.failed)
		} else if _, quits := cmd().(tea.QuitMsg); !quits {
			t.Error("the second Ctrl-C does not leave")
		}
	}
}
