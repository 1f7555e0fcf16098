package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// lifeOfSession is in how many rounds a session is used: each one is loaded with all its
// history in each of them.
const lifeOfSession = 25

// TestChaos_NothingStaysOpen kills the gateway and agents at random moments, while
// sessions work, ask, and run tools, and cancels what is left. After each round no call
// and no request is open that nobody can end, and each session is idle and goes on.
func TestChaos_NothingStaysOpen(t *testing.T) {
	t.Parallel()
	rounds := 10
	if agentcache.IsLong() {
		rounds = 500
	}
	rounds = figure.Asked(t, "ROUNDS", rounds)
	gateways, processes := 0, 0
	defer func() {
		figure.Done(t, gateways, "kills of the gateway")
		figure.Done(t, processes, "of agents")
	}()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	g := newGateway(t, "--log-level", "error")
	if agentcache.IsLong() {
		g.withoutRace()
	}
	g.start()
	c := connect(t, g, wsocket, options{})
	var sessions []string
	for round := range rounds {
		if round%lifeOfSession == 0 {
			for _, s := range sessions {
				c.must("session/delete", map[string]any{"sessionId": s})
			}
			sessions = sessions[:0]
			for range 4 {
				sessions = append(sessions, c.newSessionWith(map[string]any{"isolation": "session"}))
			}
		}
		var answers []<-chan message
		for _, s := range sessions {
			for range 1 + dice.IntN(2) { // one may wait behind the other
				work := []string{"tool", "permission", "slow", "question", "stream 200 100", "diff"}[dice.IntN(6)]
				answers = append(answers, c.start("session/prompt", promptParams(s, work)))
			}
		}
		time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond) // any moment of it
		killed := false
		switch what := dice.IntN(3); {
		case what > 0:
			agents := g.agents()
			for range min(len(agents), 1+dice.IntN(2)) {
				if kill(agents[dice.IntN(len(agents))].pid, syscall.SIGKILL) == nil {
					processes++
				}
			}
			if what == 1 {
				break
			}
			fallthrough
		default:
			killed = true
			gateways++
			g.kill(syscall.SIGKILL)
			c.abandon()
			c.forget()
			g.restart()
			c = connect(t, g, wsocket, options{})
		}
		if !killed {
			for _, s := range sessions {
				c.notify("session/cancel", map[string]any{"sessionId": s})
			}
			for _, ch := range answers {
				c.response(ch)
			}
		}
		for i, s := range sessions {
			checkSettled(t, g, s, fmt.Sprintf("round %d, session %d, the gateway killed: %v", round, i, killed))
		}
		if t.Failed() {
			return
		}
		if killed {
			for _, s := range sessions {
				c.attach("session/resume", s, nil)
			}
		}
		s := sessions[dice.IntN(len(sessions))]
		if r := c.prompt(s, "hello"); r != "end_turn" {
			t.Fatalf("round %d: the next turn ended with %s", round, r)
		}
		c.awaitState(s, "idle")
	}
}

// checkSettled loads a session on a connection of its own, and checks that nothing is
// open in it.
func checkSettled(t *testing.T, g *gateway, session, when string) {
	t.Helper()
	c := connect(t, g, wsocket, options{})
	defer c.forget()
	defer c.close()
	c.attach("session/load", session, nil)
	var info struct {
		State   string
		Pending int
	}
	if g.get("/v2/sessions/"+session, &info); info.Pending != 0 || info.State != "idle" && info.State != "dormant" {
		t.Errorf("%s: the state is %s, with %d requests open", when, info.State, info.Pending)
	}
	open := map[string]string{}
	var asked []string
	for _, m := range c.messages() {
		switch {
		case len(m.ID) > 0 && m.Method != "":
			asked = append(asked, string(m.ID))
		case m.Method == "$/cancel_request":
			asked = slices.DeleteFunc(asked, func(id string) bool { return id == string(m.params().RequestID) })
		case m.Method == "session/update":
			var u struct {
				Update struct{ ToolCallID, Status string }
			}
			if err := json.Unmarshal(m.Params, &u); err != nil {
				t.Fatal(err)
			}
			if id := u.Update.ToolCallID; id != "" && u.Update.Status != "" {
				open[id] = u.Update.Status
			}
		}
	}
	for id, status := range open {
		if status != "completed" && status != "failed" {
			t.Errorf("%s: call %s is %s", when, id, status)
		}
	}
	if len(asked) > 0 {
		t.Errorf("%s: requests %v are open", when, asked)
	}
}
