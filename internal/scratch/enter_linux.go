package scratch

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dir has the same name in each run: Go uses a test's result again only while its environment is the same.
const dir = "/tmp/sandbox-agent-tests"

// least is the memory that must be free: tests take half of it at most.
const least = 8 << 30

// Enter has the temporary files of this program, and of all that it starts, in memory, where it may do that and there is
// enough of it. Nothing is done where TMPDIR is set. Call it first: the program begins anew, as the same process. What is
// mounted is seen by this program and its children alone, and goes with the last of them.
func Enter() {
	if os.Geteuid() != 0 || os.Getenv("TMPDIR") != "" || Free() < least {
		return
	}
	fmt.Fprintln(os.Stderr, "temporary files stay on the disk:", enter())
}

// enter returns only when it fails.
func enter() error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	runtime.LockOSThread() // the view belongs to a thread; what is started by exec has that of the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("get a view of the files of its own: %w", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep what is mounted from others: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", Free()/2)); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// Free returns how much memory can be had, in bytes, 0 when nobody says: of the machine, and of the container.
func Free() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	machine := int64(0)
	for line := range strings.Lines(string(b)) {
		if rest, found := strings.CutPrefix(line, "MemAvailable:"); found {
			machine = number(strings.TrimSuffix(strings.TrimSpace(rest), "kB")) << 10
		}
	}
	for _, of := range []struct{ most, used string }{
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		most, err := os.ReadFile(of.most)
		if err != nil || strings.TrimSpace(string(most)) == "max" {
			continue
		}
		used, _ := os.ReadFile(of.used)
		machine = min(machine, number(string(most))-number(string(used)))
	}
	return machine
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // 0 for what is none
	return n
}
