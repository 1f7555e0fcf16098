// Package memory bounds what messages on their way to and from clients take, over all
// clients together.
//
// A [Bound] is shared by everybody who holds such messages, each with a [Share]. Who finds
// no room waits for a moment. A share whose holder moves too little in that time, because
// its client neither sends nor reads, is ended, the largest first, so that clients that
// stand still cannot keep others out. Who still finds no room is refused with [ErrFull].
package memory
