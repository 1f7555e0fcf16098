// Command mutate measures what the fast tests of a package notice. It changes the
// package in one small way after another and runs the tests: a change that no
// test fails for has survived.
//
//	./task mutate -- ./runtime/journal
//	./task mutate -- -files ask.go,turn.go ./runtime
//	./task mutate -- -sample 200 -seed 1 ./fs
//	./task mutate -- -tests ./runtime -files asks.go,turn.go ./runtime/session
//
// The changes are:
//
//	negate  a condition, a comparison, or an operand of && and || is turned round
//	bound   < is <=, > is >=, and the other way round
//	const   an integer constant is one more
//	drop    a statement is left out: a call, an assignment, ++, a send, go, defer
//
// Left alone are what people read only (log messages, panics), sizes that are
// hints (of maps, capacities), durations, values returned beside an error, and
// generated files.
//
// A package is built once. All changes are in the test binary, each behind a
// switch; the environment variable MUTANT throws one of them. Which test reaches
// which change is recorded first: only those tests run for it, and a change that
// no test reaches has survived without a run. A run that takes far longer than
// without the change, ten times if it is short, counts as killed.
//
// accepted.txt lists survivors that are accepted, with the reason. They count as
// killed. A line names the code and not its place, so it stays true when lines
// move:
//
//	file | function | kind | code | reason
package main
