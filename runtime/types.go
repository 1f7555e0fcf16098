package runtime

import (
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// What is told of sessions and agents, under the names by which others know it.
type (
	SessionInfo = session.Info
	EndInfo     = session.EndInfo
	State       = session.State
	Continuity  = session.Continuity
	AgentInfo   = agents.Info
	AuthState   = agents.AuthState
	Choice      = agents.Choice
	ProcessInfo = agents.ProcessInfo
	StderrInfo  = agents.Stderr
	Cost        = session.Cost
	Use         = session.Use
	Child       = session.Child
	Match       = session.Match
	Retention   = session.Retention
	Instruction = session.Instruction
	Grant       = session.Grant

	Catalog   = agents.Catalog
	HostTools = session.HostTools
)

// The states of a session.
const (
	StateIdle    = session.StateIdle
	StateRunning = session.StateRunning
	StateWaiting = session.StateWaiting
	StateDormant = session.StateDormant
	StateClosed  = session.StateClosed
	StateEnded   = session.StateEnded
)

// The kinds of continuity.
const (
	ContinuityNative   = session.ContinuityNative
	ContinuityReplayed = session.ContinuityReplayed
	ContinuityFresh    = session.ContinuityFresh
)

// The states of an agent's login.
const (
	AuthUnknown       = agents.AuthUnknown
	AuthAuthenticated = agents.AuthAuthenticated
	AuthRequired      = agents.AuthRequired
)
