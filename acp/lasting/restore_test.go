package lasting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// pair is a Conn with two connections, of which the first is up.
type pair struct {
	t        *testing.T
	c        *Conn
	one, two *wire
}

// withPair runs a test in which the client is attached to session s.
func withPair(t *testing.T, f func(t *testing.T, p pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		attached(t, p.c, p.one)
		f(t, p)
		_ = p.c.Close()
	})
}

// sends has the client send a message; the connection takes it later.
func (p pair) sends(f string, args ...any) {
	go write(p.t, p.c, acp.MustParse(fmt.Appendf(nil, f, args...)))
	synctest.Wait()
}

// breaks ends the first connection, and welcomes the client on the second.
func (p pair) breaks() {
	p.one.breakRead()
	p.one.breakWrite()
	p.two.welcome(p.t)
}

// got checks what the client is given next.
func (p pair) got(want string, args ...any) {
	p.t.Helper()
	if got := reads(p.t, p.c); got != fmt.Sprintf(want, args...) {
		p.t.Errorf("the client was given %s,\nwant %s", got, fmt.Sprintf(want, args...))
	}
}

// quiet checks that nothing goes either way.
func (p pair) quiet(w *wire) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	if m, err := p.c.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		p.t.Errorf("the client was given %s, %v", m.Frame(), err)
	}
	select {
	case m := <-w.toGateway:
		p.t.Errorf("the gateway was sent %s", m.Frame())
	default:
	}
}

const (
	update    = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":%d}}}}`
	turnEnded = `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"%s",%s"_meta":{"sandboxagent.dev":{"seq":%d}}}}`
	prompt    = `{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`
	canceled  = `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%v}}`
)

func after(m acp.Message) uint64 { n, _ := uintOf(m.Meta(), "after"); return n }

// Events come once, in whichever connection they are: the client is attached
// again right behind the last one it was given.
func TestRestore_EventsComeOnce(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		for _, seq := range []int{1, 2, 2, 1, 15} {
			p.one.says(update, seq)
		}
		p.got(update, 1)
		p.got(update, 2)
		p.got(update, 15)
		p.breaks()
		resume := p.two.takes(t, acp.MethodSessionResume)
		if after(resume) != 15 {
			t.Errorf("attached again by %s", resume.Frame())
		}
		p.two.says(update, 15)
		p.two.says(update, 16)
		p.two.toClient <- acp.NewResult(resume.ID(), []byte(`{}`))
		p.two.replies(t, "_sandboxagent/session/pending", `{"pending":[]}`)
		p.got(update, 16)
		p.quiet(p.two)
		// What has no number, and what is of no known session, passes.
		for _, other := range []string{`{"jsonrpc":"2.0","method":"x","params":{"sessionId":"s"}}`, strings.Replace(fmt.Sprintf(update, 1), `"s"`, `"other"`, 1)} {
			p.two.says("%s", other)
			p.got("%s", other)
		}
	})
}

