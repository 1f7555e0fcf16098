package codex

import (
	"strings"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// What codex says about a thread while it is opened is bounded. Beyond maxHeld pieces of texts and of outputs are not kept: more of
// them comes with the end of what they are of. Beyond maxEvents nothing is kept but turns, and the ends of what is held; questions are
// refused. The client is told that some is missing.
const (
	maxHeld   = 4096
	maxEvents = 4 * maxHeld
)

// opening is a thread that is being opened again. Codex may go on with it as soon as it has it, with a goal that it has: what it says
// is held until the session is known.
type opening struct {
	all   []held
	turns map[string]bool // that have begun
	open  map[string]bool // what else is held the begin of, and not the end; see thing
	lost  bool            // some was not kept
}

// held is an event, or a question.
type held struct {
	e  *event
	id jsonrpc2.ID
	q  *question
}

// opens begins to hold what is said about a thread. It ends when the session is registered, or with drop.
func (a *agent) opens(thread string) *opening {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &opening{turns: map[string]bool{}, open: map[string]bool{}}
	a.opening[thread] = o
	return o
}

// drop ends it for a thread that has come to no session: nobody answers what was asked.
func (a *agent) drop(o *opening, srv *server) {
	a.mu.Lock()
	a.closeLocked(o, func(string) {})
	left := o.all
	o.all = nil
	a.mu.Unlock()
	for _, one := range left {
		if one.q != nil {
			srv.run(func() { srv.refuse(one.id, "thread %q is not open", one.q.Thread) })
		}
	}
}

// closeLocked forgets what is being opened, of the threads of its subagents as well; a.mu is held.
func (a *agent) closeLocked(o *opening, thread func(id string)) {
	for id, one := range a.opening {
		if one == o {
			delete(a.opening, id)
			thread(id)
		}
	}
}

// holdLocked holds an event if its thread is being opened, or that of a subagent of one; a.mu is held.
func (a *agent) holdLocked(e *event) bool {
	o := a.opening[e.Thread]
	if o == nil && e.Thread != "" && e.Turn != nil {
		for _, one := range a.opening {
			if one.turns[e.Turn.Root] {
				o = one
				a.opening[e.Thread] = o
				break
			}
		}
	}
	if o == nil {
		return false
	}
	if e.Item != nil && e.Item.Type == "collabAgentToolCall" {
		for _, child := range e.Item.Receivers {
			if a.threads[child] == nil && a.opening[child] == nil {
				a.opening[child] = o
			}
		}
	}
	if o.keeps(e) {
		o.all = append(o.all, held{e: e})
	} else {
		o.lost = true
	}
	return true
}

// keeps reports whether an event is kept, and notes what begins and ends with it.
func (o *opening) keeps(e *event) bool {
	switch {
	case e.Method == "turn/started" && e.Turn != nil:
		o.turns[e.Turn.ID] = true
		return true
	case e.Method == "turn/completed":
		return true
	}
	one, over := e.thing()
	ends := over && o.open[one]
	if ends {
		delete(o.open, one)
	}
	if n := len(o.all); !ends && (n >= maxEvents || n >= maxHeld && e.piece()) {
		return false
	}
	if one != "" && !over {
		o.open[one] = true
	}
	return true
}

// thing names what an event is the begin or the end of, "" for nothing.
func (e *event) thing() (name string, over bool) {
	switch e.Method {
	case "item/started", "item/completed":
		if e.Item != nil {
			return "item " + e.Item.ID, e.Method == "item/completed"
		}
	case "mcpServer/startupStatus/updated":
		return "server " + e.Name, bridge.Text(e.Status) != "starting"
	case "serverRequest/resolved":
		var id jsonrpc2.ID
		if id.UnmarshalJSON(e.RequestID) == nil {
			return asking(id), true
		}
	}
	return "", false
}

// asking names a question.
func asking(id jsonrpc2.ID) string { return "question " + id.String() }

// piece reports whether an event is a piece of a text, or of an output.
func (e *event) piece() bool {
	return strings.HasPrefix(e.Method, "item/") && strings.HasSuffix(strings.ToLower(e.Method), "delta")
}

// askLocked holds a question if its thread is being opened; a.mu is held.
func (a *agent) askLocked(id jsonrpc2.ID, q *question) bool {
	o := a.opening[q.Thread]
	if o == nil || len(o.all) >= maxEvents {
		return false
	}
	o.open[asking(id)] = true
	o.all = append(o.all, held{id: id, q: q})
	return true
}

// begunBeside reports whether a turn has begun since its thread is being opened.
func (a *agent) begunBeside(thread, turn string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.opening[thread]
	return o != nil && o.turns[turn]
}
