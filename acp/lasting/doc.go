// Package lasting makes a connection to a gateway that outlives the network: an
// acp.Conn for clients that know nothing of breaks, such as editors.
//
// # Guarantees
//
// When the connection breaks another one is opened, with the client's own
// initialize, and attached to the client's sessions right behind the last event
// that it was given: no event is lost and none comes twice. Events that the gateway has let go of by then
// are told as damaged ones are, and the session goes on behind them. What was written
// meanwhile is sent then, in its order. A prompt that was under way is found
// again at the gateway, or sent again if it had not arrived; it never runs twice. A
// cancel that was sent behind it is sent again if its turn goes on, unless a later prompt
// of the session was sent behind that: it would end this one, too. Then a prompt that is not
// at the gateway counts as cancelled. A cancel of a subagent's session is not sent again.
// Other requests are sent again where that does no harm, and are failed with an
// error that says so where it might. A request of the agent that is still open is
// not shown again; the answer finds its way.
// The connection may be to another hub then, to which nodes come later. Such requests are sent again for a while
// when a hub refuses them because their node is away, and what is written later about their session waits behind them.
// In version 2 of the protocol the answer to a prompt says only that its turn has
// begun: a turn that the gateway knows nothing more of is ended with an error.
// A prompt that was written before it is known that its session cannot be attached to again is not sent there, unless the client has asked to open
// that before. One that is written while other sessions are still attached to is.
// Of a session that cannot be attached to again, as one that was terminated meanwhile, its log says how the prompts ended, as
// far as that can be read. What it said until then, and the client was not given, is told as damaged events are.
// When a client deletes a session, this one or another, what was still to be told
// of it went with it: its turn is ended with an error, and so are its prompts.
//
// Between the breaks the frames pass unchanged, but for what the client's
// initialize asks for besides and for prompts, which are given a name.
//
// What is written while there is no connection is bounded; beyond, Write waits.
// When there is no connection for the time that the options say, requests and
// turns end with an error, and Read fails.
package lasting