// Each request that opens a session attaches to it again after a break, each
// that leaves it does not.
func TestRestore_WhatTheClientIsAttachedTo(t *testing.T) {
	const (
		fresh  = `{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":"/w","mcpServers":[],"additionalDirectories":["/x"],"other":1,"_meta":{"k":2}}}`
		load   = `{"jsonrpc":"2.0","id":9,"method":"session/load","params":{"sessionId":"n","cwd":"/w"}}`
		resume = `{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"sessionId":"n","cwd":"/w","_meta":{"sandboxagent.dev":{"after":4}}}}`
		result = `{"jsonrpc":"2.0","id":9,"result":{"sessionId":"n","_meta":{"sandboxagent.dev":{"seq":7}}}}`
		failed = `{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"no"}}`
	)
	leave := func(method, session string) string {
		return `{"jsonrpc":"2.0","id":9,"method":"` + method + `","params":{"sessionId":"` + session + `"}}`
	}
	const s = `{"sessionId":"s","cwd":"/","_meta":{"sandboxagent.dev":{"after":0}}}`
	for _, tt := range []struct {
		name, request, response string
		want                    []string // the params by which it attaches again
	}{
		{"new", fresh, result, []string{`{"sessionId":"n","cwd":"/w","mcpServers":[],"additionalDirectories":["/x"],"_meta":{"k":2,"sandboxagent.dev":{"after":0}}}`, s}},
		{"fork", strings.Replace(fresh, "session/new", "session/fork", 1), result, []string{`{"sessionId":"n","cwd":"/w","mcpServers":[],"additionalDirectories":["/x"],"_meta":{"k":2,"sandboxagent.dev":{"after":7}}}`, s}},
		{"new without an id", fresh, `{"jsonrpc":"2.0","id":9,"result":{}}`, []string{s}},
		{"new fails", fresh, failed, []string{s}},
		{"load", load, result, []string{`{"sessionId":"n","cwd":"/w","_meta":{"sandboxagent.dev":{"after":0}}}`, s}},
		{"load fails", load, failed, []string{s}},
		{"load of what is attached fails", strings.Replace(load, `"n"`, `"s"`, 1), failed, []string{`{"sessionId":"s","cwd":"/w","_meta":{"sandboxagent.dev":{"after":0}}}`}},
		{"resume", resume, result, []string{`{"sessionId":"n","cwd":"/w","_meta":{"sandboxagent.dev":{"after":7}}}`, s}},
		{"resume without a number", resume, `{"jsonrpc":"2.0","id":9,"result":{}}`, []string{`{"sessionId":"n","cwd":"/w","_meta":{"sandboxagent.dev":{"after":4}}}`, s}},
		{"another one is closed", leave("session/close", "n"), result, []string{s}},
		{"closed", leave("session/close", "s"), result, nil},
		{"deleted", leave("session/delete", "s"), result, nil},
		{"detached", leave("_sandboxagent/session/detach", "s"), result, nil},
		{"terminated", leave("_sandboxagent/session/terminate", "s"), result, nil},
		{"cannot be closed", leave("session/close", "s"), failed, []string{s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.sends("%s", tt.request)
				if m := <-p.one.toGateway; frame(m) != tt.request {
					t.Errorf("%s was sent", m.Frame())
				}
				p.one.says("%s", tt.response)
				p.got("%s", tt.response)
				p.breaks()
				for _, want := range tt.want {
					if m := p.two.reattached(t, "[]"); string(m.Params()) != want {
						t.Errorf("attached by %s, want %s", m.Params(), want)
					}
				}
				p.quiet(p.two)
			})
		})
	}
}

// An agent may say something of a new session, such as its commands, before the gateway has set
// what was asked for and answers. The answer counts that, and the client is shown it behind the answer.
func TestConn_ANewSessionsFirstEvents(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(`{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":"/"}}`)
		p.one.takes(t, acp.MethodSessionNew)
		const created = `{"jsonrpc":"2.0","id":9,"result":{"sessionId":"n","_meta":{"sandboxagent.dev":{"seq":2}}}}`
		p.one.says("%s", created)
		p.got("%s", created)
		for seq := 1; seq <= 3; seq++ {
			said := strings.Replace(fmt.Sprintf(update, seq), `"s"`, `"n"`, 1)
			p.one.says("%s", said)
			p.got("%s", said)
		}
	})
}

