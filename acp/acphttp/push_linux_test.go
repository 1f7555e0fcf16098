package acphttp

import (
	"errors"
	"net"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// smallStream has something small to be written.
type smallStream struct {
	*fakeStream
	events  []acp.Event
	more    bool
	err     error
	spoilt  bool
	push    func() bool
	written int
}

func (s *smallStream) Push(push func() bool) { s.push = push }
func (s *smallStream) Written()              { s.written++ }

func (s *smallStream) PollSmall(int) ([]acp.Event, bool, error) {
	if s.spoilt {
		panic("spoilt")
	}
	return s.events, s.more, s.err
}

// Who makes an event writes it where that does not wait, and leaves all else to the pump, trouble
// included: it must not be held up, nor ended.
func TestPush(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		before func(p *pushed, s *smallStream)
		wrote  int
		all    bool
		lost   bool
		err    string
	}{
		"what there is":    {func(*pushed, *smallStream) {}, 1, true, false, ""},
		"nothing":          {func(_ *pushed, s *smallStream) { s.events = nil }, 0, true, false, ""},
		"there is more":    {func(_ *pushed, s *smallStream) { s.more = true }, 1, false, false, ""},
		"the pump is over": {func(p *pushed, _ *smallStream) { p.end() }, 0, false, false, ""},
		"the pump is at it": {func(p *pushed, _ *smallStream) {
			p.mu.Lock()
			t.Cleanup(p.mu.Unlock)
		}, 0, false, false, ""},
		"no reading": {func(_ *pushed, s *smallStream) { s.err = refused }, 0, false, false, "refused"},
		"no writing": {func(p *pushed, _ *smallStream) {
			p.write = func([]acp.Event) error { return refused }
		}, 0, false, true, ""},
		"a panic": {func(_ *pushed, s *smallStream) { s.spoilt = true }, 0, false, false, "spoilt"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			st := &smallStream{fakeStream: newFakeClient().stream, events: []acp.Event{{ID: 1, Frame: []byte(`{}`)}}}
			wrote := 0
			p := own(st, conn, func(events []acp.Event) error { wrote += len(events); return nil })
			test.before(p, st)
			for range 2 { // trouble is not tried again
				wrote = 0
				if all := st.push(); all != test.all || wrote != test.wrote {
					t.Errorf("pushed %d events, all %v; want %d, %v", wrote, all, test.wrote, test.all)
				}
			}
			if name == "the pump is at it" {
				return
			}
			lost, err := p.next()
			if (lost != nil) != test.lost || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("the pump is told %v, %v", lost, err)
			}
			if want := test.wrote*2 + 1; test.all && st.written < want {
				t.Errorf("%d times it was written, want %d", st.written, want)
			}
		})
	}
	st := &smallStream{fakeStream: newFakeClient().stream}
	own(st, nil, nil)
	if st.push != nil {
		t.Error("what cannot be asked whether it takes something is pushed to")
	}
}
