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

// moded is an agent with modes that answers by itself. It does what it is asked, and says what came when.
type moded struct {
	*fakeAgent
	takes     bool // the adapter takes permissionMode
	byModes   bool // a mode is chosen by session/set_mode
	byOption  bool // or by an option
	silent    bool // it does not say how a session is that it opens again
	tells     bool // it says what it was set to, by an update, too
	remembers bool // the mode of a conversation, when that is opened again
	stays     bool // it does not refuse to be set to a mode by its option: it answers that it is in another one

	mu      sync.Mutex
	now     int // counts what happens
	convs   map[string]*conversation
	hold    string          // the method of which the next request waits
	held    []heldUp        // those that wait
	refused map[string]bool // modes that it is not set to, servers that it does not open with, values of permissionMode that it does not take
	loses   bool            // it has lost what it is asked to open next
	seen    []sight
}

// conversation is what a moded agent has of a session.
type conversation struct {
	mode, under string    // under is the permissionMode that it was opened with last
	opening     int       // when it was opened
	at          *fakeConn // the process that has it open, nil for none
}

// sight is something that came to the agent, and how it was then.
type sight struct {
	t       int
	came    int // what waits came before
	native  string
	what    string // "prompt", "set", "opens", "opened", "refuses"
	mode    string // in which it is, or to which it is set
	text    string // of the prompt
	opening int
	servers string // with which it is opened
	brief   string // the instructions
}

// heldUp is a request that waits since came.
type heldUp struct {
	sent
	came int
}

// modesHad are those of a moded agent. "plan" is the one in which it reads only.
var modesHad = []string{"ask", "plan", "write", "yolo"}

// anyMode stands for all of them: the agent does not open the session with what it is asked for.
const anyMode = "*"

// standsFor are the modes of the values of permissionMode.
var standsFor = map[string]string{"readonly": "plan", "write": "write", "bypass": "yolo"}

