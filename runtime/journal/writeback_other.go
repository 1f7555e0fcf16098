//go:build !linux

package journal

import "os"

// writeOut does nothing here: the system writes files out when it sees fit.
func writeOut(*os.File, int64, int64) {}
