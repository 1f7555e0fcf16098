package amp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// game is one play of clients with pretenders. The play's Mu guards it.
type game struct {
	*bridgetest.Play
	all      []*pretender
	sessions map[string]*bridgetest.PlaySession // by thread
	left     map[string]bool                    // the threads in the middle of whose turn a process ended
	broken   int                                // how many processes are to end before they have begun
	deaf     int                                // how many are not to be interrupted
	last     int
}

// pretender plays an Amp: it says what the test wants, in an order that the real one keeps.
type pretender struct {
	*game
	puppet *bridgetest.Puppet
	ended  bool
	exits  bool // it says nothing more
	deaf   bool

	thread, delegate string
	session          *bridgetest.PlaySession // nil while it is not known
	token            string                  // of what it works on, "" when it is idle
	taken            bool                    // it has repeated the prompt
	interrupted      bool
	calls            []*fakeCall
}

type fakeCall struct {
	id, name string
	line     bool // its own line was written
	asked    *fakeAsk
}

// fakeAsk is a question of a delegate.
type fakeAsk struct {
	conn     net.Conn
	answered bool
	allowed  bool
}

var delegateForm = regexp.MustCompile(`"to":"([^"]+)"`)

// show begins a pretender.
func (g *game) show(puppet *bridgetest.Puppet) bridgetest.Show {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	f := &pretender{game: g, puppet: puppet}
	g.all = append(g.all, f)
	g.Begun()
	if g.broken > 0 {
		g.broken--
		g.Note("a process ends before it has begun")
		g.Fails = true
		f.exit(3)
		return f
	}
	if g.deaf > 0 {
		g.deaf--
		f.deaf = true
	}
	if i := slices.Index(puppet.Args, "continue"); i >= 0 {
		f.thread = puppet.Args[i+1]
	} else {
		g.last++
		f.thread = fmt.Sprintf("T-01a1ff59-511e-77f1-8249-%012d", g.last)
	}
	f.session = g.sessions[f.thread]
	i := slices.Index(puppet.Args, "--settings-file")
	if b, err := os.ReadFile(puppet.Args[i+1]); err == nil {
		if m := delegateForm.FindSubmatch(b); m != nil {
			f.delegate = filepath.Join(filepath.Dir(string(m[1])), socketName)
		}
	}
	f.say(`{"type":"system","subtype":"init","session_id":%q,"mcp_servers":[]}`, f.thread)
	if g.left[f.thread] { // it goes on with that until it takes a prompt
		delete(g.left, f.thread)
		f.say(`{"type":"assistant","message":{"content":[{"type":"text","text":"left over"}],"stop_reason":"end_turn"}}`)
	}
	return f
}

func (f *pretender) say(format string, args ...any) {
	if f.exits || f.ended {
		return
	}
	line := fmt.Sprintf(format, args...)
	f.Note("%s > %.300s", f.name(), line)
	f.puppet.Say(line)
}

func (f *pretender) name() string {
	return "amp " + strings.TrimLeft(f.thread[max(0, len(f.thread)-12):], "0")
}

// exit ends the process. Its delegates end with it.
func (f *pretender) exit(code int) {
	if f.exits {
		return
	}
	f.Note("%s exits with %d", f.name(), code)
	f.exits = true
	f.hangUp()
	f.puppet.Exit(code)
}

func (f *pretender) hangUp() {
	for _, c := range f.calls {
		if c.asked != nil {
			_ = c.asked.conn.Close()
		}
	}
}

// Line takes a prompt.
func (f *pretender) Line(line []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("%s < %.300s", f.name(), line)
	token := bridgetest.TokenIn(line)
	one := f.Prompt(token)
	switch {
	case one == nil:
		f.Wrong("amp is given a prompt of nobody: %s", line)
		return
	case one.Given:
		f.Wrong("amp is given prompt %s twice", token)
	case one.Answered && !one.Loose:
		f.Wrong("amp is given prompt %s, which is over", token)
	case f.token != "":
		f.Wrong("amp has two prompts at once: %s", line)
	case f.interrupted && !one.Cancelled && !one.Loose:
		f.Wrong("amp is given prompt %s when it was interrupted", token)
	}
	one.Given, one.Told = true, f.interrupted // a signal may be quicker than what was written before it
	f.session, f.sessions[f.thread] = one.Session, one.Session
	f.token, f.taken = token, false
}

// Interrupted takes an interrupt.
func (f *pretender) Interrupted() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("%s is interrupted", f.name())
	f.interrupted = true
	one := f.Prompt(f.token)
	switch {
	case one != nil && !one.Cancelled && !one.Loose:
		f.Wrong("amp is to end prompt %s, and nobody wanted that", f.token)
	case one != nil:
		one.Told = true
	}
}

// EOF: Amp ends at the end of its input, unless it is in the middle of something.
func (f *pretender) EOF() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("%s: its input ends", f.name())
	switch {
	case f.interrupted:
		f.settle("")
	case f.token == "":
		f.say(`{"type":"result","subtype":"success","is_error":false}`)
		f.exit(0)
	}
}

