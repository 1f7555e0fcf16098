package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// ids are JSON-RPC ids that a careless gateway confuses or changes.
var ids = []string{`0`, `-1`, `"0"`, `1`, `"1"`, `9007199254740993`, `""`, `"\u00e9 \\ \" /"`, `"` + strings.Repeat("x", 1000) + `"`}

func TestIDs_KeepValueAndType(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			for _, id := range ids {
				for method, p := range map[string]any{
					"session/prompt":     promptParams(s, "echo x"), // answered by the agent
					"session/list":       map[string]any{},          // answered by the gateway
					"_example.com/no_op": map[string]any{"sessionId": s},
				} {
					m := c.response(c.startID(json.RawMessage(id), method, p))
					if idKey(m.ID) != idKey(json.RawMessage(id)) {
						t.Errorf("%s with id %.40s was answered with id %.40s: %.200s", method, id, m.ID, m.raw)
					}
				}
			}
		})
	}
}

func TestIDs_SameOnTwoClients(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("one session %v", shared), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			var clients []*client
			var sessions []string
			for _, kind := range dialects {
				for range 2 {
					c := connect(t, g, kind, options{})
					switch {
					case !shared || len(clients) == 0:
						sessions = append(sessions, c.newSession())
					default:
						c.attach("session/resume", sessions[0], nil)
						sessions = append(sessions, sessions[0])
					}
					clients = append(clients, c)
				}
			}
			const rounds = 10
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					for round := range rounds {
						for _, id := range ids {
							word := fmt.Sprintf("client-%d-round-%d-id-%.12s", i, round, id)
							m := c.response(c.startID(json.RawMessage(id), "session/prompt", promptParams(sessions[i], "echo "+word)))
							if m.Error != nil || idKey(m.ID) != idKey(json.RawMessage(id)) {
								t.Errorf("%s client %d, id %.40s: %v %.300s", c.kind, i, id, m.Error, m.raw)
							}
						}
					}
				})
			}
			wg.Wait()
			for i, c := range clients {
				said := map[string]int{}
				c.until(func() bool {
					clear(said)
					for j := range c.inbox {
						if text, ok := c.inbox[j].chunk(sessions[i]); ok {
							said[strings.TrimSpace(text)]++
						}
					}
					return said[fmt.Sprintf("client-%d-round-%d-id-%.12s", i, rounds-1, ids[len(ids)-1])] > 0
				}, "the last echo")
				for round := range rounds {
					for _, id := range ids {
						word := fmt.Sprintf("client-%d-round-%d-id-%.12s", i, round, id)
						if said[word] != 1 {
							t.Fatalf("%s client %d saw its echo %q %d times", c.kind, i, word, said[word])
						}
					}
				}
			}
		})
	}
}

func TestPermission_SurvivesItsClient(t *testing.T) {
	for _, kind := range dialects {
		for _, method := range []string{"session/resume", "session/load"} {
			t.Run(string(kind)+" "+method, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t)
				asker := connect(t, g, kind, options{})
				s := asker.newSession()
				asker.start("session/prompt", promptParams(s, "permission"))
				asker.findMethod("session/request_permission")
				asker.abandon()

				first, second := connect(t, g, kind, options{}), connect(t, g, inline, options{})
				for _, c := range []*client{first, second} {
					c.attach(method, s, nil)
				}
				q1, q2 := first.findMethod("session/request_permission"), second.findMethod("session/request_permission")
				choice := q1.params().Options[0].OptionID
				first.answer(q1, selected(choice))
				cancelled := second.findMethod("$/cancel_request")
				if got := cancelled.params().RequestID; string(got) != string(q2.ID) {
					t.Errorf("$/cancel_request names %s, the request had id %s", got, q2.ID)
				}
				// Too late, and no harm.
				second.answer(q2, selected(q2.params().Options[len(q2.params().Options)-1].OptionID))

				first.find(0, "what was chosen", func(m *message) bool {
					text, _ := m.chunk(s)
					return strings.Contains(text, choice)
				})
				if r := first.prompt(s, "echo afterwards"); r != "end_turn" {
					t.Errorf("the next turn ended with %s", r)
				}
				if n := count(first, "session/request_permission"); n != 1 {
					t.Errorf("the client was asked %d times", n)
				}
				if n := count(first, "$/cancel_request"); n != 0 {
					t.Errorf("the client that answered got %d cancellations", n)
				}
				var list struct {
					Pending []json.RawMessage `json:"pending"`
				}
				if err := json.Unmarshal(first.must("_sandboxagent/session/pending", map[string]any{"sessionId": s}), &list); err != nil || len(list.Pending) > 0 {
					t.Errorf("open requests after the answer: %s, %v", list.Pending, err)
				}
			})
		}
	}
}

func selected(option string) map[string]any {
	return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": option}}
}

// count returns how many messages with the method have arrived.
func count(c *client, method string) int {
	n := 0
	for _, m := range c.messages() {
		if m.Method == method {
			n++
		}
	}
	return n
}

func TestPermission_CancelAnswersIt(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			turn := c.start("session/prompt", promptParams(s, "permission"))
			c.findMethod("session/request_permission")
			c.notify("session/cancel", map[string]any{"sessionId": s})
			r, err := c.wait(turn)
			if err != nil || stopReason(t, r) != "cancelled" {
				t.Errorf("the turn ended with %s, %v; want cancelled", r, err)
			}
			if count(c, "$/cancel_request") != 1 {
				t.Errorf("%d cancellations of the open request, want 1", count(c, "$/cancel_request"))
			}
		})
	}
}

func TestQuestion_IsAnswered(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{question: true})
			s := c.newSession()
			turn := c.start("session/prompt", promptParams(s, "question 2"))
			q := c.findMethod("_sandboxagent/session/request_question")
			var p struct {
				Questions []struct {
					Options []struct {
						Label string `json:"label"`
					} `json:"options"`
				} `json:"questions"`
			}
			if err := json.Unmarshal(q.Params, &p); err != nil || len(p.Questions) != 2 || len(p.Questions[1].Options) != 3 {
				t.Fatalf("the questions are %s, %v", q.Params, err)
			}
			c.answer(q, map[string]any{"outcome": "answered", "answers": [][]string{{"my own words"}, {"Apple", "Plum"}}})
			if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
				t.Errorf("the turn ended with %s, %v", r, err)
			}
			if got, want := said(c, s, 0), `answers: [["my own words"],["Apple","Plum"]]`; got != want {
				t.Errorf("the agent was told %q, want %q", got, want)
			}
		})
	}
}

// A client that does not know the extension is asked in a form that it knows.
func TestQuestion_AsPermission(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			turn := c.start("session/prompt", promptParams(s, "question"))
			q := c.findMethod("session/request_permission")
			c.answer(q, selected(q.params().Options[1].OptionID))
			if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
				t.Errorf("the turn ended with %s, %v", r, err)
			}
			if got, want := said(c, s, 0), `answers: [["Blue"]]`; got != want {
				t.Errorf("the agent was told %q, want %q", got, want)
			}
		})
	}
}
