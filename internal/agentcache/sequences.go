package agentcache

import (
	"flag"
	"strings"
	"testing"
)

// Sequences is how many of n random sequences a test plays: with the race detector a
// quarter of them, since they take five times as long with it. [internal/suite] plays all
// of them without it in the same run; go test -race by hand does not. The long tier plays all
// of them with it, and so does a -run that names one, as in TestConn_RandomSessions/version_1,_37.
// A short run plays a fifth.
func Sequences(n int) int {
	switch {
	case IsLong(), named():
		return n
	case testing.Short():
		return (n + 4) / 5
	case raced:
		return (n + 3) / 4
	}
	return n
}

// named reports whether -run names parts of tests.
func named() bool {
	run := flag.Lookup("test.run")
	return run != nil && strings.Contains(run.Value.String(), "/")
}
