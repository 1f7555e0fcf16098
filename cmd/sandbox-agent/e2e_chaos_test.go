package main_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// TestChaos_NothingIsLeftAndEveryRequestIsAnswered runs agents that ignore the
// end of their input and SIGTERM, leave children in sessions of their own, hang,
// ask, stream and exit at random, each in a process of its own, and ends the
// gateway by each signal in the middle of it.
func TestChaos_NothingIsLeftAndEveryRequestIsAnswered(t *testing.T) {
	times, sessions := figure.Asked(t, "ENDS", 1), 12
	if times > 1 || agentcache.IsLong() {
		sessions = 30
	}
	all := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGKILL}
	ends := slices.Repeat(all, times)
	for i, sig := range ends {
		t.Run(sig.String(), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			g := startGateway(t)
			var clients []*client
			for _, kind := range dialects {
				clients = append(clients, connect(t, g, kind, options{}))
			}
			type work struct {
				c       *client
				session string
				before  []string // turns that end
				prompt  string   // one that need not
			}
			var all []work
			for n := range sessions {
				w := work{c: clients[n%len(clients)]}
				for _, p := range []string{"ignore-eof", "fork-child", "hello"} {
					if dice.IntN(2) == 0 {
						w.before = append(w.before, p)
					}
				}
				w.prompt = []string{"slow", "hang", "permission", "flood 20000 100", fmt.Sprintf("crash %d", dice.IntN(1500))}[dice.IntN(5)]
				all = append(all, w)
			}
			var ready sync.WaitGroup
			answers := make(chan string, sessions) // what went wrong, or ""
			turns := sessions
			for n := range all {
				w := &all[n]
				turns += len(w.before)
				w.session = w.c.newSessionWith(map[string]any{"isolation": "session"})
				ready.Go(func() {
					for _, p := range w.before {
						if r, err := w.c.call("session/prompt", promptParams(w.session, p)); err != nil {
							t.Errorf("%s: %v %s", p, err, r)
						}
					}
					ch := w.c.start("session/prompt", promptParams(w.session, w.prompt))
					go func() {
						m := w.c.response(ch)
						switch {
						case m.Error == nil, m.Error.Code != 0: // the gateway's answer
							answers <- ""
						default:
							answers <- fmt.Sprintf("%s on %s: %s", w.prompt, w.c.kind, m.Error.Message)
						}
					}()
				})
			}
			ready.Wait()
			// A request on its way to a gateway that ends is answered by nobody.
			g.until("all turns have begun", func() bool {
				return g.scrape()[`sandbox_agent_turns_started_total{agent="mock"}`] >= float64(turns)
			})
			type agent struct {
				ID        string
				Processes []struct {
					PID      int
					RSSBytes int64
				}
			}
			var listed struct{ Agents []agent }
			g.get("/v2/agents", &listed)
			mock := slices.IndexFunc(listed.Agents, func(a agent) bool { return a.ID == "mock" })
			running := 0 // some are about to end, or have
			for _, p := range listed.Agents[mock].Processes {
				if p.PID != 0 && p.RSSBytes != 0 {
					running++
				}
			}
			if running < sessions/2 {
				t.Errorf("the list of processes is %+v", listed.Agents[mock].Processes)
			}
			time.Sleep(time.Duration(dice.IntN(700)) * time.Millisecond) // any moment of it
			old := g.generation()
			took := g.kill(sig)
			if took > ladder {
				t.Errorf("the gateway took %v to end", took)
			}
			graceful := sig != syscall.SIGKILL && sig != syscall.SIGQUIT
			for range sessions {
				select {
				case a := <-answers:
					if graceful && a != "" {
						t.Errorf("a request was not answered: %s", a)
					}
					if a != "" && strings.Contains(a, "no response within") {
						t.Errorf("a request hangs: %s", a)
					}
				case <-time.After(patience):
					t.Fatal("a request hangs")
				}
			}
			g.awaitNoProcess(old)
			// The sessions are all there, and one goes on.
			g.restart()
			var page struct {
				Sessions []struct{ SessionID, State string }
			}
			if g.get("/v2/sessions?limit=100", &page); len(page.Sessions) != sessions {
				t.Errorf("%d sessions are listed, want %d", len(page.Sessions), sessions)
			}
			c := connect(t, g, wsocket, options{})
			c.attach("session/resume", all[0].session, nil)
			if r := c.prompt(all[0].session, "hello"); r != "end_turn" {
				t.Errorf("the next turn ended with %s", r)
			}
		})
	}
	figure.Done(t, len(ends), fmt.Sprintf("ends with %d sessions at work", sessions))
}
