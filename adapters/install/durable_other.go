//go:build !linux

package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// makeDurable makes durable what a folder has.
func makeDurable(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrPermission) { // nobody may write it, and some systems make durable only what one may
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
