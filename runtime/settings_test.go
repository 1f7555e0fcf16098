package runtime

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/killed"
)

// Settings of sessions, played: clients and an agent do what they may in a random order, and a plain model says which settings were
// asked for, by whom and since when. See [history.wrong] for what must be true.

// settings is one play.
type settings struct {
	t      *testing.T
	rng    *rand.Rand // of the step
	a      *moded
	r      *Runtime
	dir    string // "" keeps nothing on the disk
	people [3]*person
	had    [3]map[string]bool // sessions that a connection has asked anything of: it may have them open
	last   [3]wish            // what a client has asked for last
	open   []*claim           // what was not answered
	saying []*claim           // what the agent has said that may not have been read
	all    []*history
	told   []string // what happened, for people
	faults []string
}

// wish is what a request asks for of a session's settings. The zero value is nothing.
type wish struct {
	permission string // of permissionMode, as JSON
	mode       string
	server     string
	brief      string
	after      bool
}

func (h wish) String() string {
	return strings.TrimSuffix(strings.ReplaceAll(h.params(), `,"mcpServers":[]`, ""), ",")
}

// params are the members of the request.
func (h wish) params() string {
	var fields []string
	add := func(name, v string) {
		if v != "" {
			fields = append(fields, `"`+name+`":`+v)
		}
	}
	quoted := func(s string) string {
		if s == "" {
			return ""
		}
		return `"` + s + `"`
	}
	add("permissionMode", h.permission)
	add("mode", quoted(h.mode))
	add("instructions", quoted(h.brief))
	if h.after {
		add("after", "0")
	}
	servers := ""
	if h.server != "" {
		servers = `{"name":"` + h.server + `","command":"/bin/true","args":[],"env":[]}`
	}
	out := `,"mcpServers":[` + servers + `]`
	if len(fields) > 0 {
		out += own(strings.Join(fields, ","))
	}
	return out
}

// wishes returns something to ask for.
func (w *settings) wishes() (h wish) {
	one := func(list ...string) string { return list[w.rng.IntN(len(list))] }
	if w.rng.IntN(5) > 1 {
		h.permission = one(`"readonly"`, `"readonly"`, `"readonly"`, `"write"`, `"write"`, `"default"`, `null`, `"bypass"`, `"read-only"`)
	}
	if w.rng.IntN(4) == 0 {
		h.mode = one("plan", "write", "ask")
	}
	if w.rng.IntN(6) == 0 {
		h.server = one("a", "b")
	}
	if w.rng.IntN(6) == 0 {
		h.brief = one("be brief", "be exact")
	}
	return h
}

// say notes what happens.
func (w *settings) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

// asks has a client ask something of a session.
func (w *settings) asks(i int, h *history, kind, method string, asked wish, params string) *claim {
	c := &claim{kind: kind, method: method, who: i, wish: asked, start: w.a.tick()}
	c.goesOn = asked.after && !w.had[i][h.id]
	w.had[i][h.id] = true
	w.open, h.claims = append(w.open, c), append(h.claims, c)
	c.of = h
	c.id = w.people[i].request(method, params)
	w.say("%d: client %d: %s %s %s", c.start, i, method, h.id, strings.TrimPrefix(params, `{"sessionId":"`+h.id+`"`))
	return c
}

func (w *settings) loads(i int, h *history, asked wish) {
	method := acp.MethodSessionLoad
	if w.rng.IntN(2) == 0 {
		method = acp.MethodSessionResume
	}
	w.last[i] = asked
	w.last[i].after = false
	w.asks(i, h, "load", method, asked, loadOf(h.id, "/tmp", asked.params()))
}

