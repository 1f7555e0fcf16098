package codex

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// game is one play of clients with pretenders. The play's Mu guards it.
type game struct {
	*bridgetest.Play
	all      []*pretender
	threads  map[string]*fakeThread // all that there ever were, by id
	compacts map[string]bool        // the tokens of prompts that are commands
	last     int
	rng      *rand.Rand // what becomes of prompts as they come
}

// pretender plays an app-server: it says what the test wants, in an order that the real one keeps.
type pretender struct {
	*game
	puppet *bridgetest.Puppet
	loaded []*fakeThread
	asked  int
	ended  bool
	exits  bool // it says nothing more
}

// fakeThread is a thread, and what goes on in it.
type fakeThread struct {
	id       string
	prompted bool // else it is not kept
	archived bool
	session  *bridgetest.PlaySession

	f       *pretender // that has it loaded; nil for none
	order   *order     // a prompt that was not answered
	queued  string     // the token of one that was, whose turn has not begun
	compact bool       // it is a compaction
	turn    string     // the id of what runs, "" when it is idle
	token   string     // of what it works on
	aborted bool
	items   []*fakeItem
	left    []*fakeItem // commands that go on behind their turn
	sleeper string      // the id of a turn that was answered and has not begun
}

// order is a prompt that codex was given.
type order struct {
	id, token string
	compact   bool
}

// fakeItem is a command.
type fakeItem struct {
	id, turn, token string
	ask             string // the id of its question, "" for none
	answered        bool
	allowed, cancel bool
}

// show begins a pretender.
func (g *game) show(puppet *bridgetest.Puppet) bridgetest.Show {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	f := &pretender{game: g, puppet: puppet}
	g.Begun()
	if len(puppet.Args) > 0 && puppet.Args[0] == "sandbox" {
		f.exits = true
		puppet.Exit(0)
		return f
	}
	g.all = append(g.all, f)
	return f
}

func (f *pretender) say(format string, args ...any) {
	if f.exits || f.ended {
		return
	}
	line := fmt.Sprintf(format, args...)
	f.Note("codex > %.400s", line)
	f.puppet.Say(line)
}

func (f *pretender) reply(id, result string) { f.say(`{"id":%s,"result":%s}`, id, result) }

func (f *pretender) refuse(id, why string) {
	f.say(`{"id":%s,"error":{"code":-32600,"message":%q}}`, id, why)
}

