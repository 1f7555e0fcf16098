package store

import "golang.org/x/sys/windows"

// freeAt returns how many bytes a folder has room for; false when that is not known.
func freeAt(dir string) (free uint64, ok bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil {
		return 0, false
	}
	return free, true
}