// steps that may happen, some of them more often than others.
func (w *settings) step() {
	i := w.rng.IntN(len(w.people))
	h := w.all[w.rng.IntN(len(w.all))]
	switch n := w.rng.IntN(100); {
	case n < 22:
		text := fmt.Sprint("p", w.a.tick())
		w.asks(i, h, "prompt", acp.MethodSessionPrompt, wish{}, prompt(h.id, text)).text = text
	case n < 40:
		w.loads(i, h, w.wishes())
	case n < 46: // the same again
		again := w.last[i]
		again.after = w.rng.IntN(2) == 0
		w.loads(i, h, again)
	case n < 53: // connects again
		w.reconnects(i)
		again := w.last[i]
		again.after = true
		w.loads(i, h, again)
	case n < 63:
		mode := []string{"plan", "write", "ask", "write", "bogus"}[w.rng.IntN(5)]
		if w.a.byModes && (!w.a.byOption || w.rng.IntN(2) == 0) {
			w.asks(i, h, "set", acp.MethodSessionSetMode, wish{mode: mode}, `{"sessionId":"`+h.id+`","modeId":"`+mode+`"}`)
		} else {
			w.asks(i, h, "set", acp.MethodSessionSetConfigOption, wish{mode: mode}, `{"sessionId":"`+h.id+`","configId":"mode","value":"`+mode+`"}`)
		}
	case n < 67:
		mode := modesHad[w.rng.IntN(len(modesHad))]
		if !w.a.tells { // nobody can tell what it says by itself from what it was set to in that moment
			if w.waits(); len(w.open) > 0 {
				return
			}
			defer w.waits()
		}
		if t, opening := w.a.goesOver(h.native(w.r), mode); t > 0 {
			w.say("%d: the agent goes over to %s in %s", t, mode, h.id)
			c := &claim{kind: "goes over", wish: wish{mode: mode}, start: t, opening: opening}
			h.claims, w.saying = append(h.claims, c), append(w.saying, c)
		}
	case n < 74:
		what := []string{"plan", "write", "ask", "readonly", "bypass", "a", "b"}[w.rng.IntN(7)]
		w.a.mu.Lock()
		w.a.refused[what] = !w.a.refused[what]
		w.say("the agent refuses %s: %v", what, w.a.refused[what])
		w.a.mu.Unlock()
	case n < 76:
		w.say("the agent loses a conversation")
		w.a.mu.Lock()
		w.a.loses = true
		w.a.mu.Unlock()
	case n < 81:
		w.say("%d: the process of %s dies", w.a.tick(), h.id)
		w.a.crash(h.native(w.r))
	case n < 84:
		w.say("time passes")
		w.a.goesOn() // no agent takes that long
		time.Sleep(40 * time.Second)
	case n < 86:
		w.asks(i, h, "close", acp.MethodSessionClose, wish{}, `{"sessionId":"`+h.id+`"}`)
	case n < 91:
		methods := []string{acp.MethodSessionPrompt, acp.MethodSessionPrompt, acp.MethodSessionResume, acp.MethodSessionLoad, acp.MethodSessionSetMode, acp.MethodSessionSetConfigOption, acp.MethodSessionClose, acp.MethodSessionNew}
		w.a.mu.Lock()
		w.a.hold = methods[w.rng.IntN(len(methods))]
		w.say("the next %s waits", w.a.hold)
		w.a.mu.Unlock()
	case n < 95:
		w.say("the agent goes on")
		w.a.goesOn()
	case n < 97:
		if len(w.open) > 0 {
			c := w.open[w.rng.IntN(len(w.open))]
			c.maybe = true
			w.say("client %d takes %s back that it sent at %d", c.who, c.method, c.start)
			w.people[c.who].notify(acp.MethodCancelRequest, `{"requestId":`+string(c.id)+`}`)
		}
	case n < 98:
		w.restarts(w.rng.IntN(2) == 0)
	case len(w.all) < 3:
		made := &history{id: fmt.Sprint("s", len(w.all)), from: h}
		asked, cwd := w.wishes(), `,"cwd":"/tmp"`
		if w.rng.IntN(2) == 0 && strings.Contains(w.a.caps, "fork") {
			if w.rng.IntN(3) == 0 {
				asked, cwd = wish{}, ""
			}
			w.say("a fork of %s", h.id)
			made.inherits = cwd == ""
			w.makes(i, made, acp.MethodSessionFork, asked, `{"sessionId":"`+h.id+`"`+cwd)
			return
		}
		made.from = nil
		w.makes(i, made, acp.MethodSessionNew, asked, `{"cwd":"/tmp"`)
	}
}

// makes has a client make a session. It is there from then on for others, too, who may meet its making.
func (w *settings) makes(i int, made *history, method string, asked wish, begin string) {
	w.all = append(w.all, made)
	w.last[i] = asked
	more := asked.params()
	if strings.Contains(more, "_meta") {
		more = strings.Replace(more, `"sandboxagent.dev":{`, `"sandboxagent.dev":{"requestedSessionId":"`+made.id+`",`, 1)
	} else {
		more += own(`"requestedSessionId":"` + made.id + `"`)
	}
	w.asks(i, made, "make", method, asked, begin+more+`}`)
}

// connects gives a client a new connection.
func (w *settings) connects(i int) {
	p, err := newPerson(w.r, false)
	if err != nil {
		w.faults = append(w.faults, "connect: "+err.Error())
		return
	}
	p.keeps = true
	w.people[i], w.had[i] = p, map[string]bool{}
}

