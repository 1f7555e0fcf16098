package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"sync"
	"syscall"
)

// Code says what kind of thing went wrong.
type Code string

// The codes of errors.
const (
	Invalid      Code = "invalid"       // the request itself is wrong
	NotFound     Code = "not_found"     // there is nothing at the path
	Exists       Code = "exists"        // there is something at the path already
	NotDirectory Code = "not_directory" // a directory is needed
	NotFile      Code = "not_file"      // a regular file is needed
	NotEmpty     Code = "not_empty"     // the directory has entries
	Escapes      Code = "escapes"       // the path leads out of the root
	Denied       Code = "denied"        // the system does not permit it
	NoSpace      Code = "no_space"      // the disk or the quota is full
	Changed      Code = "changed"       // a precondition does not hold
	Conflicting  Code = "conflicting"   // two have changed the same
	Refused      Code = "refused"       // the archive holds what is never unpacked
	TooLarge     Code = "too_large"     // a limit was reached
	Busy         Code = "busy"          // the system gives no more of it at this moment
	Unsupported  Code = "unsupported"   // this machine cannot do it
	NoRepository Code = "no_repository" // the folder is in no git repository
	TimedOut     Code = "timed_out"     // it took longer than it may
	Failed       Code = "failed"        // the system failed
)

// Error is an error of the service.
type Error struct {
	Code Code
	// Text says what was attempted with which path, and what to do if that is
	// not plain.
	Text string
	// Written is what an upload of several files left behind; nil for others.
	Written *Unpacked
	// Conflicts names what two have changed, at most 257 of it; nil for others.
	Conflicts []string
	err       error
}

// Error implements error.
func (e *Error) Error() string {
	if e.err != nil {
		return e.Text + ": " + cause(e.err).Error()
	}
	return e.Text
}

// Unwrap returns the system's error.
func (e *Error) Unwrap() error { return e.err }

func failf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// cause is err without the operation and the path, which the text has.
func cause(err error) error {
	if p, ok := errors.AsType[*iofs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

// errEscapes is what os.Root says of names that lead out of it; package os does
// not export it.
var errEscapes = sync.OnceValue(func() error {
	_, err := os.OpenInRoot(".", "..")
	return cause(err)
})

// explain makes an Error of a system error. what is the attempt, as in "open
// /a/b".
func explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := failf(codeOf(err), format, args...)
	if e.Code == Escapes {
		e.Text += ": the path leads out of the root, over a symbolic link that is absolute or leaves it"
		return e
	}
	e.err = err
	return e
}

func codeOf(err error) Code {
	switch {
	case errors.Is(err, errEscapes()):
		return Escapes
	case errors.Is(err, syscall.ENOTDIR), cause(err).Error() == "not a directory": // the second is os.Root's own
		return NotDirectory
	case errors.Is(err, syscall.EISDIR):
		return NotFile
	case errors.Is(err, syscall.ENOTEMPTY):
		return NotEmpty
	case errors.Is(err, iofs.ErrNotExist):
		return NotFound
	case errors.Is(err, iofs.ErrExist):
		return Exists
	case errors.Is(err, iofs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EBUSY):
		return Denied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		return Invalid
	case errors.Is(err, syscall.EFBIG):
		return TooLarge
	}
	return Failed
}
