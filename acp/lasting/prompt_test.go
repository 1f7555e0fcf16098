package lasting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// A prompt is given a name, by which it is found again, unless the client named
// it.
func TestPrompt_HasAName(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		if m := p.one.takes(t, acp.MethodSessionPrompt); frame(m) != prompt {
			t.Errorf("%s was sent", m.Frame())
		}
		names := map[string]bool{"": true}
		for id := 4; id <= 5; id++ {
			p.sends(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, id)
			m := p.one.takes(t, acp.MethodSessionPrompt)
			name := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
			if names[name] || string(m.ID()) != fmt.Sprint(id) || !strings.Contains(frame(m), `"sessionId":"s","prompt":[],"_meta":{`) {
				t.Errorf("%s was sent", m.Frame())
			}
			names[name] = true
		}
	})
}

// The end of a turn is the response of the client's prompt. It is given to the
// client as it is if the client asked for that, and the prompt is another one's.
func TestPrompt_EndOfATurn(t *testing.T) {
	mine := fmt.Sprintf(turnEnded, "mine", `"result":{"stopReason":"end_turn"},`, 5)
	failed := fmt.Sprintf(turnEnded, "mine", `"error":{"code":7,"message":"m"},`, 5)
	neither := fmt.Sprintf(turnEnded, "mine", ``, 5)
	other := fmt.Sprintf(turnEnded, "other", `"result":{},`, 5)
	nameless := fmt.Sprintf(turnEnded, "", `"result":{},`, 5)
	for _, tt := range []struct{ name, event, quiet, loud string }{
		{"result", mine, `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`, `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`},
		{"error", failed, `{"jsonrpc":"2.0","id":3,"error":{"code":7,"message":"m"}}`, `{"jsonrpc":"2.0","id":3,"error":{"code":7,"message":"m"}}`},
		{"neither", neither, `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the turn ended without a result","data":{"type":"urn:sandbox-agent:error:internal"}}}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the turn ended without a result","data":{"type":"urn:sandbox-agent:error:internal"}}}`},
		{"of another prompt", other, "", other},
		{"of no prompt", nameless, "", nameless},
	} {
		for _, turns := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, wanted %v", tt.name, turns), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := pair{t: t, one: newWire(), two: newWire()}
					p.c = New(Options{Dial: dials(p.one, p.two)})
					go write(t, p.c, acp.NewRequest(acp.IntID(1), "initialize", fmt.Appendf(nil, `{"clientCapabilities":{"_meta":{"sandboxagent.dev":{"turns":%v}}}}`, turns)))
					hello := <-p.one.toGateway
					if want := `{"clientCapabilities":{"_meta":{"sandboxagent.dev":{"turns":true,"eventIds":true}}}}`; string(hello.Params()) != want {
						t.Errorf("initialize has %s, want %s", hello.Params(), want)
					}
					p.one.toClient <- acp.NewResult(hello.ID(), []byte(`{}`))
					reads(t, p.c)
					p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}`)
					p.one.replies(t, acp.MethodSessionLoad, `{}`)
					reads(t, p.c)
					p.sends(`{"jsonrpc":"2.0","id":8,"method":"x","params":{"sessionId":"s"}}`) // has no name
					p.one.takes(t, "x")
					p.sends(prompt)
					p.one.takes(t, acp.MethodSessionPrompt)
					p.one.says("%s", tt.event)
					want := tt.quiet
					if turns {
						want = tt.loud
					}
					if want != "" {
						p.got("%s", want)
					}
					p.one.says("%s", tt.event) // it comes once
					p.quiet(p.one)
					if strings.Contains(want, `"id":3`) { // as does the response itself
						p.one.says(`{"jsonrpc":"2.0","id":3,"result":{}}`)
						p.quiet(p.one)
					}
					_ = p.c.Close()
				})
			})
		}
	}
}

// What became of a prompt whose connection broke.
func TestPrompt_IsFoundAgain(t *testing.T) {
	const (
		came   = `{"seq":16,"message":{"method":"session/prompt","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}`
		others = `{"seq":17,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"other"}}}}},{"seq":18,"message":{"method":"_sandboxagent/session/turn_ended","params":{"promptId":"other","result":{"no":1}}}},{"seq":19,"message":{"method":"session/update","params":{"promptId":"mine","_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}`
		ended  = `{"seq":22,"message":{"method":"_sandboxagent/session/turn_ended","params":{"promptId":"mine","result":{"stopReason":"end_turn"}}}}`
		page   = `{"events":[%s],"hasMore":%v}`
	)
	no := func(of string) []string { return []string{of, `!{"code":9,"message":"no"}`} }
	for _, tt := range []struct {
		name  string
		said  int      // the newest event that the client is given on the second connection
		info  string   // answer to session/get; ! begins an error
		pages []string // answers to session/events
		after []int    // where they begin
		sent  bool     // the prompt is sent again
		want  string   // what the client is given in the end, "" for nothing
		again string   // answer to session/get when that is asked once more, and the events with it; "" when it is not
	}{
		{"never arrived", 0, `{"state":"idle"}`, []string{fmt.Sprintf(page, others, false)}, []int{15}, true, "", ""},
		{"runs", 0, `{"state":"running"}`, []string{fmt.Sprintf(page, others+","+came, false)}, []int{15}, false, "", ""},
		{"was interrupted, and another one runs", 0, `{"state":"running"}`, []string{fmt.Sprintf(page, came+","+others, false)}, []int{15}, false, `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the turn was interrupted: the gateway was started anew","data":{"type":"urn:sandbox-agent:error:internal"}}}`, ""},
		{"waits for an answer", 0, `{"state":"waiting"}`, []string{fmt.Sprintf(page, came, false)}, []int{15}, false, "", ""},
		{"was interrupted", 0, `{"state":"idle"}`, []string{fmt.Sprintf(page, came, false)}, []int{15}, false, `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the turn was interrupted: the gateway was started anew","data":{"type":"urn:sandbox-agent:error:internal"}}}`, `{"state":"idle"}`},
		{"comes on the connection before just now", 0, `{"state":"idle"}`, []string{fmt.Sprintf(page, came, false)}, []int{15}, false, "", `{"state":"running"}`},
		{"ended, and the client has all", 22, `{"state":"idle"}`, []string{fmt.Sprintf(page, came+","+others+","+ended, false)}, []int{15}, false, `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`, ""},
		{"ended, and more comes", 21, `{"state":"idle"}`, []string{fmt.Sprintf(page, came+","+ended, false)}, []int{15}, false, "", ""},
		{"on several pages", 23, `{"state":"idle"}`, []string{fmt.Sprintf(page, came, true), fmt.Sprintf(page, others, true), fmt.Sprintf(page, ended, true)}, []int{15, 16, 19}, false, `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`, ""},
		{"the session is gone", 0, no("")[1], nil, nil, false, `{"jsonrpc":"2.0","id":3,"error":{"code":9,"message":"no"}}`, ""},
		{"the events are gone", 0, `{"state":"idle"}`, no("")[1:], []int{15}, false, `{"jsonrpc":"2.0","id":3,"error":{"code":9,"message":"no"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				p.one.says(update, 15)
				p.got(update, 15)
				p.sends(prompt)
				p.one.takes(t, acp.MethodSessionPrompt)
				p.breaks()
				resume := p.two.takes(t, acp.MethodSessionResume)
				if tt.said > 0 {
					p.two.says(update, tt.said)
					p.got(update, tt.said)
				}
				p.two.toClient <- acp.NewResult(resume.ID(), []byte(`{}`))
				p.two.replies(t, "_sandboxagent/session/pending", `{"pending":[]}`)
				reply := func(method, answer string) acp.Message {
					m := p.two.takes(t, method)
					if failure, ok := strings.CutPrefix(answer, "!"); ok {
						p.two.says(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID(), failure)
					} else {
						p.two.toClient <- acp.NewResult(m.ID(), []byte(answer))
					}
					return m
				}
				for _, state := range slices.DeleteFunc([]string{tt.info, tt.again}, func(state string) bool { return state == "" }) {
					reply("_sandboxagent/session/get", state)
					for i, answer := range tt.pages {
						m := reply("_sandboxagent/session/events", answer)
						if want := fmt.Sprintf(`{"sessionId":"s","after":%d}`, tt.after[i]); string(m.Params()) != want {
							t.Errorf("events were asked for by %s, want %s", m.Params(), want)
						}
					}
				}
				if tt.sent {
					if m := p.two.takes(t, acp.MethodSessionPrompt); frame(m) != prompt {
						t.Errorf("%s was sent", m.Frame())
					}
				}
				if tt.want != "" {
					p.got("%s", tt.want)
				}
				p.quiet(p.two)
				p.two.says(`{"jsonrpc":"2.0","id":3,"result":{"late":1}}`)
				if tt.want != "" {
					p.quiet(p.two) // it has its response
				} else {
					p.got(`{"jsonrpc":"2.0","id":3,"result":{"late":1}}`)
				}
			})
		})
	}
}

// A connection that breaks again while it is prepared is replaced by a third,
// which begins from the beginning, whatever was asked when it broke.
func TestRestore_BreaksAgain(t *testing.T) {
	steps := []string{acp.MethodSessionResume, "_sandboxagent/session/pending", "_sandboxagent/session/get", "_sandboxagent/session/events", acp.MethodSessionPrompt}
	answers := []string{`{}`, `{"pending":[]}`, `{"state":"idle"}`, `{"events":[],"hasMore":false}`, `{"stopReason":"end_turn"}`}
	for _, how := range []string{"unanswered", "not sent"} {
		for last := range steps {
			t.Run(how+" "+steps[last], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					one, two, three := newWire(), newWire(), newWire()
					p := pair{t: t, c: New(Options{Dial: dials(one, two, three)}), one: one, two: two}
					attached(t, p.c, one)
					p.sends(prompt)
					one.takes(t, acp.MethodSessionPrompt)
					p.breaks()
					for i := range last {
						two.replies(t, steps[i], answers[i])
					}
					if how == "unanswered" {
						two.takes(t, steps[last])
					}
					two.breakWrite()
					two.breakRead()
					three.welcome(t)
					for i := range steps {
						three.replies(t, steps[i], answers[i])
					}
					p.got(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
					p.quiet(three)
					_ = p.c.Close()
				})
			})
		}
	}
}

// What was answered or may not be repeated is not sent again, in the order in
// which it was written.
func TestRestore_OtherRequests(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		for id, method := range []string{10: "session/list", 11: "x/do", 12: "session/set_mode", 13: "session/list"} {
			if method != "" {
				p.sends(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"n":%d}}`, id, method, id)
				p.one.takes(t, method)
			}
		}
		p.one.says(`{"jsonrpc":"2.0","id":13,"result":{}}`)
		p.got(`{"jsonrpc":"2.0","id":13,"result":{}}`)
		p.breaks()
		p.two.reattached(t, "[]")
		for _, want := range []string{`{"jsonrpc":"2.0","id":10,"method":"session/list","params":{"n":10}}`, `{"jsonrpc":"2.0","id":12,"method":"session/set_mode","params":{"n":12}}`} {
			if m := <-p.two.toGateway; frame(m) != want {
				t.Errorf("%s was sent, want %s", m.Frame(), want)
			}
		}
		p.got(`{"jsonrpc":"2.0","id":11,"error":{"code":-32603,"message":"the connection to the gateway broke while x/do was carried out: it may have been, or not","data":{"type":"urn:sandbox-agent:error:internal"}}}`)
		p.quiet(p.two)
		p.two.says(`{"jsonrpc":"2.0","id":11,"result":{}}`)
		p.quiet(p.two)
	})
}

