package runtime

import (
	"fmt"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// claim is something that was asked of a session, or by which its agent changed it.
type claim struct {
	kind       string // "make", "load", "set", "goes over"; others change nothing
	method     string
	who        int
	id         acp.ID
	of         *history
	text       string // of a prompt
	wish       wish
	goesOn     bool // it comes from who connects again by itself
	start, end int  // when it was sent and answered; end is 0 for what was not
	opening    int  // of the agent that goes over

	maybe       bool // nobody knows what came of it
	failed      bool
	unsupported []string // fields that have no effect
	result      []byte
}

// answered notes what came of a claim.
func (c *claim) answered(t int, m *acp.Message) {
	own := m.Clone()
	c.end, c.failed, c.result = t, m.Err() != nil, own.Result()
	list, _ := rawjson.Member(c.result, "_meta", acp.MetaKey, "unsupported")
	for _, u := range rawjson.Elements(list) {
		c.unsupported = append(c.unsupported, rawjson.MemberString(u, "field"))
	}
	if !c.failed {
		is := rawjson.MemberString(first(c.result, "configOptions"), "currentValue")
		c.maybe = c.kind == "set" && is != "" && is != c.wish.mode // it was not taken back, and stays in another mode
	}
}

// first is the first element of a list.
func first(raw []byte, path ...string) []byte {
	list, _ := rawjson.Member(raw, path...)
	for _, one := range rawjson.Elements(list) {
		return one
	}
	return nil
}

// lacks reports whether a field had no effect.
func (c *claim) lacks(field string) bool {
	for _, f := range c.unsupported {
		if f == field {
			return true
		}
	}
	return false
}

// reads reports whether the claim has had the session read only.
func (c *claim) reads() bool {
	return (c.kind == "make" || c.kind == "load") && c.wish.permission == `"readonly"` && c.end > 0 && !c.failed && !c.lacks("permissionMode")
}

// frees reports whether the claim may have ended that the session reads only.
func (c *claim) frees() bool {
	other := c.wish.mode != "" && c.wish.mode != "plan"
	switch c.kind {
	case "set", "goes over":
		return other
	case "load":
		p := c.wish.permission
		if c.goesOn {
			return false
		}
		return p != "" && p != `"readonly"` && p != `"read-only"` && !c.lacks("permissionMode") || other && !c.lacks("mode") && p != `"readonly"`
	}
	return false
}

// history is what a session's clients have asked for.
type history struct {
	id       string
	from     *history // that it is a fork of
	inherits bool     // and has its settings
	claims   []*claim
	natives  map[string]bool
	now      string // its id with the agent
}

// native returns the session's id with its agent.
func (h *history) native(r *Runtime) string {
	if h.natives == nil {
		h.natives = map[string]bool{}
	}
	if info, err := r.Session(h.id); err == nil {
		h.now = info.AgentSessionID
		h.natives[h.now] = true
	}
	return h.now
}

// mustRead returns the claim by which the agent is to read only at t, whatever came since; nil for none. sent is when that was sent
// which comes to the agent then: it waits for loads that were sent before it. It is 0 for what the gateway asks by itself. opening is the agent's.
func (h *history) mustRead(sent, t, opening int) *claim {
	for _, r := range h.claims {
		if !r.reads() || r.end > t && r.start > sent {
			continue
		}
		over := false
		for _, f := range h.claims {
			ends := f.end == 0 || f.maybe || f.end > r.start // else what was asked for last is r
			// One that fails is taken back, and may have been tried: prompts wait for a load until then.
			holds := !f.failed || f.maybe || t < f.end && (f.kind == "set" || sent == 0)
			over = over || f.frees() && ends && f.start < t && holds && (f.kind != "goes over" || f.opening == opening)
		}
		if !over {
			return r
		}
	}
	return nil
}

// wants returns the mode in which the agent is to be at t, "" for one that is not known, and the claim that says so. All that is asked of a
// session is done in the order in which it was sent.
func (h *history) wants(a *moded, sent, t, opening int) (mode string, by *claim) {
	const unknown = "?"
	permission, field := "", ""
	refusals := a.seen
	refuses := func(until int) { // what the agent is not put back into
		for ; len(refusals) > 0 && refusals[0].t < until; refusals = refusals[1:] {
			s := refusals[0]
			if s.what == "refuses" && s.mode == field { // it is no setting any more
				field = unknown
			}
			switch {
			case s.what != "refuses": // whose it is is not known of one that was given up
			case s.mode == standsFor[strings.Trim(permission, `"`)] && permission != `"readonly"`:
				permission = unknown
				if s.mode == mode {
					mode = ""
				}
			case s.mode == mode:
				mode = ""
			case s.mode == anyMode && mode != "plan": // a change was taken back, and everybody was told
				mode, permission, field = "", unknown, unknown
			}
		}
	}
	for _, c := range h.claims {
		if c.start >= t {
			break
		}
		refuses(c.start)
		asks := c.wish
		loads := c.kind == "make" || c.kind == "load"
		none := c.kind != "set" && c.kind != "goes over" && !loads || c.kind == "load" && asks.permission == "" && asks.mode == ""
		waits := loads && c.start < sent && !c.maybe // what was sent behind it waits for it
		switch {
		case none:
			continue
		case c.maybe || c.end == 0 || c.end > t && !waits:
			if mode, by = "", c; loads {
				permission, field = unknown, unknown
			}
			continue
		case c.failed:
			continue
		case c.kind == "goes over":
			later := func(s sight) bool { return s.what == "set" && s.opening == opening && s.t > c.start && s.t < t } // it was on its way
			if mode, by = asks.mode, c; c.opening != opening || h.meets(c) || slices.ContainsFunc(a.seen, later) {
				mode = ""
			}
			continue
		case c.kind == "set":
			if mode, by = asks.mode, c; h.meets(c) {
				mode = ""
			}
			continue
		}
		if c.kind == "make" {
			mode, by = "ask", c
		}
		if c.method == acp.MethodSessionFork {
			mode = "" // as the agent has the other one
			if h.inherits {
				permission, field = unknown, unknown
			}
		}
		was := permission
		switch is := asks.permission; {
		case is == "" || is == `"read-only"`:
		case c.lacks("permissionMode"):
			permission = unknown
		case is == `"readonly"`:
			mode, by, permission = "plan", c, is
		case is == was && c.goesOn || (is == "null" || is == `"default"`) && (was == "" || is == was):
		case is == "null" || is == `"default"`:
			mode, by, permission = "", c, ""
		case was == unknown:
			mode, by, permission = "", c, is
		default:
			mode, by, permission = standsFor[strings.Trim(is, `"`)], c, is
			if c.kind == "load" && a.takes && a.remembers {
				mode = "" // the agent may have been in another one under the same before, and was not opened since
			}
		}
		switch {
		case asks.mode == "" || c.lacks("mode"):
		case permission != was || field == unknown:
			mode, by, field = "", c, unknown
		case field != asks.mode || !c.goesOn:
			mode, by, field = asks.mode, c, asks.mode
		}
		if h.meets(c) {
			mode = ""
		}
	}
	refuses(t)
	return mode, by
}

// meets reports whether the agent went over to a mode while the claim was open, or was asked for two modes at a time.
func (h *history) meets(c *claim) bool {
	return slices.ContainsFunc(h.claims, func(other *claim) bool {
		beside := other.kind == "goes over" || c.kind == "goes over" && (other.kind == "load" || other.kind == "make") || c.kind != "load" && c.kind != "make" && other.kind == "set"
		return c != other && beside && other.start < c.end && (other.end == 0 || other.end > c.start)
	})
}

// opened says how the agent was asked to open the session with other settings than it has.
func (h *history) opened(a *moded) (out []string) {
	type setup struct{ server, brief string }
	var now, last, opened setup // last is the one with which a start has come to its end, as far as is known
	claims, tried := h.claims, false
	if h.inherits {
		return nil
	}
	for _, s := range a.seen {
		for ; len(claims) > 0 && claims[0].start < s.t; claims = claims[1:] {
			c := claims[0]
			if c.kind != "make" && c.kind != "load" || c.wish.server+c.wish.brief == "" {
				continue
			}
			if c.maybe || c.end == 0 || c.end > s.t && !c.failed {
				return out // what comes then is not known
			}
			if c.failed {
				continue
			}
			next := now
			if c.wish.server != "" && !c.lacks("mcpServers") {
				next.server = c.wish.server
			}
			if c.wish.brief != "" && !c.lacks("instructions") {
				next.brief = c.wish.brief
			}
			if next != now {
				now, tried = next, false
			}
		}
		is := setup{s.servers, s.brief}
		before := func(is setup) bool { return tried && (is == last || is == opened) } // it is opened as it was, where what is asked for is refused
		switch {
		case !h.natives[s.native]:
		case s.what == "opened" && (is == now || before(is)): // else it is of a start that was given up
			now, opened, tried = is, is, false
		case s.what == "prompt":
			last = opened
		case s.what != "opens":
		case is == now:
			tried = true
		case slices.ContainsFunc(h.claims, func(c *claim) bool { return c.failed && c.start < s.t && s.t < c.end }): // it was tried
		case before(is):
		default:
			out = append(out, fmt.Sprintf("%d: it is opened with %s, and is to be with %s", s.t, is, now))
		}
	}
	return out
}

// wrong says what of the session was not as it must be.
func (h *history) wrong(a *moded) (out []string) {
	sent := map[string]int{}
	for _, c := range h.claims {
		if c.text != "" {
			sent[c.text] = c.start
		}
	}
	for _, s := range a.seen {
		if s.what == "set" && s.mode != "plan" && h.natives[s.native] {
			if r := h.mustRead(0, s.came, s.opening); r != nil {
				out = append(out, fmt.Sprintf("%d: the agent is set to %s, and since %s of %d it reads only", s.t, s.mode, r.method, r.start))
			}
		}
		if s.what != "prompt" || sent[s.text] == 0 {
			continue
		}
		if r := h.mustRead(sent[s.text], s.t, s.opening); r != nil && s.mode != "plan" {
			out = append(out, fmt.Sprintf("prompt %s reaches the agent in mode %s, and since %s of %d it reads only", s.text, s.mode, r.method, r.start))
		}
		if mode, by := h.wants(a, sent[s.text], s.t, s.opening); mode != "" && mode != s.mode {
			out = append(out, fmt.Sprintf("prompt %s reaches the agent in mode %s, and since %s of %d it is to be in %s", s.text, s.mode, by.method, by.start, mode))
		}
	}
	return append(out, h.opened(a)...)
}
