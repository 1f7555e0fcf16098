package pi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// game is one play of clients with pretenders. The play's Mu guards it.
type game struct {
	*bridgetest.Play
	dir      string // of conversations
	legacy   bool   // Pi does not say when it has settled
	all      []*pretender
	sessions map[string]*bridgetest.PlaySession // by the folder of the session's files
	files    map[string]string                  // of the conversations with which sessions go on, by id
	last     int
	mute     *bridgetest.PlaySession // the next process of this session says nothing
}

var markForm = regexp.MustCompile(`"mark":"([^"]+)"`)

// show begins a pretender.
func (g *game) show(puppet *bridgetest.Puppet) bridgetest.Show {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	f := &pretender{game: g, puppet: puppet, model: "one", thinking: "off"}
	g.all = append(g.all, f)
	g.Begun()
	after := func(flag string) string {
		if i := slices.Index(puppet.Args, flag); i >= 0 {
			return puppet.Args[i+1]
		}
		return ""
	}
	gate := after("--extension")
	f.folder = filepath.Dir(gate)
	f.session = g.sessions[f.folder]
	if f.session != nil && f.session == g.mute {
		f.mute, g.mute = true, nil
	}
	if b, err := os.ReadFile(filepath.Join(f.folder, factsName)); err == nil {
		f.mark = string(markForm.FindSubmatch(b)[1])
	}
	if f.file = after("--session"); f.file != "" {
		_, id, _ := strings.Cut(strings.TrimSuffix(filepath.Base(f.file), ".jsonl"), "_")
		f.id = id
		if now := g.files[id]; now != "" && now != f.file && exists(now) {
			f.Wrong("a session goes on with %s instead of %s", f.file, now)
		}
	} else {
		f.id = f.next("session")
		f.file = filepath.Join(g.dir, "at_"+f.id+".jsonl")
	}
	f.announce("startup")
	return f
}

func (g *game) version() string {
	if g.legacy {
		return "0.73.1"
	}
	return "1.5.2"
}

func (g *game) next(what string) string {
	g.last++
	return fmt.Sprintf("%s-%d", what, g.last)
}

// busy is what Pi says to a prompt while it works.
const busy = "Agent is already processing. Specify streamingBehavior"

// compacting is what it says while it makes a summary.
const compacting = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."

