// Package journal is the ordered, replayable log of one session.
//
// # Guarantees
//
// Sequence numbers start at 1 and grow by one; they never repeat, not even
// after the process was killed. An entry is visible to readers only after the
// call of [Log.Flush] that follows its append has written it to the file.
// Appending never waits for readers: a reader is a [Cursor], a position that
// lags or does not, and holds no queue. What has left memory is read from the
// file; a log without a file says [ErrTruncated] for what it no longer has,
// never nothing.
//
// # File
//
// One line per entry, in this order and without blanks:
//
//	{"seq":1,"time":1700000000000,"kind":"u","to":0,"message":{...}}
//
// time is in milliseconds since 1970, to is a [Recipient], kind a [Kind]. A
// torn last line is dropped when the file is opened. Positions are found by
// bisection, so opening a log costs the same whatever its size.
package journal