// Line takes a message of the bridge.
func (f *pretender) Line(line []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Note("codex < %.300s", line)
	method := rawjson.MemberString(line, "method")
	raw, _ := rawjson.Member(line, "id")
	id := string(raw)
	p, _ := rawjson.Member(line, "params")
	t := f.threads[rawjson.MemberString(p, "threadId")]
	switch {
	case method == "" && id != "":
		f.answered(id, line)
		return
	case id == "":
		return
	case t == nil && slices.Contains([]string{"thread/settings/update", "thread/backgroundTerminals/clean", "thread/backgroundTerminals/terminate"}, method):
		f.refuse(id, "thread not found")
		return
	}
	switch method {
	case "initialize":
		f.reply(id, `{"userAgent":"codex/0.150.0"}`)
	case "account/read":
		f.reply(id, `{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}`)
	case "model/list":
		f.reply(id, `{"data":[{"model":"one","displayName":"One","defaultReasoningEffort":"low","supportedReasoningEfforts":[{"reasoningEffort":"low"},{"reasoningEffort":"high"}]},{"model":"two","displayName":"Two","defaultReasoningEffort":"low","supportedReasoningEfforts":[{"reasoningEffort":"low"}]}]}`)
	case "thread/start":
		f.reply(id, f.load(f.make()))
	case "thread/resume", "thread/fork":
		switch {
		case t == nil || !t.prompted:
			f.refuse(id, "no rollout found for thread id")
		case method == "thread/fork":
			fork := f.make()
			fork.prompted = true
			f.reply(id, f.load(fork))
		case t.archived:
			f.refuse(id, "thread is archived")
		default:
			f.reply(id, f.load(t))
		}
	case "thread/archive", "thread/unarchive":
		if t == nil || !t.prompted {
			f.refuse(id, "no rollout found for thread id")
			return
		}
		t.archived = method == "thread/archive"
		if t.archived {
			f.unload(t)
		}
		f.reply(id, `{}`)
	case "thread/delete":
		if t != nil {
			f.Deleted(t.id)
			f.unload(t)
			delete(f.threads, t.id)
		}
		f.reply(id, `{}`)
	case "turn/start", "thread/compact/start":
		if t == nil || t.f != f {
			f.refuse(id, "thread not found")
			return
		}
		f.given(t, &order{id, bridgetest.TokenIn(p), method != "turn/start"})
	case "turn/interrupt":
		f.interrupt(t, id)
	case "thread/settings/update":
		f.reply(id, `{}`)
		f.say(`{"method":"thread/settings/updated","params":{"threadId":%q,"threadSettings":{"model":%q}}}`, t.id, rawjson.MemberString(p, "model"))
	case "thread/backgroundTerminals/clean":
		f.reply(id, `{}`)
		f.clean(t, "")
	case "thread/backgroundTerminals/terminate":
		f.clean(t, rawjson.MemberString(p, "processId"))
		f.reply(id, `{"terminated":true}`)
	case "thread/unsubscribe", "thread/name/set", "skills/list", "config/read":
		f.reply(id, `{"data":[]}`)
	case "thread/read": // of one that was not made here, or is deleted
		f.refuse(id, "no rollout found for thread id")
	case "thread/turns/list":
		f.reply(id, `{"data":[]}`)
	default:
		f.Wrong("codex is asked for %s", line)
	}
}

// lastThread numbers threads: the bridge remembers those of earlier plays.
var lastThread atomic.Int64

// make makes a thread.
func (f *pretender) make() *fakeThread {
	t := &fakeThread{id: fmt.Sprintf("01a1fbe6-5ec2-7403-ba5c-%012d", lastThread.Add(1))}
	f.threads[t.id] = t
	return t
}

func (f *pretender) load(t *fakeThread) string {
	t.f = f
	f.loaded = append(f.loaded, t)
	return fmt.Sprintf(`{"thread":{"id":%q,"preview":"hello"},"model":"one","reasoningEffort":"low","sandbox":{"type":"readOnly"}}`, t.id)
}

func (f *pretender) unload(t *fakeThread) {
	t.f, t.order, t.queued, t.turn, t.token, t.aborted, t.items, t.left, t.sleeper = nil, nil, "", "", "", false, nil, nil, ""
	f.loaded = slices.DeleteFunc(f.loaded, func(one *fakeThread) bool { return one == t })
}

// given takes a prompt. A command does not say which one it is.
func (f *pretender) given(t *fakeThread, o *order) {
	if o.compact && t.session != nil {
		for _, one := range f.Open(t.session) {
			if o.token == "" && f.compacts[one.Token] && !one.Given {
				o.token = one.Token
			}
		}
	}
	one := f.Prompt(o.token)
	switch {
	case one == nil:
		f.Wrong("codex is given a prompt of nobody: %q", o.token)
		return
	case one.Given:
		f.Wrong("codex is given prompt %s twice", o.token)
	case one.Answered && !one.Loose:
		f.Wrong("codex is given prompt %s, which is over", o.token)
	case t.order != nil || t.queued != "" || f.Prompt(t.token) != nil:
		f.Wrong("codex has two prompts at once: %s", o.token)
	}
	one.Given, t.prompted = true, true
	t.session, t.order = one.Session, o
	switch f.rng.IntN(8) { // codex answers at once
	case 0:
		t.own() // before the prompt came
		t.text()
		t.settle("completed")
		t.accept(f.rng.IntN(3))
	case 1:
		t.own()
		t.text()
		t.accept(1)
	case 2:
		if f.rng.IntN(3) == 0 {
			t.order, one.Refused = nil, true
			f.refuse(o.id, "why")
			return
		}
		t.accept(2)
	default:
		t.accept(f.rng.IntN(3))
	}
}

