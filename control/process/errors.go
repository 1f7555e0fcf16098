package process

import "fmt"

// Code says what kind of error an [Error] is.
type Code int

// The codes of errors.
const (
	Invalid     Code = iota + 1 // the request makes no sense
	NotFound                    // there is no such process
	NoProgram                   // there is nothing to run
	Denied                      // the system does not allow it
	Ended                       // the process has ended
	NoTerminal                  // the process has no terminal
	Busy                        // a limit is reached for now
	TooLarge                    // more than a limit
	TimedOut                    // the process does not read its input
	Unsupported                 // not on this system
	Closing                     // the service ends
)

// Error is an error for the client.
type Error struct {
	Code Code
	Text string
	// Written is how much of an input the process has taken; -1 where there is
	// no input.
	Written int64
	cause   error
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause, nil for none.
func (e *Error) Unwrap() error { return e.cause }

func errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...), Written: -1}
}

func wrap(c Code, err error, format string, args ...any) *Error {
	e := errorf(c, format, args...)
	e.Text, e.cause = e.Text+": "+err.Error(), err
	return e
}
