// Package agent is the mock agent: a complete ACP agent without a model, for
// trying and testing whatever stands between an agent and its client. Everything
// it sends is valid against the official schema, except where it is asked for
// [garbage].
//
// # Guarantees
//
// The text of a prompt decides what the turn does; see the table in prompt.go.
// What a session sent is on disk before it is on the wire, so session/load in
// another process, also after a crash, replays it verbatim: the prompts as
// user_message_chunk and every update in its order. State lies in a private
// directory, one subdirectory per session.
//
// With --acp 2 it speaks version 2 of the protocol with clients that ask for it, and has the
// prompts of second_prompt.go besides.
//
// [garbage]: the prompt "garbage" writes lines that are no frames.
package agent
