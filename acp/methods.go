package acp

// MethodSessionSetModel is a method of drafts that agents still have.
const MethodSessionSetModel = "session/set_model"

// Side says who answers a method.
type Side string

// The sides.
const (
	SideAgent  Side = "agent"  // the client calls the agent
	SideClient Side = "client" // the agent calls the client
	SideBoth   Side = "both"
	SideProxy  Side = "proxy" // between a conductor and its proxies
)

// MethodKind is a set: a method may exist as a request and as a notification.
type MethodKind uint8

// The kinds of methods.
const (
	KindRequest MethodKind = 1 << iota
	KindNotification
)

// MethodInfo describes a method of the protocol.
type MethodInfo struct {
	Name string
	Side Side
	Kind MethodKind
	// Scoped is set when params have a sessionId, required or not.
	Scoped bool
	// Unstable is set for drafts.
	Unstable bool
}

// LookupMethod returns what the schema says about a method. Extensions and
// methods of other versions are not found.
func LookupMethod(name string) (MethodInfo, bool) {
	m, ok := methods[name]
	return m, ok
}
