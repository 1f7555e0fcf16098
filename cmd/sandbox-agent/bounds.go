package main

import (
	"log/slog"
	"os"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
)

const (
	mostConnections = 65536
	mostStrangers   = 1024 // connections on which nobody has shown a token

	leastMemory = 256 << 20 // bytes; what the gateway needs is far less than a quarter of a small machine
)

// boundConnections bounds the connections of clients: most of them, 0 is what the
// limit of open files allows.
func boundConnections(most int, log *slog.Logger) *control.Connections {
	if most <= 0 {
		most = control.MostConnections(mostConnections, cmdline.OpenFiles())
	}
	return &control.Connections{Most: most, PerAddress: max(16, most/4), Strangers: max(8, min(mostStrangers, most/2)), Logger: log}
}

// boundLogFiles bounds the files of sessions' logs that are open at one time: half of what
// connections leave.
func boundLogFiles() int {
	files := cmdline.OpenFiles()
	if files == 0 {
		return 0
	}
	return min(files/4, max(control.OwnFiles, files/4)/2)
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
