package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endAll ends every process of a run: what has the run's mark in its environment,
// what came of that, and of this process. They are interrupted first, and killed
// when grace is over. go test passes no signal on, npm does not wait for what its
// scripts started, and tests start processes in sessions of their own.
func endAll(mark string, grace time.Duration) {
	run := processes{mark: mark, since: map[int]string{}}
	interrupted := map[int]bool{}
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		pids := run.live()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			if !interrupted[pid] {
				interrupted[pid] = true
				_ = syscall.Kill(pid, syscall.SIGINT)
			}
		}
	}
	// What a process starts before it is killed is found the next time.
	for range 100 {
		pids := run.live()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// left names the processes of a run that are still there.
func left(mark string) []string {
	run := processes{mark: mark, since: map[int]string{}}
	pids := run.live()
	for end := time.Now().Add(settles); len(pids) > 0 && time.Now().Before(end); pids = run.live() {
		time.Sleep(50 * time.Millisecond)
	}
	const most = 200 // bytes of its arguments
	var names []string
	for _, pid := range pids {
		id := strconv.Itoa(pid)
		command, err := os.ReadFile("/proc/" + id + "/cmdline")
		if err != nil {
			continue // it has just ended
		}
		text := strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
		names = append(names, id+" "+text[:min(len(text), most)])
	}
	return names
}

// living returns the fields of /proc/PID/stat from the state on, nil when no thread of the process lives. Its first one may have ended.
func living(pid string) []string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	const threads = 17
	// The name before it may contain blanks and brackets.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) <= threads || f[0] == "X" || f[0] == "Z" && f[threads] <= "1" {
		return nil
	}
	return f
}

// environ returns the environment of a process: of any thread, since one that has ended has none.
func environ(pid string) []byte {
	tasks, _ := os.ReadDir("/proc/" + pid + "/task")
	for _, t := range tasks {
		if env, _ := os.ReadFile("/proc/" + pid + "/task/" + t.Name() + "/environ"); len(env) > 0 {
			return env
		}
	}
	return nil
}

// processes are those of a run.
type processes struct {
	mark string
	// since holds when each one that was found was started. What is being killed
	// has lost its environment, and often its parent, before it is gone.
	since map[int]string
}

// live returns the live processes of a run without this one.
func (r processes) live() []int {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	const started = 19
	self := os.Getpid()
	parent, since := map[int]int{}, map[int]string{}
	of := map[int]bool{self: true}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		fields := living(p.Name())
		if len(fields) <= started {
			continue
		}
		parent[pid], _ = strconv.Atoi(fields[1])
		since[pid] = fields[started]
		if r.since[pid] == fields[started] {
			of[pid] = true
		} else if env := environ(p.Name()); bytes.HasPrefix(env, []byte(r.mark+"\x00")) || bytes.Contains(env, []byte("\x00"+r.mark+"\x00")) {
			of[pid] = true
		}
	}
	var pids []int
	for pid := range parent {
		for p := pid; p > 1 && pid != self; p = parent[p] {
			if of[p] {
				pids = append(pids, pid)
				r.since[pid] = since[pid]
				break
			}
		}
	}
	return pids
}