// interrupt breaks off what runs.
func (f *pretender) interrupt(t *fakeThread, id string) {
	if t == nil || t.turn == "" {
		f.refuse(id, "no active turn to interrupt")
		if t != nil {
			t.begin()
		}
		return
	}
	if !t.aborted {
		f.told(t)
	}
	t.aborted = true
	f.reply(id, `{}`)
}

// told notes that what runs was to end.
func (f *pretender) told(t *fakeThread) {
	one := f.Prompt(t.token)
	switch {
	case one != nil && !one.Cancelled && !one.Loose:
		f.Wrong("codex is to end prompt %s, and nobody wanted that", t.token)
	case one != nil:
		one.Told = true
	case t.session != nil && t.session.Cancels == 0 && !t.session.Closing:
		f.Wrong("codex is to end what it does by itself, and nobody wanted that")
	}
}

// answered takes the answer to a question.
func (f *pretender) answered(id string, line []byte) {
	said := rawjson.MemberString(line, "result", "decision")
	for _, t := range f.loaded {
		for _, it := range t.items {
			if it.ask != id || it.answered {
				continue
			}
			it.answered, it.allowed, it.cancel = true, said == "accept" || said == "acceptForSession", said == "cancel"
			f.say(`{"method":"serverRequest/resolved","params":{"threadId":%q,"requestId":%s}}`, t.id, id)
			if it.cancel && !t.aborted {
				if one := f.Prompt(t.token); one != nil && it.token != t.token && t.session.Cancels > 0 {
					one.Cancelled = true // it was put into a turn of codex's own, which somebody has ended
				}
				f.told(t)
				t.aborted = true
			}
			return
		}
	}
	// A late answer is ignored.
}

func (f *pretender) Interrupted() {}

// EOF: it ends at the end of its input.
func (f *pretender) EOF() { f.puppet.Exit(0) }

func (f *pretender) Ended() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.ended = true
	for _, t := range slices.Clone(f.loaded) {
		f.unload(t)
	}
	f.game.Ended()
}

// accept answers a prompt, and begins its turn then, before or later.
func (t *fakeThread) accept(when int) {
	o := t.order
	if o == nil {
		return
	}
	f := t.f
	if t.turn != "" && !o.compact { // it is put into the turn that runs
		t.order, t.token = nil, o.token
		f.reply(o.id, fmt.Sprintf(`{"turn":{"id":%q,"status":"inProgress"}}`, t.turn))
		return
	}
	if t.turn != "" { // a compaction takes the place of what runs
		t.aborted = true
		t.settle("")
	}
	t.order, t.queued, t.compact = nil, o.token, o.compact
	f.last++
	t.sleeper = fmt.Sprintf("turn-%d", f.game.last)
	result := fmt.Sprintf(`{"turn":{"id":%q,"status":"inProgress"}}`, t.sleeper)
	if o.compact {
		result = `{}`
	}
	if when == 0 {
		t.begin()
	}
	f.reply(o.id, result)
	switch turn := t.sleeper; when {
	case 1:
		t.begin()
	case 2: // it begins by itself a moment later
		time.AfterFunc(time.Duration(f.rng.IntN(10))*time.Millisecond, func() {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			if t.sleeper == turn && t.f == f {
				t.begin()
			}
		})
	}
}

// begin begins the turn of a prompt that was answered.
func (t *fakeThread) begin() {
	if t.queued == "" || t.turn != "" {
		return
	}
	t.started(t.sleeper, t.queued)
	t.queued, t.sleeper = "", ""
	if t.compact {
		t.f.say(`{"method":"item/started","params":{"threadId":%q,"turnId":%q,"item":{"type":"contextCompaction","id":"c-%s"}}}`, t.id, t.turn, t.token)
	}
}

