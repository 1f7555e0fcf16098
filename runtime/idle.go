package runtime

import (
	"cmp"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// idleProcess is an agent process in whose sessions nothing goes on.
type idleProcess struct {
	p        *agents.Process
	sessions []*session.Session
	last     awake.Moment // something has happened
	busy     bool
}

// idleProcesses returns them, the newest first.
func (r *Runtime) idleProcesses() []*idleProcess {
	byProcess := map[*agents.Process]*idleProcess{}
	for _, s := range r.sessions.All() {
		p, since, busy := s.Idle()
		if p == nil {
			continue
		}
		u := byProcess[p]
		if u == nil {
			u = &idleProcess{p: p, last: since}
			byProcess[p] = u
		}
		u.sessions, u.busy = append(u.sessions, s), u.busy || busy
		if since.After(u.last) {
			u.last = since
		}
	}
	idle := slices.DeleteFunc(slices.Collect(maps.Values(byProcess)), func(u *idleProcess) bool { return u.busy || u.p.LeftRunning() })
	slices.SortFunc(idle, func(a, b *idleProcess) int { return cmp.Compare(b.last, a.last) })
	return idle
}

// boundIdle has sessions give back the processes that are too many, or take too much
// memory together: the newest stay.
func (r *Runtime) boundIdle() {
	if r.o.MaxIdleProcesses <= 0 && r.o.MaxIdleMemory <= 0 {
		return
	}
	memory := int64(0)
	for i, u := range r.idleProcesses() {
		reason := ""
		if r.o.MaxIdleMemory > 0 {
			if memory += u.p.RSS(); memory > r.o.MaxIdleMemory {
				reason = session.ReleasedMemory
			}
		}
		if r.o.MaxIdleProcesses > 0 && i >= r.o.MaxIdleProcesses {
			reason = session.ReleasedCount
		}
		if reason == "" {
			continue
		}
		for _, s := range u.sessions {
			s.GiveBack(reason)
		}
	}
}
