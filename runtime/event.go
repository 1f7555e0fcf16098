package runtime

import (
	"encoding/json"
	"time"
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