func (f *pretender) Ended() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.ended = true
	f.hangUp()
	if f.token != "" && f.thread != "" {
		f.left[f.thread] = true
	}
	f.game.Ended()
}

// take repeats the prompt.
func (f *pretender) take() {
	if f.token != "" && !f.taken {
		f.taken = true
		f.say(`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"%s"}]}}`, f.token)
	}
}

// text says something. A stop that is not tool_use ends the turn.
func (f *pretender) text(text, stop string) {
	f.say(`{"type":"assistant","message":{"content":[{"type":"text","text":"%s %s"}],"stop_reason":%q,"usage":{"input_tokens":1,"output_tokens":1,"max_tokens":1000}}}`, f.token, text, stop)
}

// call begins a call: its line, and the delegate's question, which may be first.
func (f *pretender) call(name string, first bool) {
	f.last++
	c := &fakeCall{id: fmt.Sprintf("%s-call-%d", f.token, f.last), name: name}
	f.calls = append(f.calls, c)
	if first {
		f.asks(c)
		f.line(c)
		return
	}
	f.line(c)
	f.asks(c)
}

func (f *pretender) line(c *fakeCall) {
	if !c.line {
		c.line = true
		f.say(`{"type":"assistant","message":{"content":[{"type":"tool_use","id":%q,"name":%q,"input":{"cmd":"rm %s","path":"/a"}}],"stop_reason":"tool_use"}}`, c.id, c.name, f.token)
	}
}

