package viewer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// asking is a session whose agent has asked for a permission.
type asking struct {
	*plain
	ask  *Ask          // nil when none is open
	at   journal.Entry // where it is
	look func()        // called when somebody looks at what is beside the log
}

func (s *asking) Open(id int64) (*Ask, bool) { return s.ask, s.ask != nil && s.ask.ID == id }

func (s *asking) Join(f *Feed, after uint64) []uint64 {
	s.feed = f
	if s.ask != nil && s.at.Seq <= after {
		return []uint64{s.at.Seq}
	}
	return nil
}

func (s *asking) OpenAsk(seq uint64) (journal.Entry, bool) {
	return s.at, s.ask != nil && s.at.Seq == seq
}

func (s *asking) BesideLog() version.About {
	if s.look != nil {
		s.look()
	}
	return s.plain.BesideLog()
}

// newAsking returns a session that has said much, is which memory does not hold, and then asks.
func newAsking(t *testing.T) *asking {
	t.Helper()
	log, err := journal.Open(filepath.Join(t.TempDir(), "log"), journal.Options{Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	s := &asking{plain: &plain{log: log}}
	s.says(400 << 10)
	const params = `{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}`
	s.ask = &Ask{ID: 7, Session: "s", Method: acp.MethodSessionRequestPermission, Params: []byte(params)}
	frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, s.ask.Method, params)
	s.at = journal.NewEntry(log.Append(journal.Ask, journal.Everyone, frame), time.Time{}, journal.Ask, journal.Everyone, frame)
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *asking) says(size int) {
	s.log.Append(journal.Update, journal.Everyone, fmt.Appendf(nil,
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}}}`,
		bytes.Repeat([]byte("x"), size)))
}

// decide closes the request.
func (s *asking) decide(t *testing.T, to journal.Recipient) {
	t.Helper()
	s.ask = nil
	s.log.Append(journal.AskDone, to, []byte(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}`))
	if err := s.log.Flush(); err != nil {
		t.Fatal(err)
	}
}

// readAll polls until nothing more comes, and returns what came.
func readAll(t *testing.T, st acp.Stream) (frames []string) {
	t.Helper()
	for {
		events, err := st.Poll(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			frames = append(frames, string(e.Frame))
		}
		st.Written()
		select {
		case <-st.Wake():
		default:
			return frames
		}
	}
}

func count(frames []string, what string) (n int) {
	for _, f := range frames {
		if strings.Contains(f, what) {
			n++
		}
	}
	return n
}

// A request that was open when its client came is given to it, whatever happens to the stream that was about to.
func TestStream_OpenRequestSurvivesItsStream(t *testing.T) {
	for name, caps := range map[string]Capabilities{"1": {}, "1 with subagents": {subagents: true}, "2": {Version: version.Two}} {
		for _, happens := range []string{"no memory", "taken over", "taken over late"} {
			t.Run(name+", "+happens, func(t *testing.T) {
				s := newAsking(t)
				c := NewClient("c", 1, caps, acp.PerSession, s, NewUnread(0))
				defer c.Close()
				if !c.Attach(s, s.log.Last(), 0) {
					t.Fatal("the session is gone")
				}
				s.says(400 << 10) // more than is sent without asking for memory
				if err := s.log.Flush(); err != nil {
					t.Fatal(err)
				}
				st, err := c.Stream("s", nil)
				if err != nil {
					t.Fatal(err)
				}
				none := uint64(0)
				var next acp.Stream
				takeOver := func() {
					if next != nil {
						return
					}
					if next, err = c.Stream("s", &none); err != nil {
						t.Fatal(err)
					}
				}
				switch happens {
				case "no memory":
					st.Room(func(int) error { return problem.New(problem.TooManyRequests, "there is no room") })
				case "taken over":
					s.look = takeOver
				case "taken over late":
					st.Room(func(int) error { takeOver(); return nil })
				}
				if events, err := st.Poll(1 << 20); happens == "no memory" != (err != nil) {
					t.Errorf("%d events, %v", len(events), err)
				}
				s.look = nil
				takeOver() // what the stream before was handed is lost with its connection
				st.Close()
				defer next.Close()
				if got := readAll(t, next); count(got, `"id":7`) != 1 || count(got, "xxx") != 1 {
					t.Errorf("%d requests and %d updates came, of %d events", count(got, `"id":7`), count(got, "xxx"), len(got))
				}
			})
		}
	}
}

// A client that holds a request is told once that it is open no more, also when it opens the session anew, or leaves it,
// before it has read so. Who has answered it needs not be told.
func TestAttach_RequestIsOpenNoMore(t *testing.T) {
	for shape, key := range map[acp.Shape]string{acp.OneStream: "", acp.Inline: "", acp.PerSession: "s"} {
		for name, caps := range map[string]Capabilities{"1": {}, "1 with subagents": {subagents: true}, "2": {Version: version.Two}} {
			for event, do := range map[string]func(c *Client, s *asking){
				"nothing": func(*Client, *asking) {},
				"resume":  func(c *Client, s *asking) { c.Resume(s, s.log.Last()) },
				"load":    func(c *Client, s *asking) { c.Attach(s, 0, s.log.Last()) },
				"leave":   func(c *Client, s *asking) { c.Detach(s) },
			} {
				for _, own := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v, %s, %s, own %v", shape, name, event, own), func(t *testing.T) {
						if shape == acp.Inline && caps.Two() {
							return // there is no such client
						}
						s := newAsking(t)
						c := NewClient("c", 1, caps, shape, s, NewUnread(0))
						defer c.Close()
						if !c.Attach(s, s.log.Last(), 0) {
							t.Fatal("the session is gone")
						}
						streams := map[string]acp.Stream{"": nil, key: nil}
						for key := range streams {
							var err error
							if streams[key], err = c.Stream(key, nil); err != nil {
								t.Fatal(err)
							}
							defer streams[key].Close()
						}
						read := func() (frames []string) {
							for _, st := range streams {
								frames = append(frames, readAll(t, st)...)
							}
							return frames
						}
						if got := read(); count(got, `"id":7`) != 1 || !c.WasGiven(7) {
							t.Fatalf("the request came %d times", count(got, `"id":7`))
						}
						to, want := journal.Everyone, 1
						if own {
							to, want = journal.Except(c.Number()), 0
						}
						s.decide(t, to)
						do(c, s)
						if got := read(); count(got, "cancel_request") != want {
							t.Errorf("it was told %d times, want %d", count(got, "cancel_request"), want)
						}
						if c.WasGiven(7) {
							t.Error("the client holds it for ever")
						}
					})
				}
			}
		}
	}
}

// Two resumes of a client meet, and the agent asks something between the two: it is given the request.
func TestResume_TwoMeet(t *testing.T) {
	s := newAsking(t)
	s.ask = nil
	c := NewClient("c", 1, Capabilities{}, acp.OneStream, s, NewUnread(0))
	defer c.Close()
	before := s.log.Last() // of the first
	const params = `{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}`
	s.ask = &Ask{ID: 8, Session: "s", Method: acp.MethodSessionRequestPermission, Params: []byte(params)}
	frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":8,"method":%q,"params":%s}`, s.ask.Method, params)
	s.at = journal.NewEntry(s.log.Append(journal.Ask, journal.Everyone, frame), time.Time{}, journal.Ask, journal.Everyone, frame)
	_ = s.log.Flush()
	c.Resume(s, s.log.Last()) // the second
	c.Resume(s, before)       // the first
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if got := readAll(t, st); count(got, `"id":8`) != 1 {
		t.Errorf("the request came %d times", count(got, `"id":8`))
	}
}
