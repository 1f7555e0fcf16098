//go:build !linux

package fs

import "context"

func (s *Service) watch(context.Context, string, string, WatchOptions, func(Change) error) error {
	return failf(Unsupported, "folders are watched on Linux only")
}