func newModed(rng *rand.Rand) *moded {
	a := &moded{
		takes: rng.IntN(2) == 0, silent: rng.IntN(4) == 0, tells: rng.IntN(2) == 0, remembers: rng.IntN(2) == 0,
		convs: map[string]*conversation{}, refused: map[string]bool{},
	}
	if a.takes {
		a.silent = false // adapters that take it are ours, and say
	}
	switch rng.IntN(3) {
	case 0:
		a.byModes = true
	case 1:
		a.byOption = true
	case 2:
		a.byModes, a.byOption, a.tells = true, true, true // each way tells of the other
	}
	a.fakeAgent = &fakeAgent{id: "fake", info: adapters.Info{PermissionModes: standsFor, Takes: []string{"instructions"}, PerSession: rng.IntN(2) == 0}}
	if a.takes {
		a.info.Takes = append(a.info.Takes, permissionModeField)
	}
	a.caps = []string{
		`{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, `{"loadSession":true,"sessionCapabilities":{"close":{},"fork":{}}}`,
		`{"sessionCapabilities":{"resume":{}}}`, `{}`,
	}[min(3, rng.IntN(8)/2)]
	a.handle = a.comes
	return a
}

const permissionModeField = "permissionMode"

// String says which agent it is.
func (a *moded) String() string {
	return fmt.Sprintf("agent: takes %v, modes %v, option %v, silent %v, tells %v, remembers %v, stays %v, alone %v, %s",
		a.takes, a.byModes, a.byOption, a.silent, a.tells, a.remembers, a.stays, a.info.PerSession, a.caps)
}

// tick returns a new point in time.
func (a *moded) tick() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	return a.now
}

// comes handles what the agent is sent. What comes to it is seen also where it waits.
func (a *moded) comes(c *fakeConn, m acp.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.lives() {
		return
	}
	a.now++
	conv := a.convs[m.Session()]
	switch m.Method() {
	case acp.MethodSessionPrompt:
		first, _ := rawjson.Member(m.Params(), "prompt")
		if conv == nil {
			conv = &conversation{mode: "plan"} // nothing is done
		}
		a.seen = append(a.seen, sight{t: a.now, native: m.Session(), what: "prompt", mode: conv.mode, opening: conv.opening, text: rawjson.MemberString(rawjson.Elements(first)[0], "text")})
	case acp.MethodSessionNew, acp.MethodSessionLoad, acp.MethodSessionResume, acp.MethodSessionFork:
		servers, _ := rawjson.Member(m.Params(), "mcpServers")
		var names string
		for _, s := range rawjson.Elements(servers) {
			names += rawjson.MemberString(s, "name")
		}
		native := m.Session()
		if m.Method() == acp.MethodSessionFork {
			native = ""
		}
		a.seen = append(a.seen, sight{t: a.now, native: native, what: "opens", servers: names, brief: rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, "instructions")})
	case acp.MethodSessionCancel:
		a.held = slices.DeleteFunc(a.held, func(h heldUp) bool {
			is := h.m.Method() == acp.MethodSessionPrompt && h.m.Session() == m.Session()
			if is {
				c.result(h.m, `{"stopReason":"cancelled"}`)
			}
			return is
		})
		return
	}
	if !m.IsRequest() {
		return
	}
	// All of a session is done in its order, beside its prompts.
	prompts := func(m *acp.Message) bool { return m.Method() == acp.MethodSessionPrompt }
	sets := func(m *acp.Message) bool {
		return m.Method() == acp.MethodSessionSetMode || m.Method() == acp.MethodSessionSetConfigOption
	}
	before := func(h heldUp) bool {
		return h.m.Session() == m.Session() && !prompts(&h.m) && (!prompts(&m) || !sets(&h.m))
	}
	if m.Method() == a.hold || m.HasSession() && slices.ContainsFunc(a.held, before) {
		a.hold, a.held = "", append(a.held, heldUp{sent{c, m}, a.now})
		return
	}
	a.does(c, m, a.now)
}

// goesOn has the agent answer what waits.
func (a *moded) goesOn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.held {
		if a.now++; h.to.lives() {
			a.does(h.to, h.m, h.came)
		}
	}
	a.hold, a.held = "", nil
}

// refuseAs answers with an error.
func refuseAs(c *fakeConn, m acp.Message, code int64, why string) {
	c.out <- acp.NewError(m.ID(), acp.Errorf(code, "%s", why))
}

// does does what a request asks for, which came then, and answers it; mu is held.
func (a *moded) does(c *fakeConn, m acp.Message, came int) {
	conv := a.convs[m.Session()]
	opens := m.Method() == acp.MethodSessionNew || m.Method() == acp.MethodSessionLoad || m.Method() == acp.MethodSessionResume
	if conv == nil && !opens && m.Method() != acp.MethodSessionClose {
		refuseAs(c, m, acp.CodeResourceNotFound, "there is no such session")
		return
	}
	switch m.Method() {
	case acp.MethodSessionNew, acp.MethodSessionFork:
		made := &conversation{mode: "ask"}
		if m.Method() == acp.MethodSessionFork {
			made.mode, made.under = conv.mode, conv.under
		}
		id := "n" + strconv.Itoa(a.now)
		a.convs[id] = made
		a.opens(c, m, id, made)
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		if a.loses || conv == nil {
			a.loses = false
			delete(a.convs, m.Session())
			refuseAs(c, m, acp.CodeResourceNotFound, "there is no such session")
			return
		}
		a.opens(c, m, m.Session(), conv)
	case acp.MethodSessionClose:
		if conv != nil {
			conv.at = nil
		}
		c.result(m, `{}`)
	case acp.MethodSessionSetMode:
		a.sets(c, m, came, conv, rawjson.MemberString(m.Params(), "modeId"))
	case acp.MethodSessionSetConfigOption:
		a.sets(c, m, came, conv, rawjson.MemberString(m.Params(), "value"))
	case acp.MethodSessionPrompt:
		c.chunk(m.Session(), "done")
		c.result(m, `{"stopReason":"end_turn"}`)
	default:
		c.result(m, `{}`)
	}
}

// sets sets a conversation's mode.
func (a *moded) sets(c *fakeConn, m acp.Message, came int, conv *conversation, mode string) {
	what := "set"
	if a.refused[mode] || !slices.Contains(modesHad, mode) {
		what = "refuses"
	}
	a.seen = append(a.seen, sight{t: a.now, came: came, native: m.Session(), what: what, mode: mode, opening: conv.opening})
	if what == "refuses" && a.stays && m.Method() == acp.MethodSessionSetConfigOption && slices.Contains(modesHad, mode) {
		c.result(m, in(conv.mode, `{`+fourOptions+`}`))
		return
	}
	if what == "refuses" {
		refuseAs(c, m, acp.CodeInternal, "mode "+mode+" is not possible now")
		return
	}
	conv.mode = mode
	if a.tells {
		a.saysMode(c, m.Session(), mode)
	}
	if m.Method() == acp.MethodSessionSetMode {
		c.result(m, `{}`)
	} else {
		c.result(m, in(mode, `{`+fourOptions+`}`))
	}
}

// saysMode says in which mode a conversation is.
func (a *moded) saysMode(c *fakeConn, native, mode string) {
	says := func(update string) {
		c.send(in(mode, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"`+native+`","update":{`+update+`}}}`))
	}
	if a.byModes {
		says(`"sessionUpdate":"current_mode_update","currentModeId":"MODE"`)
	}
	if a.byOption {
		says(`"sessionUpdate":"config_option_update",` + fourOptions)
	}
}

