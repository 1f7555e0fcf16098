package runtime

import (
	"os"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Census is what the runtime has at one moment, and what it has counted since it
// was made.
type Census struct {
	Sessions    map[State]int
	Connections map[Transport]int
	Agents      map[string]AgentCensus // those that have been started
	Queued      int                    // prompts that wait for another to end
	Journal     JournalCensus
}

// AgentCensus is the part of one agent.
type AgentCensus struct {
	Processes int    // that live
	Started   uint64 // processes
	Updates   uint64 // that went to logs of sessions
}

// JournalCensus is the part of the logs of sessions.
type JournalCensus struct {
	Bytes    int64  // of their files
	Appended uint64 // entries
	Written  uint64 // bytes
	Errors   uint64 // writes that failed
	Failing  int    // logs whose newest entries their file could not take
}

// Transport is how a client is connected.
type Transport string

// The transports.
const (
	TransportHTTP      Transport = "http"      // it has not shown its dialect
	TransportInline    Transport = "inline"    // responses in the answer to the POST
	TransportStandard  Transport = "standard"  // a stream for each session
	TransportWebSocket Transport = "websocket" // or another single stream
)

var transports = map[acp.Shape]Transport{
	acp.Undecided: TransportHTTP, acp.Inline: TransportInline, acp.PerSession: TransportStandard, acp.OneStream: TransportWebSocket,
}

// Census counts. It looks at every session and asks the system for the size of
// its log: call it now and then, not for each message.
func (r *Runtime) Census() Census {
	c := Census{Sessions: map[State]int{}, Connections: map[Transport]int{}, Agents: map[string]AgentCensus{}}
	for _, s := range r.sessions.All() {
		state, queued := s.Count()
		c.Sessions[state]++
		c.Queued += queued
		if s.LogFailing() {
			c.Journal.Failing++
		}
		if path := s.LogPath(); path != "" {
			if info, err := os.Stat(path); err == nil {
				c.Journal.Bytes += info.Size()
			}
		}
	}
	for _, client := range r.allClients() {
		c.Connections[transports[client.Shape()]]++
	}
	for _, a := range r.agents.Used() {
		if started, updates := a.Counts(); started > 0 {
			c.Agents[a.ID()] = AgentCensus{Processes: len(a.Processes()), Started: started, Updates: updates}
		}
	}
	counts := r.sessions.Stats()
	c.Journal.Appended, c.Journal.Written, c.Journal.Errors = counts.Appended.Load(), counts.Written.Load(), counts.Errors.Load()
	return c
}
