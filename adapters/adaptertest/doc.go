// Package adaptertest holds the contract that every adapter passes, whatever
// agent stands behind it.
//
// [Run] opens connections with the adapter as the gateway would and checks what
// clients rely on: the order of updates and responses, permissions,
// cancellation, sessions that come back, errors that stay errors, and that
// nothing is left when a connection was closed. Every frame the agent sends is
// checked against the official schema.
//
// Starting a real agent is what costs, so the contracts share one connection and
// one session, and open others only where they look at another process, at a
// beginning or at an end. A contract that fails leaves nothing to the next: its
// connection is closed.
//
// The contracts are subtests, named in kebab case. One that a subject cannot
// meet is skipped with a reason, never in silence: a missing prompt without a
// reason fails. They run one after another and look at the goroutines and child
// processes of the whole program, so a test that calls Run must not be parallel
// to others.
package adaptertest
