//go:build !unix

package cmdline

import "time"

// used is not known here.
func used() time.Duration { return 0 }