// A request that is answered while the new connection is prepared is left alone.
func TestRestore_AnsweredMeanwhile(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		resume := p.two.takes(t, acp.MethodSessionResume)
		p.two.says(turnEnded, "mine", `"result":{},`, 9)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		p.two.toClient <- acp.NewResult(resume.ID(), []byte(`{}`))
		p.two.replies(t, "_sandboxagent/session/pending", `{"pending":[]}`)
		p.quiet(p.two)
	})
}

// The first answer may take its time, and the gateway tells how it goes on. What
// the answers of later connections are is no news.
func TestConn_WhatComesBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		p := pair{t: t, c: New(Options{Dial: dials(one, two)}), one: one, two: two}
		write(t, p.c, hello)
		one.takes(t, "initialize")
		one.says(`{"jsonrpc":"2.0","method":"progress"}`)
		p.got(`{"jsonrpc":"2.0","method":"progress"}`)
		one.says(`{"jsonrpc":"2.0","id":99,"result":{}}`) // to nobody
		p.got(`{"jsonrpc":"2.0","id":99,"result":{}}`)
		one.says(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)
		p.got(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)
		one.breakRead()
		two.takes(t, "initialize")
		two.says(`{"jsonrpc":"2.0","method":"progress"}`)
		two.says(`{"jsonrpc":"2.0","id":99,"result":{}}`)
		two.says(`{"jsonrpc":"2.0","id":1,"result":{"a":2}}`)
		p.quiet(two)
		p.sends(`{"jsonrpc":"2.0","method":"x"}`)
		two.takes(t, "x")
		_ = p.c.Close()
	})
}

