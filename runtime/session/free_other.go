//go:build !linux && !darwin

package session

import "errors"

// free is not known here.
func (st store) free() (int64, error) { return 0, errors.ErrUnsupported }
