package main

import (
	"os"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/control"
)

const (
	mostConnections = 65536
	ownDescriptors  = 256 // kept for sessions' files, agents and programs, at least

	leastMemory = 256 << 20 // bytes; what the gateway needs is far less than a quarter of a small machine
)

// boundConnections bounds the connections of clients: most of them, 0 is what the
// limit of open files allows, of which a quarter is kept for the gateway itself.
func boundConnections(most int) *control.Connections {
	if most <= 0 {
		most = mostConnections
		if files := openFiles(); files > 0 {
			most = max(16, min(most, files-max(ownDescriptors, files/4)))
		}
	}
	return &control.Connections{Most: most, PerAddress: max(16, most/4), Strangers: max(8, min(256, most/4))}
}

// boundLogFiles bounds the files of sessions' logs that are open at one time: half of what
// connections leave.
func boundLogFiles() int {
	files := openFiles()
	if files == 0 {
		return 0
	}
	return min(files/4, max(ownDescriptors, files/4)/2)
}

// machineMemory returns the bytes that this process may use: the machine's, or
// its container's if that has less. 0 is not known.
func machineMemory() int64 {
	least := int64(0)
	note := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.SplitSeq(string(b), "\n") {
			if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
				if f := strings.Fields(rest); len(f) > 0 {
					n, _ := strconv.ParseInt(f[0], 10, 64)
					note(n << 10)
				}
			}
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(path); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			note(n)
		}
	}
	return least
}

// defaultMemory is a quarter of what there is.
func defaultMemory() int64 {
	n := machineMemory()
	if n == 0 {
		n = 8 << 30
	}
	return max(n/4, leastMemory)
}
