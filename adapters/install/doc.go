// Package install puts agents' programs on this machine: it downloads, verifies,
// unpacks, proves and lists them, each version in a directory of its own.
//
// # Guarantees
//
// An installation appears whole or not at all: it is built beside its place and
// renamed into it after the program answered. Whatever fails leaves the version
// that was current before in place and current. Two installers of one agent,
// also in two processes, take turns; the second finds the first one's work and
// uses it.
//
// A download is checked against a SHA-256 wherever somebody publishes one, and
// the result says whether that was so. A wrong checksum is never used. Archives
// cannot write outside their directory and cannot write through links.
//
// A program counts as installed when it answered --version and, if it is an ACP
// agent, initialize. No script of an npm package runs, and no credential
// reaches a program that is only proved: packages are fetched first, by npm and uv
// with the credentials that these need. What Python packages run when they are built is
// uv's: a package without a wheel is built with uv's environment. UV_NO_BUILD refuses those.
// When a call returns, no goroutine and no process of it is left. Cancelling the context ends the call promptly,
// and npm and its children with it; only the moment in which the disk takes what was
// written, before an installation gets its name, is waited for: it cannot be interrupted.
//
// # On disk
//
//	<data dir>/agents/<agent>/<version>/              one installation
//	<data dir>/agents/<agent>/<version>/install.json  where it came from
//	<data dir>/agents/<agent>/<version>/running       held by those that run it
//	<data dir>/agents/<agent>/current                 link to the version in use
//	<data dir>/agents/.uv/<agent>/<version>/          what uv has fetched for it, removed with it
//	<data dir>/agents/.<agent>.lock                   held while one is changed
//	<data dir>/agents/.registry.json                  last good copy of the ACP registry
//
// The current version and the one before it are kept, those that callers have
// named last for themselves, and those that run; older ones are removed by an
// installation. Remove takes all of them, also those that run: whoever asks for
// it wants the program gone, and a process that has begun may go on without its files.
// Paths in install.json are relative to its directory, so a data directory may
// be moved or copied into an image.
package install
