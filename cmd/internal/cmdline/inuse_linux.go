package cmdline

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener returns the process that listens on a TCP port of this machine, and
// its name; 0 when it cannot be seen from here.
func listener(port string) (pid int, name string) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listening(table, n, sockets)
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(sockets) == 0 {
		return 0, ""
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || !sockets[to] {
			continue
		}
		dir := strings.Split(link, "/")[2]
		if pid, err = strconv.Atoi(dir); err != nil {
			continue
		}
		comm, _ := os.ReadFile("/proc/" + dir + "/comm") // a process without a name is still one
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}

// listening adds the sockets of a table that listen on port, as links of file
// descriptors name them.
func listening(table string, port uint64, sockets map[string]bool) {
	const stateListen = "0A"
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 10 || fields[3] != stateListen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err == nil && p == port {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
}
