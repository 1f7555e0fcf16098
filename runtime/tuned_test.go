package runtime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// tuned is an agent with models, which have efforts of their own, that answers by itself.
type tuned struct {
	*fakeAgent
	byOption, byModel bool // a model is chosen by an option, or by session/set_model
	two               bool // there is another option of the category model, behind that of the model
	tells             bool // it says what it was set to, by an update, too
	remembers         bool // the model and the effort of a conversation, when that is opened again

	mu      sync.Mutex
	now     int
	convs   map[string]*tuning
	refused map[string]bool // values that it is not set to, or does not open with
	holds   bool            // the next request that sets something waits
	held    []sent
	set     []string // what it was asked to be set to since somebody looked
}

// tuning is how a conversation is.
type tuning struct {
	model, effort, brief string
	asked                tuningAt // at the last prompt
	at                   *fakeConn
}

type tuningAt struct{ model, effort, brief string }

// effortsOf are the efforts of each model, with which it begins first.
var effortsOf = map[string][]string{"big": {"low", "high"}, "huge": {"low", "high", "max"}, "small": nil}

var modelsHad = []string{"big", "huge", "small"}

func newTuned(rng *rand.Rand) *tuned {
	a := &tuned{two: rng.IntN(4) == 0, tells: rng.IntN(2) == 0, remembers: rng.IntN(2) == 0, convs: map[string]*tuning{}, refused: map[string]bool{}}
	switch rng.IntN(4) {
	case 0:
		a.byModel = true
	case 1:
		a.byModel, a.byOption = true, true
	default:
		a.byOption = true
	}
	a.fakeAgent = &fakeAgent{id: "fake", info: adapters.Info{Takes: []string{"instructions"}, PerSession: true}, handle: a.comes}
	a.caps = []string{
		`{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, `{"loadSession":true,"sessionCapabilities":{"close":{},"fork":{}}}`,
	}[rng.IntN(2)]
	return a
}

func (a *tuned) String() string {
	return fmt.Sprintf("agent: option %v, two %v, set_model %v, tells %v, remembers %v, %s", a.byOption, a.two, a.byModel, a.tells, a.remembers, a.caps)
}

// tune sets a conversation's model, and keeps the effort if that has it, too.
func (t *tuning) tune(model string) {
	if t.model = model; !slices.Contains(effortsOf[model], t.effort) {
		t.effort = strings.Join(effortsOf[model][:min(1, len(effortsOf[model]))], "")
	}
}

// options are those that a conversation has.
func (a *tuned) options(t *tuning) string {
	var out []string
	option := func(id, category, is string, values []string) {
		var all []string
		for _, v := range values {
			all = append(all, `{"value":"`+v+`","name":"`+v+`"}`)
		}
		out = append(out, `{"id":"`+id+`","name":"`+id+`","category":"`+category+`","type":"select","currentValue":"`+is+`","options":[`+strings.Join(all, ",")+`]}`)
	}
	if a.byOption {
		option("zmodel", "model", t.model, modelsHad)
	}
	if a.byOption && a.two {
		option("planmodel", "model", "big", modelsHad) // for something else
	}
	if efforts := effortsOf[t.model]; efforts != nil {
		option("effort", "thought_level", t.effort, efforts)
	}
	return `"configOptions":[` + strings.Join(out, ",") + `]`
}

// comes handles what the agent is sent.
func (a *tuned) comes(c *fakeConn, m acp.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.lives() || !m.IsRequest() {
		return
	}
	if sets := strings.HasPrefix(m.Method(), "session/set_"); sets && a.holds || len(a.held) > 0 {
		a.holds, a.held = false, append(a.held, sent{c, m})
		return
	}
	a.does(c, m)
}

// goesOn has the agent answer what waits.
func (a *tuned) goesOn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held
	a.holds, a.held = false, nil
	for _, h := range held {
		if h.to.lives() {
			a.does(h.to, h.m)
		}
	}
}

// does does what a request asks for and answers it; mu is held.
func (a *tuned) does(c *fakeConn, m acp.Message) {
	t := a.convs[m.Session()]
	switch m.Method() {
	case acp.MethodSessionNew, acp.MethodSessionFork, acp.MethodSessionLoad, acp.MethodSessionResume:
		a.opens(c, m, t)
	case acp.MethodSessionSetModel, acp.MethodSessionSetConfigOption:
		value := rawjson.MemberString(m.Params(), "modelId") + rawjson.MemberString(m.Params(), "value")
		id := rawjson.MemberString(m.Params(), "configId")
		a.set = append(a.set, id+"="+value)
		models := id == "" && a.byModel || id == "zmodel" && a.byOption
		switch {
		case a.refused[value], models && !slices.Contains(modelsHad, value), !models && (id != "effort" || !slices.Contains(effortsOf[t.model], value)):
			refuseAs(c, m, acp.CodeInvalidParams, value+" is not possible now")
			return
		case models:
			t.tune(value)
		default:
			t.effort = value
		}
		if a.tells || id == "" {
			a.says(c, m.Session(), t)
		}
		if id == "" {
			c.result(m, `{}`)
		} else {
			c.result(m, `{`+a.options(t)+`}`)
		}
	case acp.MethodSessionPrompt:
		t.asked = tuningAt{t.model, t.effort, t.brief}
		c.chunk(m.Session(), "done")
		c.result(m, `{"stopReason":"end_turn"}`)
	case acp.MethodSessionClose:
		t.at = nil
		c.result(m, `{}`)
	default:
		c.result(m, `{}`)
	}
}

// says says how a conversation is.
func (a *tuned) says(c *fakeConn, native string, t *tuning) {
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":{"sessionUpdate":"config_option_update",` + a.options(t) + `}}}`)
}

// opens opens a conversation.
func (a *tuned) opens(c *fakeConn, m acp.Message, t *tuning) {
	id, brief := m.Session(), rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, "instructions")
	if a.refused[brief] {
		refuseAs(c, m, acp.CodeInternal, "it is not opened with "+brief)
		return
	}
	made := tuning{model: "big", effort: "low"}
	if t != nil && a.remembers {
		made = *t
	}
	made.brief, made.at = brief, c
	says := a.options(&made)
	if m.Method() == acp.MethodSessionNew || m.Method() == acp.MethodSessionFork {
		a.now++
		id = "n" + strconv.Itoa(a.now)
		says += `,"sessionId":"` + id + `"`
	}
	a.convs[id] = &made
	if m.Method() == acp.MethodSessionLoad {
		c.chunk(id, "done")
	}
	c.result(m, `{`+says+`}`)
}

// goesOver has the agent choose a model by itself, in a session that it has open. It reports whether it has.
func (a *tuned) goesOver(native, model string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.convs[native]
	if t == nil || t.at == nil || !t.at.lives() || !a.byOption {
		return false
	}
	t.tune(model)
	a.says(t.at, native, t)
	return true
}

// is returns how a conversation is, and the process that has it open, nil for none.
func (a *tuned) is(native string) (is tuningAt, asked tuningAt, at *fakeConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.convs[native]
	if t == nil {
		return is, asked, nil
	}
	if at = t.at; at != nil && !at.lives() {
		at = nil
	}
	return tuningAt{t.model, t.effort, t.brief}, t.asked, at
}

// asks returns what it was asked to be set to since.
func (a *tuned) asks() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	set := a.set
	a.set = nil
	return set
}

// refuses has the agent refuse a value, or take it again.
func (a *tuned) refuses(value string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused[value] = !a.refused[value]
	return a.refused[value]
}
