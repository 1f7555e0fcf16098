//go:build !unix

package agentcache

import (
	"errors"
	"os"
)

// tryLock fails: real agents are tested on Unix only.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