// The client is told when there is no gateway at all, and that is tried once.
func TestConn_NobodyIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Dial: dials()})
		began := time.Now()
		write(t, c, hello)
		frames, err := everything(c)
		if len(frames) != 1 || frames[0] != `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"nobody is there","data":{"type":"urn:sandbox-agent:error:internal"}}}` || err == nil || time.Since(began) > 0 {
			t.Errorf("%q, %v after %v", frames, err, time.Since(began))
		}
		_ = c.Close()
	})
}

// Without a limit of its own a gateway is looked for for ten minutes, and each
// attempt is limited.
func TestConn_LimitsOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, silent := newWire(), newWire()
		dial, dialed := dials(one, silent), 0
		c := New(Options{Dial: func(ctx context.Context) (acp.Conn, error) {
			if dialed++; dialed == 2 {
				if until, ok := ctx.Deadline(); !ok || time.Until(until) != dialBound {
					t.Errorf("an attempt is limited to %v", time.Until(until))
				}
			}
			return dial(ctx)
		}})
		begin(t, c, one)
		one.breakRead()
		<-silent.toGateway // and never answers
		began := time.Now()
		_, err := c.Read(t.Context())
		if took := time.Since(began); !errors.Is(err, errGivenUp) || took > standardGiveUp || took < standardGiveUp-longestPause {
			t.Errorf("%v after %v", err, took)
		}
		if dialed < 30 { // in the time that the silent one leaves
			t.Errorf("the gateway was tried %d times", dialed)
		}
		_ = c.Close()
	})
}