func (t *fakeThread) started(turn, token string) {
	t.turn, t.token, t.aborted = turn, token, false
	t.f.say(`{"method":"turn/started","params":{"threadId":%q,"turn":{"id":%q,"status":"inProgress"}}}`, t.id, t.turn)
}

// own begins a turn that nobody prompted.
func (t *fakeThread) own() {
	if t.turn != "" || t.queued != "" {
		return
	}
	t.f.last++
	t.compact = false
	t.started(fmt.Sprintf("turn-%d", t.f.game.last), fmt.Sprintf("o%dx", t.f.game.last))
}

func (t *fakeThread) text() {
	if t.turn != "" && !t.compact {
		t.f.last++
		t.f.say(`{"method":"item/agentMessage/delta","params":{"threadId":%q,"turnId":%q,"itemId":"m-%d","delta":"%s says. "}}`, t.id, t.turn, t.f.game.last, t.token)
	}
}

// call begins a command, about which is asked or not.
func (t *fakeThread) call(asks bool) {
	if t.turn == "" || t.compact || t.aborted {
		return
	}
	f := t.f
	f.last++
	it := &fakeItem{id: fmt.Sprintf("call-%d", f.game.last), turn: t.turn, token: t.token}
	t.items = append(t.items, it)
	f.say(`{"method":"item/started","params":{"threadId":%q,"turnId":%q,"item":{"type":"commandExecution","id":%q,"command":"echo %s","processId":%q,"status":"inProgress","source":"agent"}}}`, t.id, t.turn, it.id, t.token, it.id)
	if asks {
		f.asked++
		it.ask = fmt.Sprint(f.asked - 1)
		f.say(`{"id":%s,"method":"item/commandExecution/requestApproval","params":{"threadId":%q,"turnId":%q,"itemId":%q,"command":"echo %s"}}`, it.ask, t.id, t.turn, it.id, t.token)
	}
}

func (t *fakeThread) over(it *fakeItem, status string) {
	t.f.say(`{"method":"item/completed","params":{"threadId":%q,"turnId":%q,"item":{"type":"commandExecution","id":%q,"command":"echo %s","status":%q,"exitCode":0,"aggregatedOutput":"out"}}}`, t.id, it.turn, it.id, it.token, status)
}

// callEnds ends a command that may, and reports whether there was one.
func (t *fakeThread) callEnds() bool {
	for i, it := range t.items {
		if it.ask != "" && !it.answered {
			continue
		}
		t.items = slices.Delete(t.items, i, i+1)
		status := "completed"
		if it.ask != "" && !it.allowed {
			status = "declined"
		}
		t.over(it, status)
		return true
	}
	return false
}

// clean ends the commands that go on, or the one of a process.
func (f *pretender) clean(t *fakeThread, process string) {
	t.left = slices.DeleteFunc(t.left, func(it *fakeItem) bool {
		if process != "" && it.id != process {
			return false
		}
		t.over(it, "failed")
		return true
	})
}

// settle ends the turn if it can end, and reports whether it did.
func (t *fakeThread) settle(status string) bool {
	if t.turn == "" || t.f == nil {
		return false
	}
	if !t.aborted {
		for t.callEnds() {
		}
		if len(t.items) > 0 && status != "failed" {
			return false
		}
	}
	f := t.f
	if one := f.Prompt(t.token); one != nil {
		one.Said = true
	} else if t.session != nil && slices.ContainsFunc(f.Open(t.session), func(one *bridgetest.PlayPrompt) bool { return f.compacts[one.Token] }) {
		status = "completed" // a turn that fails is taken for the compaction, of which codex does not tell the turn
	}
	if t.aborted {
		status = "interrupted"
	} else if t.compact {
		f.say(`{"method":"item/completed","params":{"threadId":%q,"turnId":%q,"item":{"type":"contextCompaction","id":"c-%s"}}}`, t.id, t.turn, t.token)
	}
	failure := "null"
	if status == "failed" {
		failure = `{"message":"why"}`
	}
	f.say(`{"method":"turn/completed","params":{"threadId":%q,"turn":{"id":%q,"status":%q,"error":%s}}}`, t.id, t.turn, status, failure)
	for _, it := range t.items { // their commands go on, and what is asked about them is withdrawn
		if it.ask != "" && !it.answered {
			it.answered = true
			f.say(`{"method":"serverRequest/resolved","params":{"threadId":%q,"requestId":%s}}`, t.id, it.ask)
		} else {
			t.left = append(t.left, it)
		}
	}
	t.items, t.turn, t.token, t.aborted, t.compact = nil, "", "", false, false
	return true
}

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (g *game) finish() bool {
	idle := true
	for _, t := range g.open() {
		t.settle("completed")
		t.begin()
		t.settle("completed")
		idle = idle && t.turn == "" && t.order == nil && t.queued == ""
	}
	return idle
}