// The client loads what it has already: it wants to be given the past again, but
// no more of it than it asks for.
func TestRestore_LoadGivesThePastAgain(t *testing.T) {
	for _, tt := range []struct {
		meta  string
		given []int // of 1, 3, 5, 6
	}{
		{`{}`, []int{1, 3, 5, 6}}, {`{"sandboxagent.dev":{"after":3}}`, []int{5, 6}}, {`{"sandboxagent.dev":{"after":5}}`, []int{6}}, {`{"sandboxagent.dev":{"after":6}}`, nil},
	} {
		t.Run(tt.meta, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.one.says(update, 5)
				p.got(update, 5)
				p.sends(`{"jsonrpc":"2.0","id":9,"method":"session/load","params":{"sessionId":"s","cwd":"/","_meta":%s}}`, tt.meta)
				p.one.takes(t, acp.MethodSessionLoad)
				for _, seq := range []int{1, 3, 5, 6} {
					p.one.says(update, seq)
				}
				for _, seq := range tt.given {
					p.got(update, seq)
				}
				p.quiet(p.one)
				// The load was lost: the next one goes on behind the newest.
				p.breaks()
				load := p.two.takes(t, acp.MethodSessionLoad)
				if want := max(6, after(load)); after(load) != want {
					t.Errorf("it is loaded again by %s", load.Frame())
				}
			})
		})
	}
}

// A session/resume does not bring back what the client has.
func TestRestore_ResumeGivesNothingAgain(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.says(update, 5)
		p.got(update, 5)
		p.sends(`{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.replies(t, acp.MethodSessionResume, `{"_meta":{"sandboxagent.dev":{"seq":4}}}`)
		p.got(`{"jsonrpc":"2.0","id":9,"result":{"_meta":{"sandboxagent.dev":{"seq":4}}}}`)
		p.one.says(update, 5)
		p.quiet(p.one)
	})
}

// A session that cannot be attached to again takes its requests with it, and
// nothing else.
func TestRestore_ASessionIsGone(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.sends(`{"jsonrpc":"2.0","id":4,"method":"session/list","params":{}}`)
		p.one.takes(t, acp.MethodSessionList)
		p.one.breakRead()
		p.one.breakWrite()
		synctest.Wait()
		p.sends(`{"jsonrpc":"2.0","id":5,"method":"x/late","params":{"sessionId":"s"}}`)
		p.two.welcome(t)
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"gone"}}`, resume.ID())
		get := p.two.takes(t, "_sandboxagent/session/get") // how the prompt ended
		p.two.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"gone"}}`, get.ID())
		p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"gone","data":{"done":"unknown","type":"urn:sandbox-agent:error:not_found"}}}`)
		p.two.takes(t, acp.MethodSessionList)
		p.two.takes(t, "x/late")
		p.quiet(p.two)
		p.two.says(update, 0) // of a session that the client is not attached to
		p.got(update, 0)
	})
}

// A gateway that cannot say which requests are open withdraws none.
func TestRestore_WithoutAListOfOpenRequests(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.asks(7, 5)
		reads(t, p.c)
		p.breaks()
		p.two.replies(t, acp.MethodSessionResume, `{}`)
		m := p.two.takes(t, "_sandboxagent/session/pending")
		p.two.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID())
		p.quiet(p.two)
		p.sends(`{"jsonrpc":"2.0","method":"x"}`)
		p.two.takes(t, "x")
	})
}

// Requests of the agent that were settled during the break are withdrawn.
func TestRestore_RequestsThatAreNotOpenAnyMore(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		for seq := 5; seq <= 7; seq++ {
			p.one.asks(seq+100, seq)
			reads(t, p.c)
		}
		p.one.says(`{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":8}}}}`)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":107,"result":{}}`)
		p.one.takes(t, "")
		p.breaks()
		p.two.reattached(t, `[{"seq":6}]`)
		p.got(canceled, 105)
		p.quiet(p.two)
		// The answer to one that is settled goes nowhere, the others find their way.
		p.sends(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		p.two.says(`{"jsonrpc":"2.0","id":77,"method":"fs/read_text_file","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":8}}}}`)
		if m := p.two.takes(t, ""); frame(m) != `{"jsonrpc":"2.0","id":77,"result":{}}` {
			t.Errorf("%s", m.Frame())
		}
		p.quiet(p.two)
	})
}

