package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	prSetChildSubreaper = 36
	setPipeSize         = 1031 // F_SETPIPE_SZ
	outputPipe          = 256 << 10
)

// widen gives an agent's output more room than the kernel's 64 KiB, so that a
// burst is read in larger pieces. Where that is not allowed nothing changes.
func widen(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, fd, setPipeSize, outputPipe) })
	}
}

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Waiting reports whether the process's output holds bytes to read. It may be
// wrong once Stdout was closed.
func (p *Process) Waiting() bool {
	raw, err := p.stdout.SyscallConn()
	if err != nil {
		return false
	}
	var n int32
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	})
	return n > 0
}

// children are the processes that somebody waits for; everything else that
// becomes our child is an orphan and reaped by reapOrphans.
var children = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// starter runs on one thread for ever: the death signal of a child is tied to
// the thread that started it, and threads of the Go runtime come and go.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	ready := make(chan struct{})
	go func() {
		goruntime.LockOSThread()
		// Orphaned descendants become our children, so they can be found and
		// reaped whatever becomes of their parents.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
		close(ready)
		for f := range work {
			f()
		}
	}()
	<-ready
	return work
})

// startChild starts cmd on the starter's thread.
func startChild(cmd *exec.Cmd) error {
	startGuard()
	errc := make(chan error, 1)
	starter() <- func() {
		children.Lock()
		defer children.Unlock()
		err := cmd.Start()
		if err == nil {
			children.pids[cmd.Process.Pid] = true
		}
		errc <- err
	}
	return <-errc
}

// claim marks a child as one that somebody waits for.
func claim(pid int) {
	children.Lock()
	defer children.Unlock()
	children.pids[pid] = true
}

// forget ends our claim on a child that was waited for.
func forget(pid int) {
	children.Lock()
	defer children.Unlock()
	delete(children.pids, pid)
}

// killMarked kills every process whose environment holds the assignment mark,
// until none is found, and reaps those that became our children.
func killMarked(mark string) {
	for range 20 {
		pids := marked(mark)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, pid := range pids {
			reap(pid)
		}
		if len(marked(mark)) > 0 {
			time.Sleep(2 * time.Millisecond) // a killed process of somebody else's takes a moment to go
		}
	}
}

// folderID tells a folder from its copies, wherever it is moved to; "" when that is not known.
func folderID(path string) string {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%x:%x", st.Dev, st.Ino)
}

// reap waits briefly for an orphan that became our child.
func reap(pid int) {
	children.Lock()
	ours := children.pids[pid]
	children.Unlock()
	if ours {
		return // its own waiter reaps it
	}
	for range 50 {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if err != nil || got == pid {
			return // not our child, or reaped
		}
		time.Sleep(time.Millisecond)
	}
}

// marked returns the live processes whose environment holds mark.
func marked(mark string) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	want := []byte(mark)
	self := os.Getpid()
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		env, err := os.ReadFile("/proc/" + name + "/environ")
		if err != nil || !bytes.Contains(env, want) {
			continue // a zombie's environment is empty
		}
		pids = append(pids, pid)
	}
	return pids
}

// orphanAge is how long a child that ended is left to whoever may wait for it:
// package os/exec starts children of which nothing is known here.
const orphanAge = time.Second

// ReapOrphans reaps processes that became children of this one because their
// parents died, as process 1 must, until stop is closed. They are seen as such
// when nobody has waited for them a moment after their end.
func ReapOrphans(sigchld <-chan os.Signal, stop <-chan struct{}) {
	seen := map[int]zombie{} // those of the last look
	look := time.NewTimer(orphanAge)
	due := true // a look; it finds all that ended until then
	defer look.Stop()
	for {
		select {
		case <-stop:
			return
		case <-sigchld:
			if !due {
				look.Reset(orphanAge)
				due = true
			}
		case now := <-look.C:
			seen = reapZombies(seen, now)
			if due = len(seen) > 0; due {
				look.Reset(orphanAge)
			}
		}
	}
}

// zombie is a child that ended and that nobody has waited for.
type zombie struct {
	started string // with the id, it is one process's alone
	since   time.Time
}

// reapZombies reaps the children that were zombies long enough, and returns the
// others.
func reapZombies(seen map[int]zombie, now time.Time) map[int]zombie {
	left := map[int]zombie{}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return left
	}
	for _, task := range tasks {
		list, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue
		}
		for _, word := range bytes.Fields(list) {
			pid, err := strconv.Atoi(string(word))
			if err != nil {
				continue
			}
			// The lock keeps a child that is being started from looking like
			// an orphan.
			children.Lock()
			started, ended := "", false
			if !children.pids[pid] {
				started, ended = zombieStart(pid)
			}
			switch old, ok := seen[pid]; {
			case !ended:
			case !ok || old.started != started:
				left[pid] = zombie{started, now}
			case now.Sub(old.since) < orphanAge:
				left[pid] = old
			default:
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
			children.Unlock()
		}
	}
	return left
}

// zombieStart returns when a process was started, if it is a zombie.
func zombieStart(pid int) (string, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || string(f[0]) != "Z" {
		return "", false
	}
	return string(f[19]), true
}

// tick is the unit of moments, as the kernel tells when a process was started.
const tick = 10 * time.Millisecond

const bootTime = 7 // CLOCK_BOOTTIME

// Now returns the moment in ticks since the machine was started, the time in which it was
// suspended included; 0 when unknown.
func Now() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return ts.Nano() / int64(tick)
}

// Commands returns when the programs were started that belong to the process, also as
// orphans, and are in other process groups than its own.
func (p *Process) Commands() []int64 {
	var starts []int64
	for _, pid := range marked(ProcessVar + "=" + p.mark) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || pid == p.PID() {
			continue
		}
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 20 || string(f[0]) == "Z" || string(f[2]) == strconv.Itoa(p.PID()) {
			continue
		}
		if at, err := strconv.ParseInt(string(f[19]), 10, 64); err == nil {
			starts = append(starts, at)
		}
	}
	return starts
}

// RSS returns the resident memory in bytes of a process and of its descendants,
// 0 when unknown. Memory that they share is counted for each.
func RSS(pid int) int64 {
	sum := ownRSS(pid)
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return sum
	}
	for _, task := range tasks {
		list, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/children")
		if err != nil {
			continue
		}
		for _, word := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(word)); err == nil {
				sum += RSS(child)
			}
		}
	}
	return sum
}

func ownRSS(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(string(f[1]), 10, 64)
	return n * int64(os.Getpagesize())
}
