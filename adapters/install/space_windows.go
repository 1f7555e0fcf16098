package install

import "golang.org/x/sys/windows"

// freeSpace returns how many bytes a directory has room for.
func freeSpace(dir string) (free uint64, ok bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil {
		return 0, false
	}
	return free, true
}
