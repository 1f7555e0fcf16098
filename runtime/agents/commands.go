package agents

import (
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// maxStretches bounds the stretches of work that are remembered of a process; beyond it
// the two oldest become one, with what is between them.
const maxStretches = 64

// lookEvery is how often it is looked whether commands still run, and how much memory a
// process takes: it reads the list of the machine's processes.
const lookEvery = 10 * time.Second

// commands knows in which stretches of time an agent has worked. A command that was
// started in one of them and still runs was left running by that work. What was started
// at other times, when a session was opened, is the agent's own: servers of MCP, say. Its
// lock is the innermost.
type commands struct {
	mu        sync.Mutex
	stretches []stretch // the newest last
	working   int       // turns

	looked awake.Moment // when it was looked last; zero before
	left   bool         // what was seen then
	turns  uint64       // that have ended

	weighed awake.Moment // when memory was measured last; zero before
	rss     int64        // what it was then
}

// stretch is a time in which something was worked on, in the machine's time; its end is 0
// while it goes on.
type stretch struct{ from, to int64 }

// Working notes that the process begins to work on a turn. The function that is returned
// notes the end; it may be called more than once.
func (p *Process) Working() (done func()) {
	of, ok := p.conn.(adapters.Commander)
	if !ok {
		return func() {}
	}
	c, now := &p.commands, of.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working++; c.working == 1 {
		if len(c.stretches) == maxStretches {
			c.stretches[1].from = c.stretches[0].from
			c.stretches = append(c.stretches[:0], c.stretches[1:]...)
		}
		c.stretches = append(c.stretches, stretch{from: now})
	}
	return sync.OnceFunc(func() {
		now := of.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.working--; c.working == 0 {
			c.stretches[len(c.stretches)-1].to = now
		}
		c.looked = 0 // what it has left was not seen yet
		c.turns++
	})
}

// LeftRunning reports whether commands run that a turn has left running. It may read the
// list of the machine's processes.
func (p *Process) LeftRunning() bool {
	of, ok := p.conn.(adapters.Commander)
	if !ok {
		return false
	}
	c := &p.commands
	c.mu.Lock()
	if len(c.stretches) == 0 || c.looked != 0 && c.looked.Ago() < lookEvery {
		defer c.mu.Unlock()
		return c.left && len(c.stretches) > 0
	}
	turns := c.turns
	c.mu.Unlock()
	starts := of.Commands()
	c.mu.Lock()
	defer c.mu.Unlock()
	left := false
	for _, at := range starts {
		for _, s := range c.stretches {
			left = left || at >= s.from && (s.to == 0 || at <= s.to)
		}
	}
	if c.turns == turns { // else the next look says it
		c.looked, c.left = awake.Now(), left
	}
	return left
}

// RSS returns about how much memory of the process and of all below it is resident, 0 when
// that is unknown.
func (p *Process) RSS() int64 {
	os, ok := p.conn.(adapters.Process)
	if !ok {
		return 0
	}
	c := &p.commands
	c.mu.Lock()
	if c.weighed != 0 && c.weighed.Ago() < lookEvery {
		defer c.mu.Unlock()
		return c.rss
	}
	c.mu.Unlock()
	rss := os.RSS()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weighed, c.rss = awake.Now(), rss
	return rss
}
