// Package figure lets tests that repeat something take their number from outside,
// and tell how much they did. ./task reliability asks and reads it; see
// docs/reliability.mdx.
package figure

import (
	"os"
	"strconv"
	"testing"
)

// Mark begins the line that tells how much was done.
const Mark = "figure: "

// Variable returns the environment variable that holds a number.
func Variable(name string) string { return "RELIABILITY_" + name }

// Asked returns how often something is to be done: what the variable of name
// says, else usual.
func Asked(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(Variable(name))
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it must be a number above 0", Variable(name), text)
	}
	return n
}

// Done tells how much was done of something. What several tests tell of the same
// is added.
func Done(t testing.TB, n int, what string) {
	t.Helper()
	t.Logf("%s%d %s", Mark, n, what)
}