// asks has a delegate ask about a call, unless it only reads.
func (f *pretender) asks(c *fakeCall) {
	if c.name == "Read" || f.delegate == "" {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", f.delegate)
	if err != nil {
		return // the session ends
	}
	c.asked = &fakeAsk{conn: conn}
	b, _ := schema.Encode(&request{Tool: c.name, ID: c.id, Thread: f.thread, Input: fmt.Appendf(nil, `{"cmd":"rm %s","path":"/a"}`, f.token)})
	_, _ = conn.Write(append(b, '\n'))
	f.Note("%s asks about %s", f.name(), c.id)
	go f.hear(c.asked)
}

// hear takes the answer. It ends with the delegate's connection.
func (f *pretender) hear(a *fakeAsk) {
	line, err := bufio.NewReader(a.conn).ReadBytes('}')
	var said reply
	if err == nil {
		_ = json.Unmarshal(line, &said)
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	_ = a.conn.Close()
	a.answered, a.allowed = true, said.Allow
	f.Note("%s is told %s %v", f.name(), line, err)
}

// callEnds ends a call whose question was answered, and reports whether there was one.
func (f *pretender) callEnds() bool {
	for i, c := range f.calls {
		if c.asked != nil && !c.asked.answered {
			continue
		}
		f.calls = slices.Delete(f.calls, i, i+1)
		f.say(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"result","is_error":%v}]}}`, c.id, c.asked != nil && !c.asked.allowed)
		return true
	}
	return false
}

// settle ends the turn if it can end, and reports whether it did.
func (f *pretender) settle(how string) bool {
	switch {
	case f.token == "" || f.exits:
		return false
	case f.interrupted:
		if f.deaf {
			return false
		}
		f.over()
		f.hangUp()
		f.calls = nil
		f.say(`{"type":"result","subtype":"error_during_execution","is_error":true,"error":"User cancelled (SIGINT/SIGTERM)"}`)
		f.token = ""
		f.exit(0)
		return true
	}
	for f.callEnds() {
	}
	if len(f.calls) > 0 {
		return false
	}
	f.take()
	f.over()
	switch how {
	case "error", "cut":
		if how == "cut" {
			f.text("cut", "")
		}
		f.say(`{"type":"result","subtype":"error_during_execution","is_error":true,"error":"500 why"}`)
		f.token = ""
		f.exit(0)
	default:
		f.text("done", how)
		f.token = ""
	}
	return true
}

func (f *pretender) over() {
	if one := f.Prompt(f.token); one != nil {
		one.Said = true
	}
}

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (g *game) finish() bool {
	idle := true
	for _, f := range g.all {
		if f.ended || f.session == nil || !f.session.Open {
			continue
		}
		f.settle("end_turn")
		idle = idle && f.token == ""
	}
	return idle
}

// some returns a pretender of an open session, nil when there is none.
func (g *game) some(rng *rand.Rand) *pretender {
	var all []*pretender
	for _, f := range g.all {
		if !f.ended && !f.exits && f.session != nil && f.session.Open {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// native is an event of a pretender.
func (g *game) native(name string, weight int, do func(rng *rand.Rand, f *pretender)) bridgetest.PlayEvent {
	return bridgetest.PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		g.Mu.Lock()
		f := g.some(rng)
		if f != nil {
			do(rng, f)
		}
		g.Mu.Unlock()
		if f != nil && g.Waits(rng) {
			g.Barrier(func(text string) { f.say("%s", text) }, func() bool { return f.ended || f.exits })
		}
	}}
}

func (g *game) prompt(rng *rand.Rand, s *bridgetest.PlaySession) {
	one := g.SendPrompt(s, "")
	if g.Waits(rng) {
		g.Expect("amp is given "+one.Token, func() bool { return one.Given || one.Answered || g.Open(s)[0] != one })
	}
}

// opened notes whose session a pretender's is.
func (g *game) opened(s *bridgetest.PlaySession) {
	g.sessions[string(s.ID)] = s
	for _, f := range g.all {
		if f.thread == string(s.ID) {
			f.session = s
		}
	}
}

func (g *game) events() []bridgetest.PlayEvent {
	pick := func(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }
	return append(g.ClientEvents(g.prompt),
		g.Client("mode", 3, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			g.Request("session/set_mode", map[string]any{"sessionId": s.ID, "modeId": pick(rng, "smart", "rush", "none")}, nil)
		}),
		g.Client("other mode", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Request("session/set_mode", map[string]any{"sessionId": s.ID, "modeId": "large"}, nil)
		}),

		g.native("take", 8, func(_ *rand.Rand, f *pretender) { f.take() }),
		g.native("say", 8, func(_ *rand.Rand, f *pretender) {
			if f.taken && f.token != "" {
				f.text("says.", "tool_use") // behind an interrupt it is late
			}
		}),
		g.native("call", 10, func(rng *rand.Rand, f *pretender) {
			if f.taken && f.token != "" {
				f.call(pick(rng, "Bash", "Bash", "Read", "create_file"), rng.IntN(3) == 0)
			}
		}),
		g.native("question", 2, func(_ *rand.Rand, f *pretender) { // its line comes later, or never
			if f.taken && f.token != "" {
				f.last++
				c := &fakeCall{id: fmt.Sprintf("%s-call-%d", f.token, f.last), name: "Bash"}
				f.calls = append(f.calls, c)
				f.asks(c)
			}
		}),
		g.native("call ends", 5, func(_ *rand.Rand, f *pretender) { f.callEnds() }),
		g.native("settle", 14, func(rng *rand.Rand, f *pretender) {
			f.settle(pick(rng, "end_turn", "end_turn", "end_turn", "end_turn", "max_tokens", "refusal", "error", "cut"))
		}),
		g.native("late", 2, func(_ *rand.Rand, f *pretender) {
			if f.token == "" {
				f.say(`{"type":"assistant","message":{"content":[{"type":"text","text":"late"}],"stop_reason":"tool_use"}}`)
			}
		}),
		g.native("late question", 1, func(_ *rand.Rand, f *pretender) {
			if f.token == "" {
				f.asks(&fakeCall{id: "late", name: "Bash"})
			}
		}),
		g.native("unknown", 1, func(_ *rand.Rand, f *pretender) {
			f.say(`{"type":"of_tomorrow"}`)
			f.say(`this is no JSON`)
		}),
		g.native("crash", 1, func(_ *rand.Rand, f *pretender) {
			g.Lose()
			f.exit(1)
		}),
		bridgetest.PlayEvent{Name: "a start fails", Weight: 1, Do: func(*rand.Rand) {
			g.Mu.Lock()
			defer g.Mu.Unlock()
			g.broken = 1
		}},
		bridgetest.PlayEvent{Name: "a deaf one", Weight: 1, Do: func(*rand.Rand) {
			g.Mu.Lock()
			defer g.Mu.Unlock()
			g.deaf = 1
		}},
	)
}

// Whatever a client and Amp do, in whatever order: every prompt is answered once, when its
// turn is over and not before; who cancels a turn ends no other; no question and no call is
// open behind its turn; nothing is left of a connection that is closed. A sequence that
// fails is played again by go test ./adapters/amp -run TestRandom -play.from=N -play.count=1.
func TestRandom(t *testing.T) { randomStage(t).Play(t, 40) }

// Sequences that failed.
func TestRandom_ThatFailed(t *testing.T) {
	stage := randomStage(t)
	for _, tt := range []struct {
		name   string
		events []string
	}{
		{"a session is closed while a process of another mode starts", []string{"other mode", "close", "prompt"}},
		{"a question comes behind the cancel of its turn", []string{"prompt", "take", "question", "cancel", "settle", "prompt", "settle"}},
		{"a session is closed in a turn, behind which a prompt waits", []string{"two prompts", "take", "close", "prompt"}},
	} {
		t.Run(tt.name, func(t *testing.T) { stage.PlayAgain(t, 0, 6, tt.events...) })
	}
}

func randomStage(t *testing.T) *bridgetest.Stage {
	t.Helper()
	c, l := cancelBound, ladder
	t.Cleanup(func() { cancelBound, ladder = c, l })
	cancelBound, ladder.EOF = 300*time.Millisecond, 500*time.Millisecond
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := with(t, adapters.Program{Path: exe, Version: Verified})
	return w.Stage(func(p *bridgetest.Play, _ uint64) bridgetest.Game {
		g := &game{Play: p, sessions: map[string]*bridgetest.PlaySession{}, left: map[string]bool{}}
		return bridgetest.Game{Events: g.events(), Show: g.show, Opened: g.opened, Finish: g.finish}
	})
}
