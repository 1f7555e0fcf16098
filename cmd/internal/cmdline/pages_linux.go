package cmdline

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// givePages gives back pages of the program's file. Such a page comes back when it is used,
// mostly from the system's own cache. Otherwise the system keeps all of them until memory is
// short: of a start, two thirds of what the process has.
func givePages() {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 00400000-00fc2000 r-xp 00000000 fe:00 1234   /usr/local/bin/sandbox-agent
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || strings.Contains(fields[1], "w") || fields[5] != self {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || end <= begin {
			continue
		}
		// Nothing was written to these pages, so all of them are in the file.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
	}
}
