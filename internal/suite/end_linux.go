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
	interrupted := map[int]bool{}
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		pids := ofRun(mark)
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
		pids := ofRun(mark)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ofRun returns the live processes of a run without this one.
func ofRun(mark string) []int {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	self := os.Getpid()
	parent := map[int]int{}
	of := map[int]bool{self: true}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name before it may contain blanks and brackets.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		parent[pid], _ = strconv.Atoi(fields[1])
		env, _ := os.ReadFile("/proc/" + p.Name() + "/environ")
		if bytes.HasPrefix(env, []byte(mark+"\x00")) || bytes.Contains(env, []byte("\x00"+mark+"\x00")) {
			of[pid] = true
		}
	}
	var pids []int
	for pid := range parent {
		for p := pid; p > 1 && pid != self; p = parent[p] {
			if of[p] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