// open returns the threads of open sessions, in their order.
func (g *game) open() []*fakeThread {
	var all []*fakeThread
	for _, f := range g.all {
		for _, t := range f.loaded {
			if !f.ended && !f.exits && t.session != nil && t.session.Open {
				all = append(all, t)
			}
		}
	}
	return all
}

// event is an event of a thread.
func (g *game) event(name string, weight int, do func(rng *rand.Rand, t *fakeThread)) bridgetest.PlayEvent {
	return bridgetest.PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		g.Mu.Lock()
		var f *pretender
		id := ""
		if all := g.open(); len(all) > 0 {
			t := all[rng.IntN(len(all))]
			f, id = t.f, t.id
			do(rng, t)
		}
		g.Mu.Unlock()
		if f != nil && g.Waits(rng) {
			g.Barrier(func(text string) {
				f.say(`{"method":"warning","params":{"threadId":%q,"message":%q}}`, id, text)
			}, func() bool { return f.ended || f.exits || g.closing(id) })
		}
	}}
}

// closing reports whether nobody listens to a thread any more.
func (g *game) closing(id string) bool {
	t := g.threads[id]
	return t == nil || t.session == nil || !t.session.Open || t.session.Closing
}

// of returns the thread of a session.
func (g *game) of(s *bridgetest.PlaySession) *fakeThread {
	for _, t := range g.open() {
		if t.session == s {
			return t
		}
	}
	return nil
}

func (g *game) prompt(rng *rand.Rand, s *bridgetest.PlaySession, before string) {
	one := g.SendPrompt(s, before)
	if g.Waits(rng) {
		g.Expect("codex is given "+one.Token, func() bool {
			t := g.of(s)
			return one.Given || one.Answered || g.Open(s)[0] != one || t == nil || t.turn != ""
		})
	}
}

// opened notes whose session a thread's is.
func (g *game) opened(s *bridgetest.PlaySession) {
	for _, f := range g.all {
		for _, t := range slices.Clone(f.loaded) {
			if t.session == nil && !f.ended && g.sessionOf(t.id) == nil {
				for _, before := range slices.Clone(f.loaded) { // nobody had prompted it, so the session begins anew
					if before.session == s {
						f.unload(before)
					}
				}
				t.session = s
			} else if t.id == string(s.ID) {
				t.session = s
			}
		}
	}
}

func (g *game) sessionOf(thread string) *bridgetest.PlaySession {
	for _, s := range g.Sessions {
		if string(s.ID) == thread {
			return s
		}
	}
	return nil
}

