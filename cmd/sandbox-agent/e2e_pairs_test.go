package main_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// pairing is one session in which two events meet.
type pairing struct {
	t       *testing.T
	c       *client
	session string
	from    int              // of its messages in the client's inbox
	asked   []<-chan message // what was asked for and is to be answered
	names   []string         // what it was
	forks   map[int]bool     // those of asked that make a session
	gone    bool             // it was to be deleted
	unsure  bool             // the client went then: the gateway may not have read it
	renew   func() *client   // connects anew; nil where that is another gateway
	other   *client          // of the same gateway, in whose sessions the agent's process comes to its end
	ends    []<-chan message // of that process
}

// crash ends the agent's process, which the sessions share.
func (p *pairing) crash() {
	p.crashed() // its session would be of the process that ends
	p.ends = append(p.ends, p.other.start("session/prompt", promptParams(p.other.newSession(), "crash")))
}

// crashed waits for the end of the process.
func (p *pairing) crashed() {
	for _, end := range p.ends {
		p.other.response(end)
	}
	p.ends = nil
}

func (p *pairing) ask(method string, more map[string]any) {
	params := map[string]any{"sessionId": p.session}
	for k, v := range more {
		params[k] = v
	}
	p.asked, p.names = append(p.asked, p.c.start(method, params)), append(p.names, method)
}

var opened = map[string]any{"cwd": "/", "mcpServers": []any{}}

// events are what meets, as a client of a dialect sees it; meets says where it can.
var events = []struct {
	name string
	do   func(p *pairing)
}{
	{"prompt", func(p *pairing) { p.ask("session/prompt", promptParams(p.session, "echo x")) }},
	{"cancel", func(p *pairing) { p.c.notify("session/cancel", map[string]any{"sessionId": p.session}) }},
	{"load", func(p *pairing) { p.ask("session/load", opened) }},
	{"load with other settings", func(p *pairing) {
		p.ask("session/load", map[string]any{"cwd": "/", "mcpServers": []any{map[string]any{"name": "n" + p.session, "command": "/bin/true", "args": []any{}, "env": []any{}}}})
	}},
	{"fork", func(p *pairing) { p.forks[len(p.asked)] = true; p.ask("session/fork", opened) }},
	{"mode", func(p *pairing) { p.ask("session/set_mode", map[string]any{"modeId": "ask"}) }},
	{"close", func(p *pairing) { p.ask("session/close", nil) }},
	{"delete", func(p *pairing) { p.gone = true; p.ask("session/delete", nil) }},
	{"answer", func(p *pairing) {
		for _, m := range p.c.messages()[p.from:] {
			if m.Method == "session/request_permission" && m.params().SessionID == p.session {
				p.c.answer(m, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": m.params().Options[0].OptionID}})
				return
			}
		}
		p.t.Error("there is no permission to answer")
	}},
	{"disconnect", func(p *pairing) {
		p.c.abandon()
		p.c, p.from, p.unsure = p.renew(), 0, p.gone
		p.asked, p.names, p.forks = nil, nil, map[int]bool{} // nobody hears of it
	}},
	{"crash", func(p *pairing) { p.crash() }},
}

// situations are what goes on when they meet.
var situations = []struct {
	name  string
	bring func(p *pairing)
}{
	{"nothing", func(*pairing) {}},
	{"a turn", func(p *pairing) {
		p.ask("session/prompt", promptParams(p.session, "slow"))
		p.c.find(p.from, "the turn's first words", func(m *message) bool { _, said := m.chunk(p.session); return said })
	}},
	{"a permission", func(p *pairing) {
		p.ask("session/prompt", promptParams(p.session, "permission"))
		p.c.find(p.from, "a permission", func(m *message) bool {
			return m.Method == "session/request_permission" && m.params().SessionID == p.session
		})
	}},
	{"no process", func(p *pairing) { p.crash(); p.crashed() }},
}

// meets reports whether two events, one after the other, are something in a situation and a dialect: an answer is one where a
// permission is open that its client was shown, and an editor's streams are not connected anew.
func meets(one, other, situation string, kind dialect) bool {
	if (one == "answer" || other == "answer") && (situation != "a permission" || one == "disconnect") {
		return false
	}
	return kind != stdio || one != "disconnect" && other != "disconnect"
}

// Any two events meet, whatever goes on, in each dialect: what was asked for is answered once, and the session can be used
// afterwards, or is gone if it was to be. Each pair is tried in one order, situation and dialect always, and in all in the long tier.
func TestPairs(t *testing.T) { playPairs(t, false) }

func TestPairs_InEverySituationAndDialect(t *testing.T) {
	agentcache.Long(t, "each pair is tried in one order, situation and dialect always")
	playPairs(t, true)
}

func playPairs(t *testing.T, all bool) {
	g := startGateway(t)
	kinds := []dialect{standard, wsocket, inline, stdio}
	clients := map[dialect]*client{}
	renew := func(kind dialect) *client {
		c := connect(t, g, kind, options{})
		c.check = func(string, []byte) {} // a load shows an open request anew, with its id
		return c
	}
	for _, kind := range kinds[:3] {
		clients[kind] = renew(kind)
	}
	crashes := renew(wsocket)
	clients[stdio] = startEditor(t, g.mark+"-editor-", nil, "--data-dir", t.TempDir(), "--agent", "mock")
	clients[stdio].check = func(string, []byte) {}
	what := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(what)
		}
	})
	for n := range len(events) * len(events) {
		one, other := events[n/len(events)], events[n%len(events)]
		var where []int
		for k := range len(situations) * len(kinds) {
			if meets(one.name, other.name, situations[k/len(kinds)].name, kinds[k%len(kinds)]) {
				where = append(where, k)
			}
		}
		switch {
		case all:
		case n%len(events) < n/len(events):
			continue
		default:
			k := n % len(where)
			where = where[k : k+1]
		}
		for _, k := range where {
			kind, now := kinds[k%len(kinds)], situations[k/len(kinds)]
			p := &pairing{t: t, c: clients[kind], other: clients[kind], forks: map[int]bool{}}
			if kind != stdio {
				p.other, p.renew = crashes, func() *client { return renew(kind) }
			}
			what = fmt.Sprintf("%s: %s and %s beside %s", kind, one.name, other.name, now.name)
			p.play(t, what, now.bring, one.do, other.do)
			if clients[kind] = p.c; t.Failed() {
				return
			}
		}
	}
}

