// Package bridge is what adapters share, those above all that translate an
// agent's own protocol.
//
// [New] turns an [acp.Agent] into an [acp.Conn] within this process. The rest is
// for the native side: [Environ] builds the environment, [Start] runs a program
// that speaks lines, [Lines] reads them within bounds. [Setup] reads what a
// client wishes of a session, [Store] remembers what agents forget of them.
//
// # Guarantees
//
// What the agent has said is delivered before the Conn's Read fails, also when
// [Conn.Fail] ended it because the native process died. Close ends the agent and
// returns when its Close, its requests and every goroutine of the Conn have
// ended. Both directions are bounded: who writes to a full one waits, until the
// other side reads or the Conn ends.
package bridge