// some returns a pretender of an open session, nil when there is none.
func (g *game) some(rng *rand.Rand) *pretender {
	var all []*pretender
	for _, f := range g.all {
		if !f.ended && f.session != nil && f.session.Open {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// finish brings everything to its end that needs nobody else, and reports whether nothing is left.
func (g *game) finish() bool {
	idle := true
	for _, f := range g.all {
		if !f.ended && f.session != nil && f.session.Open {
			idle = f.finish() && idle
		}
	}
	return idle
}

// native is an event of a pretender.
func (g *game) native(name string, weight int, do func(rng *rand.Rand, f *pretender)) bridgetest.PlayEvent {
	return bridgetest.PlayEvent{Name: name, Weight: weight, Do: func(rng *rand.Rand) {
		g.Mu.Lock()
		f := g.some(rng)
		token := ""
		if f != nil {
			do(rng, f)
			token = f.token
		}
		g.Mu.Unlock()
		if f == nil {
			return
		}
		if g.Waits(rng) {
			g.Barrier(func(text string) {
				if !f.ended {
					f.say(`{"type":"extension_ui_request","id":"n","method":"notify","message":%q}`, text)
				}
			}, func() bool { return f.ended })
			g.Mu.Lock()
			if on := (f.runs || f.compacts) && f.token == token; on != f.known {
				f.known, f.before = on, len(g.Prompts)
			}
			g.Mu.Unlock()
		}
	}}
}

// awaitGiven waits until Pi has a prompt that nothing keeps from it.
func (g *game) awaitGiven(one *bridgetest.PlayPrompt) {
	g.Expect("pi is given "+one.Token, func() bool {
		f := g.of(one.Session)
		return one.Given || one.Answered || g.Open(one.Session)[0] != one || f == nil || f.runs || f.compacts
	})
}

// opened notes whose session a pretender's is.
func (g *game) opened(s *bridgetest.PlaySession) {
	for _, f := range g.all {
		if !f.ended && f.id == string(s.ID) {
			f.session = s
			g.sessions[f.folder] = s
		}
	}
}

// of returns the pretender of a session.
func (g *game) of(s *bridgetest.PlaySession) *pretender {
	for _, f := range slices.Backward(g.all) {
		if f.session == s && !f.ended {
			return f
		}
	}
	return nil
}

func (g *game) prompt(rng *rand.Rand, s *bridgetest.PlaySession, before string) {
	one := g.SendPrompt(s, before)
	if g.Waits(rng) {
		g.awaitGiven(one)
	}
}

// giveUp has an extension give up one of its questions.
func (g *game) giveUp(rng *rand.Rand, s *bridgetest.PlaySession) {
	g.Mu.Lock()
	f := g.of(s)
	if f != nil {
		if open := f.questions(); len(open) > 0 {
			d := open[rng.IntN(len(open))]
			d.over = true
			f.questionIs(d, true)
		}
	}
	g.Mu.Unlock()
	g.Expect("a question that was given up is withdrawn", func() bool {
		asked := 0
		for _, a := range g.Asks {
			if a.Session == s && a.Open && a.Method == acp.MethodRequestQuestion {
				asked++
			}
		}
		return f == nil || f.ended || asked <= len(f.questions())
	})
}

func (g *game) events() []bridgetest.PlayEvent {
	request := func(method string, params map[string]any, s *bridgetest.PlaySession) {
		params["sessionId"] = s.ID
		g.Request(method, params, nil)
	}
	pick := func(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }
	return append(g.ClientEvents(func(rng *rand.Rand, s *bridgetest.PlaySession) { g.prompt(rng, s, "") }),
		g.Client("compact", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) { g.prompt(rng, s, "/compact ") }),
		g.Client("bash", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) { g.prompt(rng, s, "/bash echo ") }),
		g.Client("command", 3, func(rng *rand.Rand, s *bridgetest.PlaySession) { g.prompt(rng, s, "/ext ") }),
		g.Client("mode", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_mode", map[string]any{"modeId": pick(rng, modeIDs()...)}, s)
		}),
		g.Client("model", 2, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": "model", "value": pick(rng, "fake/one", "fake/two")}, s)
		}),
		g.Client("thinking", 1, func(rng *rand.Rand, s *bridgetest.PlaySession) {
			request("session/set_config_option", map[string]any{"configId": "thought_level", "value": pick(rng, "off", "low", "high")}, s)
		}),
		g.Client("model, and close as it starts", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Mu.Lock()
			if g.legacy {
				g.mute = s
			}
			g.Mu.Unlock()
			over := false
			g.Request("session/set_config_option", map[string]any{"sessionId": s.ID, "configId": "model", "value": "fake/two"},
				func(json.RawMessage, *acp.Error) { over = true })
			g.Wait(func() bool { return g.mute == nil || over || g.Down })
			g.Mu.Lock()
			g.mute = nil // it was refused
			g.Mu.Unlock()
			g.EndSession("session/close", s)
		}),
		g.Client("title", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			request(acp.MethodSessionSetTitle, map[string]any{"title": "named"}, s)
		}),
		g.Client("delete", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) { g.EndSession("session/delete", s) }),
		g.Client("fork", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) { g.OpenSession("session/fork", s) }),

		g.native("take", 12, func(rng *rand.Rand, f *pretender) { f.accept(rng.IntN(4) > 0) }),
		g.native("begin", 4, func(_ *rand.Rand, f *pretender) {
			if f.accepted {
				f.begin(f.token)
			}
		}),
		g.native("refuse", 1, func(rng *rand.Rand, f *pretender) {
			if o := f.offered(); o != nil {
				f.taken = nil
				f.refuse(o, pick(rng, "No API key found for the selected model.", "no"))
			}
		}),
		g.native("handle", 1, func(_ *rand.Rand, f *pretender) {
			if o := f.offered(); o != nil && !f.legacy {
				f.taken = nil
				f.Prompt(o.token).Said = true
				f.done(o, `{"disposition":"handled"}`)
			}
		}),
		g.native("own run", 3, func(_ *rand.Rand, f *pretender) {
			if !f.runs && !f.accepted && !f.compacts && f.taken == nil {
				f.own()
			}
		}),
		g.native("own run instead", 2, func(_ *rand.Rand, f *pretender) {
			if o := f.offered(); o != nil && !f.runs && !f.compacts {
				f.own()
				f.taken = nil
				f.refuseNow(o)
			}
		}),
		g.native("refused behind success", 2, func(rng *rand.Rand, f *pretender) {
			if o := f.offered(); o != nil && !f.runs && f.legacy {
				f.taken = nil
				before := rng.IntN(2) == 0
				if before {
					f.own()
				}
				f.reply(o.id, o.command, `"success":true`)
				if !before {
					f.own()
				}
				f.refuse(o, busy)
			}
		}),
		g.native("command runs", 6, func(rng *rand.Rand, f *pretender) {
			if o := f.offered(); o == nil || !o.slash || f.runs || f.compacts {
				return
			}
			f.run()
			switch rng.IntN(4) {
			case 0:
				f.call("bash")
				return // and waits
			case 1:
				f.text()
				return
			case 2:
				f.call("read")
			}
			if rng.IntN(2) == 0 {
				f.settle(pick(rng, "stop", "error"), false)
			}
			f.commandOver()
		}),
		g.native("command over", 4, func(_ *rand.Rand, f *pretender) { f.commandOver() }),
		g.native("own run before", 1, func(_ *rand.Rand, f *pretender) {
			if f.offered() != nil && !f.runs && !f.compacts && !f.legacy {
				f.own()
				f.text()
				f.settle("stop", false)
			}
		}),
		g.Client("cancel and settle", 1, func(_ *rand.Rand, s *bridgetest.PlaySession) {
			g.Cancel(s)
			g.Mu.Lock()
			if f := g.of(s); f != nil {
				f.settle("stop", false)
			}
			g.Mu.Unlock()
			g.SendPrompt(s, "")
		}),
		g.native("say", 8, func(_ *rand.Rand, f *pretender) {
			if f.runs {
				f.text()
			}
		}),
		g.native("call", 8, func(rng *rand.Rand, f *pretender) {
			if f.runs && !f.aborted {
				f.call(pick(rng, "bash", "bash", "read", "write"))
			}
		}),
		g.native("call ends", 4, func(_ *rand.Rand, f *pretender) { f.callEnds(f.aborted) }),
		g.native("ask", 3, func(rng *rand.Rand, f *pretender) {
			if f.runs && !f.aborted {
				f.ask(pick(rng, "select", "confirm", "input"), false)
			}
		}),
		g.Client("a question is given up", 2, g.giveUp),
		g.native("settle", 12, func(rng *rand.Rand, f *pretender) {
			f.settle(pick(rng, "stop", "stop", "stop", "length", "error"), rng.IntN(2) == 0)
		}),
		g.native("retry", 1, func(_ *rand.Rand, f *pretender) {
			if f.runs && !f.aborted && len(f.calls) == 0 {
				f.messageEnd("error")
				f.say(`{"type":"agent_end","willRetry":true}`)
				f.say(`{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":10,"errorMessage":"why"}`)
				f.say(`{"type":"agent_start"}`)
				f.say(`{"type":"auto_retry_end","success":true,"attempt":1}`)
			}
		}),
		g.native("compaction", 1, func(_ *rand.Rand, f *pretender) {
			if f.runs {
				f.say(`{"type":"compaction_start","reason":"threshold"}`)
				f.say(`{"type":"compaction_end","reason":"threshold","aborted":false,"willRetry":false,"result":{"summary":"short"}}`)
			}
		}),
		g.native("aside over", 4, func(_ *rand.Rand, f *pretender) {
			f.asideOver("compact", false)
			f.asideOver("bash", false)
			f.compacted(false)
		}),
		g.native("another conversation", 2, func(rng *rand.Rand, f *pretender) { f.goOn(pick(rng, "new", "fork")) }),
		g.native("an extension compacts", 2, func(_ *rand.Rand, f *pretender) { f.compact() }),
		g.native("late", 2, func(rng *rand.Rand, f *pretender) {
			switch {
			case f.runs || f.accepted || f.compacts || f.taken != nil:
			case rng.IntN(2) == 0:
				f.say(`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"late"}}`)
			default:
				f.ask("confirm", true)
			}
		}),
		g.native("unknown", 1, func(_ *rand.Rand, f *pretender) {
			f.say(`{"type":"of_tomorrow","toolCallId":7}`)
			f.say(`this is no JSON`)
		}),
		g.native("crash", 1, func(_ *rand.Rand, f *pretender) {
			g.Lose()
			f.puppet.Exit(1)
		}),
	)
}