func (p *pairing) play(t *testing.T, what string, steps ...func(*pairing)) {
	t.Helper()
	p.from = p.c.mark()
	p.session = p.c.newSession()
	for _, step := range steps {
		step(p)
	}
	p.crashed()
	p.c.notify("session/cancel", map[string]any{"sessionId": p.session})
	for i, ch := range p.asked {
		m := p.c.response(ch)
		if m.Error != nil && (m.Error.Code == 0 || m.Error.Message == "") {
			t.Errorf("%s: %s was not answered: %v", what, p.names[i], m.Error)
		}
		if p.forks[i] && m.Error == nil {
			var made struct {
				SessionID string `json:"sessionId"`
			}
			if err := json.Unmarshal(m.Result, &made); err != nil || made.SessionID == "" {
				t.Fatalf("%s: the fork is %s, %v", what, m.Result, err)
			}
			if end := p.c.prompt(made.SessionID, "hello"); end != "end_turn" {
				t.Errorf("%s: the fork's turn ended with %s", what, end)
			}
			p.c.must("session/delete", map[string]any{"sessionId": made.SessionID})
		}
	}
	_, err := p.c.call("session/load", map[string]any{"sessionId": p.session, "cwd": "/", "mcpServers": []any{}})
	if (err != nil) != p.gone && !p.unsure {
		t.Errorf("%s: it is loaded with %v", what, err)
	}
	if err == nil {
		if end := p.c.prompt(p.session, "hello"); end != "end_turn" {
			t.Errorf("%s: the next turn ended with %s", what, end)
		}
		p.c.must("session/delete", map[string]any{"sessionId": p.session})
	}
	for _, m := range p.c.messages()[p.from:] {
		if m.Method == "" {
			t.Errorf("%s: answered twice: %.300s", what, m.raw)
		}
	}
	p.c.forget()
	p.other.forget()
}
