package lasting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A break is told of once, however often a connection is tried, and its end says for how long
// there was none and what became of turns.
func TestConn_SaysHowTheConnectionIs(t *testing.T) {
	for turn, on := range map[string]bool{"running": true, "idle": false} {
		withPair(t, func(t *testing.T, p pair) {
			told := make(chan Link, 8)
			p.c.o.Changed = func(l Link) { told <- l }
			broken := newWire()
			p.c.o.Dial = dials(broken, p.two)
			p.one.breakRead()
			p.one.breakWrite()
			if l := <-told; l.Lost == nil || time.Since(l.Since) != 0 {
				t.Errorf("the break was told of as %+v", l)
			}
			broken.welcome(t)
			time.Sleep(3 * time.Second) // of the test's own clock
			broken.breakRead()
			broken.breakWrite()
			p.two.welcome(t)
			m := p.two.takes(t, acp.MethodSessionResume)
			p.two.toClient <- acp.NewResult(m.ID(), []byte(`{"_meta":{"sandboxagent.dev":{"turn":"`+turn+`"}}}`))
			p.two.replies(t, "_sandboxagent/session/pending", `{"pending":[]}`)
			l := <-told
			if diff := cmp.Diff(map[string]bool{"s": on}, l.Turns); diff != "" || l.Lost != nil || l.For < 3*time.Second {
				t.Errorf("the end of the break was told of as %+v\n%s", l, diff)
			}
			if len(told) > 0 {
				t.Errorf("there is more: %+v", <-told)
			}
		})
	}
}