func (w *settings) reconnects(i int) {
	w.say("client %d connects again", i)
	w.collect()
	w.people[i].close()
	for _, c := range w.open {
		if c.who == i {
			c.maybe, c.end = true, 0
		}
	}
	w.open = slices.DeleteFunc(w.open, func(c *claim) bool { return c.who == i })
	w.connects(i)
}

// restarts starts the gateway again.
func (w *settings) restarts(kill bool) {
	if w.dir == "" {
		return
	}
	w.say("%d: the gateway starts again, killed: %v", w.a.tick(), kill)
	w.waits()
	for _, c := range w.open { // of what comes until the end nothing is known
		c.maybe = true
	}
	w.open = nil
	dir := w.dir
	if kill {
		dir = killed.Folder(w.t, w.dir)
	}
	for _, p := range w.people {
		p.close()
	}
	w.ends()
	w.dir = dir
	w.begins()
}

func (w *settings) ends() {
	if err := w.r.Shutdown(context.Background()); err != nil {
		w.faults = append(w.faults, "shutdown: "+err.Error())
	}
	w.a.mu.Lock()
	w.a.hold, w.a.held = "", nil
	w.a.mu.Unlock()
}

func (w *settings) begins() {
	o := Options{Adapters: []adapters.Adapter{w.a}, DefaultAgent: "fake", Ephemeral: w.dir == "", DataDir: w.dir, Fsync: "never", IdleTimeout: 30 * time.Second, RequestTimeout: 20 * time.Second}
	r, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.r = r
	for i := range w.people {
		w.connects(i)
	}
}

// waits waits until nothing happens by itself, and collects.
func (w *settings) waits() {
	synctest.Wait()
	for _, c := range w.saying {
		c.end = w.a.tick()
	}
	w.saying = nil
	w.collect()
}

// collect takes notice of what was answered.
func (w *settings) collect() {
	for i, p := range w.people {
		p.mu.Lock()
		answers := p.answers
		p.answers = nil
		p.mu.Unlock()
		for _, m := range answers {
			at := slices.IndexFunc(w.open, func(c *claim) bool { return c.who == i && c.id == m.ID() })
			if at < 0 {
				continue
			}
			c := w.open[at]
			w.open = slices.Delete(w.open, at, at+1)
			c.answered(w.a.tick(), &m)
			how := "is done"
			if c.failed {
				how = "fails: " + m.Err().Message
			} else if len(c.unsupported) > 0 {
				how = fmt.Sprintf("is done without %s", c.unsupported)
			}
			w.say("%d: %s of %d %s", c.end, c.method, c.start, how)
		}
	}
}

// looks has a client look at a session, if all is quiet, and compares what it is told with what is so.
func (w *settings) looks(i int, h *history) {
	w.waits()
	w.a.mu.Lock()
	quiet := len(w.a.held) == 0 && len(w.open) == 0
	w.a.mu.Unlock()
	info, err := w.r.Session(h.id)
	if !quiet || err != nil || info.State != StateIdle {
		return
	}
	is := w.a.modeOf(h.native(w.r))
	c := w.asks(i, h, "look", acp.MethodSessionResume, wish{}, loadOf(h.id, "/tmp", `,"mcpServers":[]`))
	w.waits()
	if c.failed || is == "" || w.a.silent {
		return
	}
	var says []string
	if w.a.byModes {
		says = append(says, rawjson.MemberString(c.result, "modes", "currentModeId"))
	}
	options, _ := rawjson.Member(c.result, "configOptions")
	for _, o := range rawjson.Elements(options) {
		says = append(says, rawjson.MemberString(o, "currentValue"))
	}
	for _, said := range says {
		if said != is {
			w.faults = append(w.faults, fmt.Sprintf("%d: a client is told that %s is in mode %s, and the agent is in %s", c.start, h.id, said, is))
		}
	}
}

