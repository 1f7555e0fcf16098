package adaptertest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// markVar marks, in the environment, what belongs to one agent process.
const markVar = "SANDBOX_AGENT_PROCESS="

// process is a process and not another one that got its id later.
type process struct {
	pid   int
	start string // as the kernel counts
}

// procFS reads the processes of this machine.
type procFS struct{ dir string }

var proc = procFS{"/proc"}

// known reports whether processes can be listed here.
func (f procFS) known() bool {
	_, err := os.Stat(f.dir + "/self/stat")
	return err == nil
}

// status returns a living process and its parent. One that has ended and is not
// waited for yet does not live, nor does one whose memory the system takes back.
func (f procFS) status(pid int) (p process, parent int, alive bool) {
	b, err := os.ReadFile(f.dir + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, 0, false
	}
	// The name in parentheses may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const state, ppid, flags, start = 0, 1, 6, 19
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return process{}, 0, false
	}
	const exiting = 4 // PF_EXITING
	if bits, err := strconv.ParseUint(fields[flags], 10, 64); err != nil || bits&exiting != 0 {
		return process{}, 0, false
	}
	parent, err = strconv.Atoi(fields[ppid])
	return process{pid, fields[start]}, parent, err == nil
}

// find returns the living process with an id.
func (f procFS) find(pid int) (process, bool) {
	p, _, alive := f.status(pid)
	return p, alive
}

// descendants returns the processes below one, and those that bear the mark of
// one of them, or its own, although their parents are gone.
func (f procFS) descendants(root int) map[process]bool {
	names, err := os.ReadDir(f.dir)
	if err != nil {
		return nil
	}
	all := map[int]process{}
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		if p, parent, alive := f.status(pid); alive {
			all[pid] = p
			children[parent] = append(children[parent], pid)
		}
	}
	found := map[process]bool{}
	marks := map[string]bool{}
	if mark := f.mark(root); mark != "" && root != os.Getpid() { // ours is that of who started us
		marks[mark] = true
	}
	for queue := children[root]; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		found[all[pid]] = true
		if mark := f.mark(pid); mark != "" {
			marks[mark] = true
		}
		queue = append(queue, children[pid]...)
	}
	for pid, p := range all {
		if pid != root && pid != os.Getpid() && marks[f.mark(pid)] {
			found[p] = true
		}
	}
	return found
}

// mark returns a process's mark, "" when it has none or is somebody else's.
func (f procFS) mark(pid int) string {
	b, err := os.ReadFile(f.dir + "/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if mark, ok := bytes.CutPrefix(kv, []byte(markVar)); ok {
			return string(mark)
		}
	}
	return ""
}

func (f procFS) command(pid int) string {
	b, _ := os.ReadFile(f.dir + "/" + strconv.Itoa(pid) + "/cmdline")
	return strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))))
}
