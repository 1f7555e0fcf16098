package viewer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// other is a session beside the one of a test.
type other struct{ *plain }

func (other) ID() string { return "o" }

// Who waits for what a stream was handed goes on when the stream that has taken over has written it.
func TestAwaitEntry_TakenOver(t *testing.T) {
	for name, caps := range map[string]Capabilities{"1": {}, "2": {Version: version.Two}} {
		for _, replay := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replay %v", name, replay), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newPlain(t)
					s.log.Append(journal.Update, journal.Everyone, []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}`))
					if err := s.log.Flush(); err != nil {
						t.Fatal(err)
					}
					c := NewClient("c", 1, caps, acp.PerSession, nil, NewUnread(0))
					defer c.Close()
					after, last := s.log.Last(), s.log.Last()
					if replay {
						after = 0
					}
					c.Attach(s, after, last)
					st, err := c.Stream("s", nil)
					if err != nil {
						t.Fatal(err)
					}
					began, waits := time.Now(), make(chan time.Duration, 1)
					go func() {
						c.AwaitEntry(t.Context(), s, last, time.Minute)
						waits <- time.Since(began)
					}()
					if _, err := st.Poll(64 << 10); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // what was polled cannot be written
					none := uint64(0)
					next, err := c.Stream("s", &none)
					if err != nil {
						t.Fatal(err)
					}
					defer next.Close()
					st.Close()
					readAll(t, next)
					if took := <-waits; took != 0 {
						t.Errorf("it waited for %v", took)
					}
				})
			})
		}
	}
}

// A session that nobody reads is waited for no longer because the client reads others.
func TestAwaitEntry_OthersAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newPlain(t), other{newPlain(t)}
		c := NewClient("c", 1, Capabilities{}, acp.PerSession, nil, NewUnread(0))
		defer c.Close()
		c.Attach(s, 0, 0)
		c.Attach(o, 0, 0)
		for _, id := range []string{"s", "o"} {
			st, err := c.Stream(id, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if id == "o" {
				go func() {
					for {
						select {
						case <-st.Wake():
							_, _ = st.Poll(64 << 10)
							st.Written()
						case <-st.Done():
							return
						}
					}
				}()
			}
		}
		s.log.Append(journal.Update, journal.Everyone, []byte(`{}`))
		s.Flush()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began, waits := time.Now(), make(chan time.Duration, 1)
		go func() {
			c.AwaitEntry(ctx, s, s.log.Last(), time.Minute)
			waits <- time.Since(began)
			cancel()
		}()
		for ctx.Err() == nil {
			o.log.Append(journal.Update, journal.Everyone, []byte(`{}`))
			o.Flush()
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
		if took := <-waits; took != time.Minute {
			t.Errorf("it waited for %v", took)
		}
	})
}

// A session whose agent says more than the client can read does not keep the client from what others say.
func TestStream_OthersComeBesideMuch(t *testing.T) {
	s, o := newPlain(t), other{newPlain(t)}
	c := NewClient("c", 1, Capabilities{}, acp.OneStream, nil, NewUnread(0))
	defer c.Close()
	c.Attach(s, 0, 0)
	c.Attach(o, 0, 0)
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	say := func(p *plain) {
		p.log.Append(journal.Update, journal.Everyone, fmt.Appendf(nil, `{"x":"%01000d"}`, 0))
		p.Flush()
	}
	say(o.plain)
	c.Post(journal.Response, []byte(`{"own":true}`))
	for polls := 0; ; polls++ {
		for range 4 {
			say(s)
		}
		events, err := st.Poll(2 << 10)
		if err != nil {
			t.Fatal(err)
		}
		st.Written()
		if polls == 0 && string(events[0].Frame) != `{"own":true}` {
			t.Errorf("first came %s", events[0].Frame)
		}
		if c.Reached(o) > 0 {
			return
		}
		if polls > 3 {
			t.Fatal("the other session is not read")
		}
	}
}
