package agentcache

// Sequences is how many of n random sequences a test plays: with the race detector a
// quarter of them, since they take five times as long with it and all of them are
// played without it in the same run (see both in internal/suite). The long tier plays
// all of them with it.
func Sequences(n int) int {
	if raced && !IsLong() {
		return (n + 3) / 4
	}
	return n
}
