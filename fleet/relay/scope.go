package relay

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// extensions are the gateway's own requests that a hub passes on. Those without a session
// need to say which node they are for.
var extensions = []string{
	"_sandboxagent/fs/*",
	"_sandboxagent/session/detach", "_sandboxagent/session/events", "_sandboxagent/session/forget_permissions", "_sandboxagent/session/get",
	"_sandboxagent/session/list_models", methodMove, "_sandboxagent/session/pending", "_sandboxagent/session/permissions",
	"_sandboxagent/session/set_metadata", "_sandboxagent/session/terminate",
}

// watching are the methods of clients that may only read. What is not here needs more,
// also what a newer gateway has.
var watching = map[string]bool{
	acp.MethodInitialize:                true,
	acp.MethodSessionList:               true,
	acp.MethodSessionLoad:               true,
	acp.MethodSessionResume:             true,
	acp.MethodCancelRequest:             true, // of an own request
	"_sandboxagent/session/detach":      true,
	"_sandboxagent/session/events":      true,
	"_sandboxagent/session/get":         true,
	"_sandboxagent/session/pending":     true,
	"_sandboxagent/session/permissions": true,
	"initialized":                       true,
	"notifications/initialized":         true,
}

// needed is the scope that a method needs.
func needed(method string) store.Scope {
	if watching[method] {
		return store.ScopeRead
	}
	return store.ScopeDrive
}
