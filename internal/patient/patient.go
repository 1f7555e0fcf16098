// Package patient waits in tests for what nobody announces.
package patient

import "time"

const (
	shortest = 2 * time.Millisecond
	longest  = 200 * time.Millisecond
)

// Until asks ok again and again, and says whether it was so within the time. It asks less often
// the longer it waits: to ask costs what the others need who are to get there.
func Until(within time.Duration, ok func() bool) bool {
	for begun := time.Now(); !ok(); {
		waited := time.Since(begun)
		if waited > within {
			return false
		}
		time.Sleep(min(max(waited/8, shortest), longest))
	}
	return true
}
