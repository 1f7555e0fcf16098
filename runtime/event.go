package runtime

import (
	"encoding/json"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// Direction says who sent an event's message.
type Direction string

// The directions of events.
const (
	FromClient  Direction = "client"
	FromAgent   Direction = "agent"
	FromGateway Direction = "gateway"
)

// Event is one entry of a session's log.
type Event struct {
	Seq       uint64          `json:"seq"`
	Time      time.Time       `json:"time"`
	Direction Direction       `json:"direction"`
	Message   json.RawMessage `json:"message"`
}

// Lost returns the first of the events that a log has lost, and in whose place this one stands: they end with its own number.
// An agent that says so itself is not believed.
func (e Event) Lost() (first uint64, ok bool) {
	if e.Direction != FromGateway {
		return 0, false
	}
	m, err := acp.Parse(e.Message)
	if err != nil {
		return 0, false
	}
	return session.LostFrom(&m, e.Seq)
}

// Missing is the event that stands in the place of those of a session from first to last, which are lost.
func Missing(id string, first, last uint64, at time.Time) Event {
	return Event{Seq: last, Time: at, Direction: FromGateway, Message: session.Damaged(id, first, last)}
}