// The time in which this program could not look for the gateway, as that of a night in which
// the machine was suspended, is no reason to give up.
func TestConn_SleepDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		dial := dials(one, two)
		var lost time.Time
		c := New(Options{Dial: func(ctx context.Context) (acp.Conn, error) {
			if !lost.IsZero() && time.Since(lost) < 2*standardGiveUp {
				return nil, errors.New("nobody is there")
			}
			return dial(ctx)
		}})
		c.now = func() awake.Moment { return 0 }
		begin(t, c, one)
		lost = time.Now()
		one.breakRead()
		two.welcome(t)
		go write(t, c, acp.NewRequest(acp.IntID(2), acp.MethodSessionList, []byte(`{}`)))
		two.replies(t, acp.MethodSessionList, `{"sessions":[]}`)
		if said := reads(t, c); !strings.Contains(said, `"sessions":[]`) {
			t.Error(said)
		}
		_ = c.Close()
	})
}

// damaged is a connection that cannot parse a frame now and then.
type damaged struct {
	*wire
	bad chan struct{}
}

func (d damaged) Read(ctx context.Context) (acp.Message, error) {
	select {
	case <-d.bad:
		return acp.Message{}, &acp.ParseError{Reason: "bad"}
	default:
	}
	return d.wire.Read(ctx)
}