// A request that comes while the Conn asks which are open is open, whether it is
// on the list or not.
func TestRestore_ARequestThatIsNotOnTheListYet(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.asks(7, 5)
		reads(t, p.c)
		p.breaks()
		p.two.replies(t, acp.MethodSessionResume, `{}`)
		list := p.two.takes(t, "_sandboxagent/session/pending")
		p.two.asks(8, 6)
		reads(t, p.c)
		p.two.says(canceled, 7) // it was not offered here
		p.got(canceled, 7)
		p.two.toClient <- acp.NewResult(list.ID(), []byte(`{"pending":[]}`))
		p.got(canceled, 7)
		p.quiet(p.two)
		p.sends(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		if m := p.two.takes(t, ""); frame(m) != `{"jsonrpc":"2.0","id":8,"result":{}}` {
			t.Errorf("%s", m.Frame())
		}
	})
}

// A gateway that was started anew counts from one again: a request whose number
// the client knows already is given another one, in both directions, and in the list of those that are open.
func TestRestore_NumbersOfRequestsComeAgain(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.asks(7, 5)
		reads(t, p.c)
		p.breaks()
		p.two.reattached(t, `[{"seq":5}]`)
		ids := map[string]bool{"7": true}
		var shown []string
		for seq := 6; seq <= 7; seq++ {
			p.two.asks(7, seq)
			m := acp.MustParse([]byte(reads(t, p.c)))
			if n, ok := m.ID().Int(); !ok || n < 1<<40 || ids[string(m.ID())] || m.Method() != acp.MethodSessionRequestPermission || m.Session() != "s" {
				t.Errorf("the client was given %s", m.Frame())
			}
			ids[string(m.ID())] = true
			shown = append(shown, string(m.ID()))
		}
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"_sandboxagent/session/pending","params":{"sessionId":"s"}}`)
		p.two.replies(t, methodPending, `{"pending":[{"requestId":7,"seq":6},{"requestId":7,"seq":9},{"requestId":8,"seq":10}]}`)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{"pending":[{"requestId":%s,"seq":6},{"seq":9},{"requestId":8,"seq":10}]}}`, shown[0])
		p.sends(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"no"}}`, shown[0])
		if m := p.two.takes(t, ""); frame(m) != `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}` {
			t.Errorf("%s", m.Frame())
		}
	})
}

// A withdrawal names the request as the client knows it, and is not given for
// what the client has answered.
func TestConn_Withdrawals(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.one.asks(7, 5)
		p.one.asks(8, 6)
		reads(t, p.c)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		p.one.takes(t, "")
		p.one.says(canceled, 8)
		p.quiet(p.one)
		p.one.says(canceled, 99)
		p.got(canceled, 99)
		p.breaks()
		p.two.asks(3, 5)
		p.two.reattached(t, `[{"seq":5}]`)
		p.two.says(canceled, 3)
		p.got(canceled, 7)
		p.two.says(canceled, 3) // it is settled: this is another one's
		p.got(canceled, 3)
		p.two.asks(4, 5) // nobody remembers it
		p.got(`{"jsonrpc":"2.0","id":4,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":5}}}}`)
	})
}

// Answers are kept in case they have not arrived: the newest ones, and those that
// are missing in any case.
func TestRestore_AnswersThatAreKept(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		const open = 3 // is never answered
		n := 10 + maxAnswered
		for seq := 10; seq < n+2; seq++ {
			p.one.asks(1000+seq, seq)
			reads(t, p.c)
			if seq == 10+open {
				continue
			}
			p.sends(`{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`, 1000+seq, seq)
			p.one.takes(t, "")
		}
		p.breaks()
		for _, seq := range []int{12, 10 + open, 10, 11} {
			p.two.asks(5000+seq, seq)
		}
		// There were two more than are kept: the two oldest are forgotten.
		for _, seq := range []int{10, 11} {
			p.got(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":%d}}}}`, 5000+seq, seq)
		}
		p.two.replies(t, acp.MethodSessionResume, `{}`)
		p.two.replies(t, "_sandboxagent/session/pending", `{"pending":[{"seq":10},{"seq":11},{"seq":12},{"seq":13}]}`)
		if m := p.two.takes(t, ""); frame(m) != `{"jsonrpc":"2.0","id":5012,"result":{"n":12}}` {
			t.Errorf("%s", m.Frame())
		}
		p.quiet(p.two)
	})
}

