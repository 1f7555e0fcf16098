//go:build !linux && !darwin

package socket

import "time"

// boundUnconfirmed leaves it at the system's own bound.
func boundUnconfirmed(uintptr, time.Duration) {}
