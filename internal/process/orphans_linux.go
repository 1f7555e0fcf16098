package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
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
	go startAll(work, ready)
	<-ready
	return work
})

// startAll starts processes for the whole program, for as long as it lives.
func startAll(work <-chan func(), ready chan<- struct{}) {
	goruntime.LockOSThread()
	// Orphaned descendants become our children, so they can be found and
	// reaped whatever becomes of their parents.
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
	close(ready)
	for f := range work {
		f()
	}
}

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
// until none is found, and reaps those that became our children. It returns when
// they hold nothing any more: until then their files, locks and ports are taken.
func killMarked(mark string) {
	var before []int // on their way to their end when it began: those that begin later are not waited for
	for round := range 20 {
		pids, ending := marked(mark)
		if round == 0 {
			before = ending
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, pid := range pids {
			awaitEnd(pid)
		}
		if len(pids) == 0 {
			break
		}
	}
	for n := 0; len(before) > 0 && n < endLooks; n++ {
		if n > 0 {
			time.Sleep(time.Millisecond)
		}
		before = slices.DeleteFunc(before, hasEnded)
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

const endLooks = 300 // at who is about to end, a millisecond apart: a gigabyte of memory takes most of it

// awaitEnd waits briefly for the end of a process that was killed, and reaps it if it is
// an orphan that became our child.
func awaitEnd(pid int) {
	children.Lock()
	ours := children.pids[pid] // its own waiter reaps it
	children.Unlock()
	for n := 0; n < endLooks && !hasEnded(pid); n++ {
		time.Sleep(time.Millisecond) // the end of somebody else's child cannot be waited for
	}
	if !ours {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// hasEnded reports whether a process holds nothing any more, or is gone.
func hasEnded(pid int) bool {
	f := stat(pid, nil)
	return f == nil || ended(f)
}

// marked returns the live processes whose environment holds mark, and those that are on
// their way to their end, or in the middle of a start. Of these it is not known whose they are: the environment goes
// before all else.
func marked(mark string) (pids, ending []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	want := []byte(mark)
	self := os.Getpid()
	buf := make([]byte, 32<<10)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		var env []byte
		if env, buf, err = readAll("/proc/"+name+"/environ", buf); err != nil && !errors.Is(err, syscall.ESRCH) {
			continue // it is gone, or another user's
		}
		if len(env) > 0 {
			if bytes.Contains(env, want) {
				pids = append(pids, pid)
			}
			continue
		}
		// Zombies have none either, nor the kernel's own threads, which are in no group. Newer
		// kernels say ESRCH of all of them.
		if group, err := syscall.Getpgid(pid); err != nil || group == 0 {
			continue
		}
		// Who was started with none at all has a place for it, which who is ending, or is only being
		// started, has not.
		f := stat(pid, buf)
		if f == nil || ended(f) {
			continue
		}
		headless, without := string(f[0]) == "Z", len(f) <= endOfEnvironment || string(f[endOfEnvironment]) == "0"
		if headless {
			if env = ofThreads(name); bytes.Contains(env, want) {
				pids = append(pids, pid)
			}
		}
		if len(env) == 0 && without {
			ending = append(ending, pid)
		}
	}
	return pids, ending
}

// ofThreads returns the environment of a process whose first thread has ended while others live: the kernel tells it of these only.
func ofThreads(pid string) []byte {
	tasks, _ := os.ReadDir("/proc/" + pid + "/task")
	for _, t := range tasks {
		if env, err := os.ReadFile("/proc/" + pid + "/task/" + t.Name() + "/environ"); err == nil && len(env) > 0 {
			return env
		}
	}
	return nil
}

// readAll reads a file of /proc into buf, and returns that or the larger one it needed. It is
// called for each process of the machine: package os asks the kernel four questions more.
func readAll(path string, buf []byte) (content, room []byte, err error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, buf, err
	}
	defer func() { _ = syscall.Close(fd) }()
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf)+512)...)
		}
		got, err := syscall.Read(fd, buf[n:])
		if err != nil || got <= 0 {
			return buf[:n], buf, err
		}
		n += got
	}
}

// endOfEnvironment is the field of /proc/<pid>/stat with the address behind the environment.
const endOfEnvironment = 48

// stat returns the fields of /proc/<pid>/stat from the state on; nil when there is no such process.
func stat(pid int, buf []byte) [][]byte {
	b, _, err := readAll("/proc/"+strconv.Itoa(pid)+"/stat", buf)
	if err != nil {
		return nil
	}
	if f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]); len(f) >= 20 {
		return f
	}
	return nil
}

// ended reports whether only the status of a process is left: of its threads, the last one
// that ends lets go of what the process held.
func ended(f [][]byte) bool {
	return string(f[0]) == "X" || string(f[0]) == "Z" && len(f[17]) == 1 && f[17][0] <= '1'
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
	f := stat(pid, nil)
	if f == nil || !ended(f) {
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
	pids, _ := marked(ProcessVar + "=" + p.mark)
	for _, pid := range pids {
		f := stat(pid, nil)
		if f == nil || pid == p.PID() || ended(f) || string(f[2]) == strconv.Itoa(p.PID()) {
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
