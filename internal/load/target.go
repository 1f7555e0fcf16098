package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startBound = 20 * time.Second // until a server answers
	endBound   = 15 * time.Second // until it has ended
)

// target is a way to an agent: a program, and the kind of connection.
type target struct {
	name   string
	socket bool // WebSocket, else HTTP
	bridge bool
	// command makes the command line of a server that listens at addr and keeps its files in dir.
	command func(addr, dir string) []string

	// hub, if it is not "", is a hub's program: clients reach the gateway through one.
	hub  string
	base string // path before that of ACP

	durability string // of the sessions that are made, "" for the standard one
	cwd        string // of the sessions, "" for /
	real       bool   // its agent is a real one, which says deltas

	// Of the server that runs.
	addr  string // where clients connect
	auth  string // header line that lets a client in
	meta  string // for initialize and session/new
	dir   string
	began time.Time

	programs []*program
	ready    time.Duration // from the start to the first answer
}

// start starts the target's server and waits until it answers.
func (t *target) start(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.addr = ln.Addr().String()
	if err := ln.Close(); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "load-"); err != nil {
		return err
	}
	t.began = time.Now()
	if t.hub != "" {
		return t.startHub(ctx)
	}
	if err := t.run(ctx, t.command(t.addr, t.dir)); err != nil {
		return err
	}
	t.ready = time.Since(t.began)
	return nil
}

// run starts a program of the target, and waits until its server answers.
func (t *target) run(ctx context.Context, line []string) error { return t.runAt(ctx, "", line) }

// runAt starts one that answers at a path.
func (t *target) runAt(ctx context.Context, base string, line []string) error {
	p := &program{cmd: exec.CommandContext(ctx, line[0], line[1:]...), ended: make(chan struct{})}
	p.cmd.Dir = t.dir
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = endBound
	log, err := os.CreateTemp(t.dir, "log")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.programs = append(t.programs, p)
	if err := t.await(p, base); err != nil {
		said, _ := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("%s does not answer: %w: %s", t.name, err, said), t.stop())
	}
	return nil
}

// startHub starts a hub, and the gateway, which joins it.
func (t *target) startHub(ctx context.Context) error {
	admin, join := filepath.Join(t.dir, "admin"), filepath.Join(t.dir, "join")
	const token = "an-administrator-of-the-hub-that-is-measured"
	if err := os.WriteFile(admin, []byte(token), 0o600); err != nil {
		return err
	}
	if err := t.run(ctx, []string{t.hub, "serve", "--port", portOf(t.addr), "--data-dir", filepath.Join(t.dir, "hub"), "--admin-token-file", admin}); err != nil {
		return err
	}
	made, err := exec.CommandContext(ctx, t.hub, "token", "create", "--kind", "join", "--endpoint", "http://"+t.addr, "--token-file", admin).Output()
	if err == nil {
		err = os.WriteFile(join, made, 0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a token to join: %w", err), t.stop())
	}
	t.auth = "Authorization: Bearer " + token + "\r\n"
	// It is there when the node answers through it.
	return t.runAt(ctx, nodePath, append(t.command("127.0.0.1:0", t.dir), "--join", "http://"+t.addr, "--join-token-file", join, "--node-name", nodeName))
}

// The gateway behind a hub.
const (
	nodeName = "load"
	nodePath = "/nodes/" + nodeName
)

// files reports whether clients reach the files of the gateway.
func (t *target) files() bool { return !t.socket && (t.hub == "" || t.base != "") }

// program is one that was started.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (t *target) await(p *program, base string) error {
	answers := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(startBound); ; {
		request, err := http.NewRequest(http.MethodGet, "http://"+t.addr+base+"/v2/health", nil)
		if err != nil {
			return err
		}
		if _, value, ok := strings.Cut(strings.TrimSpace(t.auth), ": "); ok {
			request.Header.Set("Authorization", value)
		}
		answer, err := answers.Do(request)
		if err == nil {
			if err := answer.Body.Close(); err != nil || answer.StatusCode == http.StatusOK {
				return err
			}
			err = errors.New(answer.Status)
		}
		select {
		case <-p.ended:
			return errors.New("it has ended")
		case <-time.After(200 * time.Microsecond): // the least that a start is measured in
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// stop ends the server, and removes what it kept.
func (t *target) stop() error {
	for _, p := range slices.Backward(t.programs) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(endBound):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	t.programs = nil
	return os.RemoveAll(t.dir)
}

// usage is what a server has taken; its agents are not counted.
type usage struct {
	cpu    time.Duration
	hub    time.Duration // of cpu, what a hub has taken
	memory int           // bytes that are resident
	anon   int           // and those of them that no file has
}

// usage reads what the server, and programs that it needs beside agents, have taken.
func (t *target) usage() usage {
	var u usage
	for i, pid := range t.processes() {
		one := taken(pid)
		u.cpu, u.memory = u.cpu+one.cpu, u.memory+one.memory
		if i == 0 && t.hub != "" { // it was started first
			u.hub = one.cpu
		}
	}
	return u
}

// taken reads what processes have taken. The scheduler's counters are exact where the process's
// own go by ticks of ten milliseconds.
func taken(pids ...int) usage {
	var u usage
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			ns, _, _ := strings.Cut(string(b), " ")
			n, _ := strconv.ParseInt(ns, 10, 64)
			u.cpu += time.Duration(n)
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if fields := strings.Fields(string(b)); len(fields) > 2 {
			pages, _ := strconv.Atoi(fields[1])
			ofFiles, _ := strconv.Atoi(fields[2])
			u.memory += pages * os.Getpagesize()
			u.anon += (pages - ofFiles) * os.Getpagesize()
		}
	}
	return u
}

// processes returns the server's process and those below it that are not agents.
func (t *target) processes() []int {
	var roots []int
	for _, p := range t.programs {
		roots = append(roots, p.cmd.Process.Pid)
	}
	return withBelow(roots, func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return !strings.HasSuffix(string(line), "\x00"+agentArgument+"\x00")
	})
}

// withBelow returns processes and those below them that count, for which those above count, too.
func withBelow(found []int, counts func(pid int) bool) []int {
	below := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, _ := os.ReadFile(name)
		// 12 (name) S 1 ...
		_, rest, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		below[parent] = append(below[parent], pid)
	}
	for i := 0; i < len(found); i++ {
		for _, pid := range below[found[i]] {
			if counts(pid) {
				found = append(found, pid)
			}
		}
	}
	return found
}
