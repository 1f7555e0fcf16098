// Package signature checks who signed what is about to be installed: the
// signatures of npm registries, OpenPGP signatures of files, and Sigstore's
// bundles of files. It reads what it is given and asks nobody.
//
// # Guarantees
//
// A check that returns nil proves that the owner of a key which the caller named
// signed exactly this. Every other outcome is an error, of one of two kinds:
// [ErrWrong] says that a signature by that key is there and does not fit, so
// somebody changed something; [ErrUnknown] says that nothing was found which can
// be checked, such as no signature at all, or one by a key that nobody named.
// Whoever removes a signature makes the second out of the first, so a caller
// that installs in spite of ErrUnknown must say so.
//
// The formats are read by hand, not by a library: see ADR 0036.
package signature

import "errors"

var (
	// ErrWrong says that a signature is there and does not fit.
	ErrWrong = errors.New("wrong signature")
	// ErrUnknown says that there is nothing which can be checked.
	ErrUnknown = errors.New("no signature that can be checked")
)
