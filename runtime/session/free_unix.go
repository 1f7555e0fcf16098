//go:build linux || darwin

package session

import "golang.org/x/sys/unix"

// free returns how many bytes the store's disk has left for the gateway.
func (st store) free() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(st.dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}