// Of the sequences whose seeds leave this behind a division by 4, Pi is of an early version.
const legacySeed = 3

func randomStage(t *testing.T) *bridgetest.Stage {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := bridgetest.With(t, New(), adapters.Program{Path: exe})
	return w.Stage(func(p *bridgetest.Play, seed uint64) bridgetest.Game {
		g := &game{Play: p, dir: filepath.Join(w.Home, ".pi/agent/sessions"), legacy: seed%4 == legacySeed, sessions: map[string]*bridgetest.PlaySession{}, files: map[string]string{}}
		return bridgetest.Game{Events: g.events(), Show: g.show, Opened: g.opened, Finish: g.finish}
	})
}

// Whatever a client and Pi do, in whatever order: every prompt is answered once, when its
// turn is over and not before; who cancels a turn ends no other; no question and no call is
// open behind its turn; nothing is left of a connection that is closed. A sequence that
// fails is played again by go test ./adapters/pi -run TestRandom -play.from=N -play.count=1.
func TestRandom(t *testing.T) {
	randomStage(t).Play(t, 40)
}

// Sequences that failed.
func TestRandom_ThatFailed(t *testing.T) {
	stage := randomStage(t)
	for _, tt := range []struct {
		name   string
		seed   uint64
		events []string
	}{
		{"a run of Pi's own begins as a prompt comes, which Pi refuses", 0, []string{"prompt", "own run instead", "say", "prompt", "say", "say", "settle"}},
		{"a run of Pi's own is over before Pi takes the prompt", 0, []string{"prompt", "own run before", "say", "take", "settle"}},
		{"a run of Pi's own ends behind the command beside which it began", legacySeed, []string{"bash", "own run", "aside over", "say", "prompt", "say", "say", "settle"}},
		{"another process is to take the place of one that does something by itself", legacySeed, []string{"own run", "ask", "model", "settle", "prompt"}},
		{"a session is closed while another process takes the place of its own", legacySeed, []string{"model, and close as it starts", "new", "prompt"}},
		{"a run that nobody prompted is cancelled, and ends as a prompt comes", 0, []string{"own run", "prompt", "cancel and settle"}},
		{"a command has begun the run that goes on behind its answer", 0, []string{"command", "command runs", "command over", "say", "settle"}},
		{"an extension makes a summary behind its run, which it ends, as a prompt waits", 0, []string{"prompt", "take", "prompt", "an extension compacts", "say", "aside over", "take", "settle"}},
		{"an extension has Pi go on with another conversation", 0, []string{"prompt", "take", "settle", "another conversation", "prompt", "take", "settle", "reconnect", "load"}},
		{"an extension gives up what it asks, and its command is done", 0, []string{"own run", "ask", "a question is given up", "settle", "ask", "a question is given up", "prompt", "take", "ask", "a question is given up", "settle"}},
		{"an extension makes a summary, which is cancelled", 0, []string{"an extension compacts", "cancel", "prompt", "take", "settle"}},
		{"a run of Pi's own goes on behind a prompt that early Pi refuses behind its answer", legacySeed, []string{"prompt", "refused behind success", "say", "prompt", "settle"}},
	} {
		t.Run(tt.name, func(t *testing.T) { stage.PlayAgain(t, tt.seed, 6, tt.events...) })
	}
}
