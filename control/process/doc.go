// Package process runs programs for clients: to completion, in the background,
// and on terminals.
//
// # Guarantees
//
// A program never waits for who reads its output: that goes into a log with a
// bound, which lets go of its oldest bytes. A reader is a position in the log;
// one that is behind what is kept is told how many bytes it missed. What a
// program started ends with it, and all programs end with [Service.Close].
// There are never more programs, ended ones and logs than [Limits] allow.
//
// All methods are safe for concurrent use. Errors that a client can do something
// about are of type [*Error].
package process