const (
	fourModes   = `"modes":{"currentModeId":"MODE","availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan"},{"id":"write","name":"Write"},{"id":"yolo","name":"Yolo"}]}`
	fourOptions = `"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"MODE","options":[{"value":"ask","name":"Ask"},{"value":"plan","name":"Plan"},{"value":"write","name":"Write"},{"value":"yolo","name":"Yolo"}]}]`
)

// opens opens a conversation and says how it is.
func (a *moded) opens(c *fakeConn, m acp.Message, id string, conv *conversation) {
	servers, _ := rawjson.Member(m.Params(), "mcpServers")
	var names, unsupported string
	for _, s := range rawjson.Elements(servers) {
		name := rawjson.MemberString(s, "name")
		if names += name; a.refused[name] {
			a.seen = append(a.seen, sight{t: a.now, native: id, what: "refuses", mode: anyMode})
			refuseAs(c, m, acp.CodeInternal, "server "+name+" is not possible now")
			return
		}
	}
	fresh := m.Method() == acp.MethodSessionNew || m.Method() == acp.MethodSessionFork
	wish := rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, permissionModeField)
	if wish == "default" {
		wish = ""
	}
	switch {
	case a.takes && wish != "" && (a.refused[wish] || standsFor[wish] == ""):
		unsupported = `,"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"it is not possible now"}]}}`
		a.seen = append(a.seen, sight{t: a.now, native: id, what: "refuses", mode: standsFor[wish]})
		conv.mode = "ask"
	case a.takes && (!a.remembers || fresh || wish == "readonly" || wish != conv.under):
		if conv.mode = standsFor[wish]; conv.mode == "" {
			conv.mode = "ask"
		}
	case !a.takes && !a.remembers:
		conv.mode = "ask"
	}
	conv.under, conv.at, conv.opening = wish, c, a.now
	a.seen = append(a.seen, sight{t: a.now, native: id, what: "opened", mode: conv.mode, opening: conv.opening, servers: names, brief: rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, "instructions")})
	var says []string
	if !a.silent || fresh {
		if a.byModes {
			says = append(says, fourModes)
		}
		if a.byOption {
			says = append(says, fourOptions)
		}
	}
	if fresh {
		says = append(says, `"sessionId":"`+id+`"`)
	}
	if m.Method() == acp.MethodSessionLoad {
		c.chunk(id, "done")
	}
	if len(says) == 0 && unsupported != "" {
		unsupported = unsupported[1:]
	}
	c.result(m, in(conv.mode, `{`+strings.Join(says, ",")+unsupported+`}`))
}

// goesOver has the agent go over to another mode by itself, in a session that it has open, and say so. It returns when.
func (a *moded) goesOver(native, mode string) (t, opening int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	conv := a.convs[native]
	if conv == nil || conv.at == nil || !conv.at.lives() {
		return 0, 0
	}
	a.now++
	conv.mode = mode
	a.saysMode(conv.at, native, mode)
	return a.now, conv.opening
}

// crash ends a process that has a session open, or the newest one.
func (a *moded) crash(native string) {
	a.mu.Lock()
	conv := a.convs[native]
	var c *fakeConn
	if conv != nil {
		c = conv.at
	}
	a.mu.Unlock()
	if c == nil {
		c = a.conn()
	}
	c.crash(errCrash)
}

// modeOf returns the mode of a session that the agent has open in a process that lives; "" for others, and while something waits.
func (a *moded) modeOf(native string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	conv := a.convs[native]
	if conv == nil || conv.at == nil || len(a.held) > 0 || !conv.at.lives() {
		return ""
	}
	return conv.mode
}
