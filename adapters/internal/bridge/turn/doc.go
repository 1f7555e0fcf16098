// Package turn is the life of a prompt's turn, written once for all bridges.
//
// [Turns] are those of one session. A prompt waits for those before it and for
// what the agent does by itself; then it has a [Turn]. The bridge says in a
// [Script] how its agent is given the prompt, told to stop, and ended; and it
// calls [Turn.Settle] when the agent says that the turn is over.
//
// # Guarantees
//
// The first verdict counts. A turn whose end was wanted ends as cancelled,
// whatever the agent says of it then. A turn whose agent is gone ends with how it
// went. One that does not end although it was told to ends with its bound. What a
// turn has begun with [Turn.Go] has ended when its prompt is answered.
package turn