// A frame that cannot be parsed ends nothing.
func TestConn_AFrameThatCannotBeParsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := damaged{newWire(), make(chan struct{}, 1)}
		p := pair{t: t, c: New(Options{Dial: func(context.Context) (acp.Conn, error) { return d, nil }}), one: d.wire}
		begin(t, p.c, d.wire)
		d.bad <- struct{}{}
		d.says(`{"jsonrpc":"2.0","method":"a"}`)
		p.got(`{"jsonrpc":"2.0","method":"a"}`)
		d.says(`{"jsonrpc":"2.0","method":"b"}`)
		p.got(`{"jsonrpc":"2.0","method":"b"}`)
		_ = p.c.Close()
	})
}

// Behind a prompt that is given up a cancel would end another client's turn.
func TestPrompt_CancelOfOneThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wires []*wire
		for range mostSends + 1 {
			wires = append(wires, newWire())
		}
		p := pair{t: t, c: New(Options{Dial: dials(wires...)})}
		attached(t, p.c, wires[0])
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","text":%q}}`, strings.Repeat("x", largeRequest))
		wires[0].takes(t, acp.MethodSessionPrompt)
		p.sends(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		wires[0].takes(t, acp.MethodSessionCancel)
		for i, w := range wires[1:] {
			wires[i].breakRead()
			wires[i].breakWrite()
			w.welcome(t)
			w.reattached(t, `[]`)
			w.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
			w.replies(t, "_sandboxagent/session/events", `{"events":[],"hasMore":false}`)
			if i+1 < mostSends {
				w.takes(t, acp.MethodSessionPrompt)
				w.takes(t, acp.MethodSessionCancel)
			}
		}
		if said := reads(t, p.c); !strings.Contains(said, "payload_too_large") {
			t.Error(said)
		}
		p.quiet(wires[mostSends])
		_ = p.c.Close()
	})
}

// A cancel of one prompt alone, which may be lost with its connection, is sent again behind that prompt, whatever was sent behind it, and
// names what of its session goes on.
func TestPrompt_CancelledAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		p := pair{t: t, c: New(Options{Dial: dials(one, two)}), one: one}
		attached(t, p.c, one)
		for i, name := range []string{"first", "mine", "its", "behind"} {
			p.sends(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":%q}}}}`, i+3, name)
			one.takes(t, acp.MethodSessionPrompt)
			if name == "its" {
				cancel := acp.CancelOf("s", []string{"mine", "its", "unknown"})
				p.sends("%s", cancel.Frame())
				one.takes(t, acp.MethodSessionCancel)
			}
		}
		one.breakRead()
		one.breakWrite()
		two.welcome(t)
		two.reattached(t, `[]`)
		for i := range 4 {
			two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
			two.replies(t, "_sandboxagent/session/events", []string{
				`{"events":[{"seq":5,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"first"}}}}}],"hasMore":false}`,
				`{"events":[],"hasMore":false}`,
				`{"events":[{"seq":6,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"its","result":{"stopReason":"cancelled"},"began":false}}}],"hasMore":false}`,
				`{"events":[],"hasMore":false}`,
			}[i])
			if i == 1 || i == 3 { // they are nowhere
				two.takes(t, acp.MethodSessionPrompt)
			}
		}
		cancel := two.takes(t, acp.MethodSessionCancel)
		if ids, named := acp.PromptIDs(&cancel); !named || fmt.Sprint(ids) != "[mine]" {
			t.Errorf("the cancel is %s", cancel.Frame())
		}
		_ = p.c.Close()
	})
}
