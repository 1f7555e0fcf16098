package adapters

import "time"

// Grant is something that a client has allowed an agent for more than one call.
type Grant struct {
	ID    string // names it within its session, in paths, too
	Key   string // what is allowed, as the agent or its bridge says it
	Title string // the same for people
	Kind  string // of the tools that it is about, as in ACP; "" when it is not known
	// GivenAt is the zero time if it is not known.
	GivenAt time.Time
	Where   GrantPlace
	File    string // that holds it, of [GrantInFile]
	Reason  string // why it cannot be taken back; "" when it can
}

// GrantPlace says who keeps a grant, and so how long it counts.
type GrantPlace string

// The places of grants.
const (
	GrantInSession GrantPlace = "session" // the gateway, with the session
	GrantInProcess GrantPlace = "process" // the agent's process, as long as it has the session open
	GrantInFile    GrantPlace = "file"    // a file of the user's; it counts in other sessions, too
	GrantAtAgent   GrantPlace = "agent"   // the agent, in a way of its own
)

// Granter is an adapter that knows what clients have allowed in sessions, without starting
// anything.
type Granter interface {
	// Grants lists it, the oldest first. Those of [GrantInProcess] count only if a process
	// has the session open.
	Grants(o Options, session string) []Grant
	// Forget takes grants back that have no Reason. It is called while no process has the
	// session open: the next one that opens it asks again.
	Forget(o Options, session string, ids []string) error
}
