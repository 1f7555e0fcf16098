//go:build !linux

package fs

import (
	"errors"
	"os"
)

type devices struct{}

func (s *Service) unnamed(*os.Root, os.FileMode) (f, folder *os.File) { return nil, nil }

func linkAt(_, _ *os.File, _ string) error { return errors.ErrUnsupported }