// playSettings lets the steps of a seed happen, which are numbers, and says what was wrong.
func playSettings(t *testing.T, seed uint64, steps []int) (told []string, err error) {
	w := &settings{t: t, rng: rand.New(rand.NewPCG(seed, 1<<40))}
	w.a = newModed(w.rng)
	w.a.stays = rand.New(rand.NewPCG(seed, 1<<41)).IntN(2) == 0
	w.say("%s", w.a)
	if w.rng.IntN(6) == 0 { // with files, which cost more
		w.dir = t.TempDir()
	}
	w.begins()
	w.makes(0, &history{id: "s0"}, acp.MethodSessionNew, w.wishes(), `{"cwd":"/tmp"`)
	w.waits()
	for _, n := range steps {
		w.rng = rand.New(rand.NewPCG(seed, uint64(n))) // another step more or less does not change it
		meets := w.rng.IntN(4) == 0
		w.collect()
		if !meets && w.rng.IntN(3) == 0 {
			w.looks(w.rng.IntN(len(w.people)), w.all[w.rng.IntN(len(w.all))])
		}
		w.step()
		if !meets { // else the next one meets it
			w.waits()
		}
	}
	for range 10 {
		w.waits()
		w.a.goesOn()
	}
	time.Sleep(time.Second)
	w.waits()
	for _, c := range w.open {
		w.faults = append(w.faults, fmt.Sprintf("%s of %d is not answered", c.method, c.start))
	}
	for _, h := range w.all { // how each is in the end
		w.looks(0, h)
		text := fmt.Sprint("p", w.a.tick())
		w.asks(0, h, "prompt", acp.MethodSessionPrompt, wish{}, prompt(h.id, text)).text = text
		w.waits()
		w.collect()
		w.looks(0, h)
	}
	for _, h := range w.all {
		h.native(w.r)
	}
	for _, p := range w.people {
		p.close()
	}
	w.ends()
	var wrong []error
	for _, s := range w.faults {
		wrong = append(wrong, errors.New(s))
	}
	for _, h := range w.all {
		for _, s := range h.wrong(w.a) {
			wrong = append(wrong, errors.New(h.id+": "+s))
		}
	}
	if len(wrong) > 0 {
		for _, s := range w.a.seen {
			w.told = append(w.told, fmt.Sprintf("%d: the agent sees %s %s mode %s %s%s %s", s.t, s.what, s.native, s.mode, s.text, s.servers, s.brief))
		}
	}
	return w.told, errors.Join(wrong...)
}

var (
	settingsSeed  = flag.Int64("settings.seed", -1, "play only this sequence of TestSettings")
	settingsCount = flag.Uint64("settings.n", 0, "how many sequences TestSettings plays, if not as many as usual")
	settingsFirst = flag.Uint64("settings.first", 0, "the sequence with which TestSettings begins")
)

const settingsSteps = 14

// Whatever is asked of the settings of sessions, by whom and in whatever order: an agent that is to read only does so whenever a prompt
// reaches it, what was asked for last is so or somebody is told, and nothing that nobody has asked for changes. A sequence that fails is
// played again by go test ./runtime -run TestSettings_RandomSequences -settings.seed=N.
func TestSettings_RandomSequences(t *testing.T) {
	from, n := *settingsFirst, cmp.Or(*settingsCount, uint64(agentcache.Sequences(300)))
	if *settingsSeed >= 0 {
		from, n = uint64(*settingsSeed), 1
	}
	playSequences(t, from, n, playSettings)
}

// As many as there is time for.
func TestSettings_ManySequences(t *testing.T) {
	agentcache.Long(t, "a quarter of an hour; the same with some hundred sequences is always run")
	until := time.Now().Add(15 * time.Minute)
	if end, ok := t.Deadline(); ok && time.Until(end)/3 < time.Until(until) {
		until = time.Now().Add(time.Until(end) / 3)
	}
	n := *settingsFirst
	for ; time.Now().Before(until) && !t.Failed(); n += 1000 {
		playSequences(t, n, 1000, playSettings)
		playSequences(t, n, 1000, playTunings)
	}
	t.Logf("played %d to %d", *settingsFirst, n)
}

// playSequences plays n sequences. Of one that fails it leaves out what it fails without.
func playSequences(t *testing.T, from, n uint64, plays func(t *testing.T, seed uint64, steps []int) ([]string, error)) {
	t.Helper()
	for seed := from; seed < from+n && !t.Failed(); seed++ {
		var steps []int
		for i := range settingsSteps {
			steps = append(steps, i)
		}
		play := func() (told []string, err error) {
			synctest.Test(t, func(t *testing.T) { told, err = plays(t, seed, steps) })
			return told, err
		}
		told, err := play()
		if err == nil {
			continue
		}
		for i := len(steps) - 1; i >= 0; i-- {
			all := steps
			steps = slices.Delete(slices.Clone(steps), i, i+1)
			if less, still := play(); still != nil {
				told, err = less, still
			} else {
				steps = all
			}
		}
		t.Errorf("seed %d, steps %v:\n%s\n%v", seed, steps, strings.Join(told, "\n"), err)
	}
}