func (g *game) events() []bridgetest.PlayEvent {
	request := func(method string, params map[string]any, s *bridgetest.PlaySession) {
		params["sessionId"] = s.ID
		g.Request(method, params, nil)
	}
	pick := func(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }
	return append(g.ClientEvents(func(rng *rand.Rand, s *bridgetest.PlaySession) { g.prompt(rng, s, "") }),
		g.Client("compact", 3, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			g.Mu.Lock()
			waits := slices.ContainsFunc(g.Open(s), func(one *bridgetest.PlayPrompt) bool { return g.compacts[one.Token] })
			g.compacts[fmt.Sprintf("p%dx", len(g.Prompts)+1)] = !waits
			g.Mu.Unlock()
			if !waits { // codex is not told which one it is
				g.prompt(rng, s, "/compact ")
			}
		}),
		g.Client("mode", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": pick(rng, modeReadOnly, modeAgent, modePlan)}, s)
		}),
		g.Client("model", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": configModel, "value": pick(rng, "one", "two")}, s)
		}),
		g.Client("mode and delete", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": modePlan}, s)
			g.EndSession("session/delete", s)
		}),
		g.Client("fork", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) { g.OpenSession("session/fork", s) }),
		g.Client("cancel and settle", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Cancel(s)
			g.Mu.Lock()
			if t := g.of(s); t != nil {
				t.settle("completed")
			}
			g.Mu.Unlock()
			g.SendPrompt(s, "")
		}),

		g.event("begin", 10, func(_ *rand.Rand, t *fakeThread) { t.begin() }),
		g.event("say", 8, func(_ *rand.Rand, t *fakeThread) { t.text() }),
		g.event("call", 16, func(rng *rand.Rand, t *fakeThread) { t.call(rng.IntN(3) > 0) }),
		g.event("call ends", 4, func(_ *rand.Rand, t *fakeThread) { t.callEnds() }),
		g.event("settle", 14, func(rng *rand.Rand, t *fakeThread) { t.settle(pick(rng, "completed", "completed", "failed")) }),
		g.event("own run", 3, func(_ *rand.Rand, t *fakeThread) { t.own() }),
		g.event("settle, and an own run", 2, func(_ *rand.Rand, t *fakeThread) {
			if t.settle("completed") {
				t.own()
			}
		}),
		g.event("unknown", 1, func(_ *rand.Rand, t *fakeThread) {
			t.f.say(`{"method":"of/tomorrow","params":{"threadId":7}}`)
			t.f.say(`this is no JSON`)
		}),
		g.event("crash", 1, func(_ *rand.Rand, t *fakeThread) {
			g.Lose()
			t.f.exits = true
			t.f.puppet.Exit(1)
		}),
	)
}

func randomStage(t *testing.T) *bridgetest.Stage {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := bridgetest.With(t, New(), adapters.Program{Path: exe, Version: agentcache.Codex})
	return w.Stage(func(p *bridgetest.Play, seed uint64) bridgetest.Game {
		g := &game{Play: p, rng: rand.New(rand.NewPCG(seed, 5)), threads: map[string]*fakeThread{}, compacts: map[string]bool{}}
		return bridgetest.Game{Events: g.events(), Show: g.show, Opened: g.opened, Finish: g.finish}
	})
}

// Whatever a client and Codex do, in whatever order: every prompt is answered once, when its turn is
// over and not before; who cancels a turn ends no other; no question and no call is open behind its
// turn; nothing is left of a connection that is closed. A sequence that fails is played again by
// go test ./adapters/codex -run TestRandom -play.from=N -play.count=1.
func TestRandom(t *testing.T) { randomStage(t).Play(t, 40) }

// Sequences that failed.
func TestRandom_ThatFailed(t *testing.T) {
	stage := randomStage(t)
	for _, tt := range []struct {
		name   string
		events []string
	}{
		{"a turn fails while it asks", []string{"prompt", "begin", "call", "call", "settle", "prompt"}},
		{"a turn of codex's own begins behind one, before which a prompt waits", []string{"two prompts", "begin", "settle, and an own run", "cancel twice", "prompt"}},
		{"a session is opened while it is deleted", []string{"prompt", "begin", "settle", "delete and load", "new", "prompt", "begin", "settle", "delete and load"}},
		{"a session is deleted twice at once, as a prompt comes", []string{"prompt", "mode and delete", "mode and delete", "prompt"}},
	} {
		t.Run(tt.name, func(t *testing.T) { stage.PlayAgain(t, 0, 16, tt.events...) })
	}
}
