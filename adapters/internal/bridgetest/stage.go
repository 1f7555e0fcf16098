package bridgetest

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

var (
	playFrom  = flag.Uint64("play.from", 0, "the first sequence that is played")
	playCount = flag.Int("play.count", 0, "how many are; 0 for those that always are")
)

// shortenFor bounds the time for which a sequence that fails is shortened.
const shortenFor = 30 * time.Second

// Script is how plays of one kind go.
type Script struct {
	// Begin begins a play: it returns what may happen in it, and what brings everything
	// to its end.
	Begin func(p *Play, seed uint64) (events []PlayEvent, finish func(rng *rand.Rand))
	// Show plays a native process.
	Show func(p *Play, puppet *Puppet) Show
	// Open opens a connection.
	Open func() (acp.Conn, error)
	// Length is how many events happen.
	Length int
}

// Stage is where plays are played, one after another.
type Stage struct {
	Script

	mu  sync.Mutex
	now *Play
}

// NewStage returns a stage, and the address of its puppets for [PuppetVar].
func NewStage(t *testing.T, s Script) (stage *Stage, addr string) {
	stage = &Stage{Script: s}
	addr = Puppets(t, func(p *Puppet) Show {
		stage.mu.Lock()
		now := stage.now
		stage.mu.Unlock()
		return s.Show(now, p)
	})
	return stage, addr
}

// Game is a play of one agent, whose puppets are this program.
type Game struct {
	Events []PlayEvent
	Show   func(puppet *Puppet) Show
	Opened func(s *PlaySession)
	Finish func() bool // see [Play.Finish]
}

// Stage returns a stage on which the bridge of the world is played, with puppets in place of its agent.
func (w *World) Stage(begin func(p *Play, seed uint64) Game) *Stage {
	w.T.Helper()
	var now Game
	stage, addr := NewStage(w.T, Script{
		Length: 24,
		Open:   func() (acp.Conn, error) { return w.Adapter().Open(w.T.Context(), adapters.Options{StateDir: w.State}) },
		Show:   func(_ *Play, puppet *Puppet) Show { return now.Show(puppet) },
		Begin: func(p *Play, seed uint64) ([]PlayEvent, func(rng *rand.Rand)) {
			now = begin(p, seed)
			p.Cwd, p.Opened = w.Cwd, now.Opened
			return now.Events, func(rng *rand.Rand) { p.Finish(rng, now.Finish) }
		},
	})
	w.Env = append(w.Env, PuppetVar+"="+addr)
	return stage
}

// chosen is an event of a play: its name, and what it makes its choices by.
type chosen struct {
	Name string
	seed uint64
}

// play plays the events of a seed, or those of a cut.
func (g *Stage) play(seed uint64, cut []chosen, steady bool) (played []chosen, p *Play) {
	p = &Play{Steady: steady, open: g.Open, woken: make(chan struct{}), requests: map[acp.ID]*playRequest{}, notices: map[string]bool{}}
	g.mu.Lock()
	g.now = p
	events, finish := g.Begin(p, seed) // before a process is shown in it
	g.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 1))
	sum := 0
	for _, e := range events {
		sum += e.Weight
	}
	for i := 0; (cut == nil && i < g.Length || i < len(cut)) && !p.Failed(); i++ {
		var e PlayEvent
		var c chosen
		if cut != nil {
			c = cut[i]
			e = events[slices.IndexFunc(events, func(e PlayEvent) bool { return e.Name == c.Name })]
		} else {
			n := rng.IntN(sum)
			for _, e = range events {
				if n -= e.Weight; n < 0 {
					break
				}
			}
			c = chosen{e.Name, rng.Uint64()}
		}
		played = append(played, c)
		p.Mu.Lock()
		p.Note("-- %s", c.Name)
		p.Mu.Unlock()
		e.Do(rand.New(rand.NewPCG(c.seed, 3)))
	}
	p.Mu.Lock()
	p.Note("-- the end")
	p.Mu.Unlock()
	if !p.Failed() {
		finish(rand.New(rand.NewPCG(seed, 4)))
	}
	p.Disconnect()
	return played, p
}

// Play plays n sequences. One that fails is shortened to the events that make it fail.
func (g *Stage) Play(t *testing.T, n int) {
	t.Helper()
	from := *playFrom
	n = agentcache.Sequences(n)
	if *playCount > 0 {
		n = *playCount
	}
	for seed := from; seed < from+uint64(n); seed++ {
		played, p := g.play(seed, nil, false)
		if !p.Failed() {
			continue
		}
		if shorter, q := g.shorten(seed, played); q != nil {
			played, p = shorter, q
		}
		t.Fatalf("seed %d: %s\n%s\n%s", seed, names(played), strings.Join(p.wrong, "\n"), strings.Join(p.log, "\n"))
	}
}

// PlayAgain plays a sequence that failed once, some times: what it needs may be rare. Before
// it a session is opened.
func (g *Stage) PlayAgain(t *testing.T, seed uint64, times int, events ...string) {
	t.Helper()
	for n := range times {
		list := []chosen{{"new", 0}}
		for i, name := range events {
			list = append(list, chosen{name, uint64(n*len(events) + i)})
		}
		if _, p := g.play(seed, list, n%2 == 0); p.Failed() {
			t.Fatalf("%s\n%s\n%s", names(list), strings.Join(p.wrong, "\n"), strings.Join(p.log, "\n"))
		}
	}
}

func names(list []chosen) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// shorten leaves out events without which the play fails, too. What happens by chance is
// tried some times.
func (g *Stage) shorten(seed uint64, played []chosen) (short []chosen, p *Play) {
	until := time.Now().Add(shortenFor)
	for i := len(played) - 1; i >= 0 && time.Now().Before(until); i-- {
		less := slices.Delete(slices.Clone(played), i, i+1)
		for range 2 {
			if _, q := g.play(seed, less, false); q.Failed() {
				played, p = less, q
				break
			}
		}
	}
	return played, p
}