// A large request that breaks each connection is answered after some of them, and what is written
// later goes on. A small one is sent as often as there are connections.
func TestRestore_ARequestThatBreaksConnections(t *testing.T) {
	for name, bytes := range map[string]int{"large": 2 << 20, "small": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = mostSends + 2
				var wires []*wire
				for range n {
					wires = append(wires, newWire())
				}
				c := New(Options{Dial: dials(wires...)})
				begin(t, c, wires[0])
				go write(t, c, acp.NewRequest(acp.IntID(2), acp.MethodSessionNew, fmt.Appendf(nil, `{"cwd":%q}`, strings.Repeat("x", bytes))))
				for i, w := range wires {
					if i > 0 {
						w.welcome(t)
					}
					if i == mostSends && name == "large" {
						break
					}
					w.takes(t, acp.MethodSessionNew)
					if i < n-1 {
						w.breakRead()
						continue
					}
					w.says(`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`)
				}
				said := reads(t, c)
				if name == "small" {
					if !strings.Contains(said, `"sessionId":"s"`) {
						t.Error(said)
					}
				} else {
					if !strings.Contains(said, "payload_too_large") || !strings.Contains(said, "--max-body") || !strings.Contains(said, `"id":2`) {
						t.Error(said)
					}
					go write(t, c, acp.NewRequest(acp.IntID(3), acp.MethodSessionList, []byte(`{}`)))
					wires[mostSends].replies(t, acp.MethodSessionList, `{"sessions":[]}`)
					reads(t, c)
				}
				_ = c.Close()
			})
		})
	}
}

// A prompt that was sent behind a request to leave its session attaches to that anew: the next connection goes on with it.
func TestRestore_APromptBehindADetach(t *testing.T) {
	for _, two := range []bool{false, true} {
		with := withPair
		if two {
			with = withPairTwo
		}
		with(t, func(t *testing.T, p pair) {
			p.sends(`{"jsonrpc":"2.0","id":8,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
			p.sends(prompt)
			p.one.replies(t, "_sandboxagent/session/detach", `{}`)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
			p.one.says(update, 17)
			p.got(update, 17)
			p.one.breakRead()
			p.one.breakWrite()
			if two {
				p.two.welcomeTwo(t)
			} else {
				p.two.welcome(t)
			}
			if from := after(p.two.takes(t, acp.MethodSessionResume)); from == 0 {
				t.Error("it goes on from the beginning")
			}
		})
	}
}

// What an agent asks is asked anew behind a request to leave the session, where something that opens it again is behind that. What was asked
// before is taken back.
func TestAsk_OpenedAgainBehindADetach(t *testing.T) {
	for _, behind := range []string{prompt, `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`} {
		withPair(t, func(t *testing.T, p pair) {
			p.one.asks(7, 3)
			reads(t, p.c)
			p.sends(`{"jsonrpc":"2.0","id":8,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
			p.sends("%s", behind)
			p.one.replies(t, methodDetach, `{}`)
			p.got(canceled, 7)
			p.got(`{"jsonrpc":"2.0","id":8,"result":{}}`)
			p.one.asks(9, 3)
			synctest.Wait()
			select {
			case m := <-p.c.unread:
				if m.Method() != acp.MethodSessionRequestPermission {
					t.Errorf("the client was given %s", m.Frame())
				}
			default:
				t.Error("it was not asked again")
			}
		})
	}
}
