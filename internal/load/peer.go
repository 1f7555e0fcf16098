package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// What a real agent is asked for.
const (
	warmDeltas   = 1500 // before anything is measured, so that what compiles has compiled
	warmPrompts  = 7    // of one delta, for the time to the first one
	pacedDeltas  = 400
	pacedPause   = 4 * time.Millisecond
	burstDeltas  = 3000 // as fast as the agent takes them
	moreSessions = 4    // beside the first one, where each has a process of the agent
	manySessions = 24   // where all share one
)

// side is one way to a real agent over standard streams: the gateway, or the adapter that
// others made for it.
type side struct {
	name    string
	gateway bool
	command []string
	env     []string
	// inside is for an adapter in whose own process the agent runs: its figures are those of both.
	inside bool
}

// peer is an agent, with the sides that are compared on it. {model} and {home} in what is set
// stand for the address of the model and the agent's home.
type peer struct {
	name   string
	sides  []side
	env    []string
	files  map[string]string // below the home
	shared bool              // one process of the agent has all sessions
	// untapped is for an agent that does not write what it says to its standard output.
	untapped bool
	// agent starts the agent's program. Each side is told the path of a script that does it.
	agent []string
}

// agentScript is where a side finds the agent, below its home.
const agentScript = "bin/agent"

// run measures a side from the start of its process to its end.
func (p *peer) run(ctx context.Context, self string, s side, measure func(l *life) ([]figure, error), tapped bool) (_ []figure, err error) {
	home, err := os.MkdirTemp("", "load-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	model, err := scriptedmodel.New()
	if err != nil {
		return nil, err
	}
	defer model.Close()
	model.OnRequest(scriptedmodel.When("deltas", func(_ *scriptedmodel.Request, prompt string) bool {
		return strings.HasPrefix(prompt, deltasVerb+" ")
	}), func(r *scriptedmodel.Request) []scriptedmodel.Step { return []scriptedmodel.Step{said(r.Prompt)} })
	set := strings.NewReplacer("{model}", model.URL, "{home}", home)

	l := &life{side: s, shared: p.shared, home: home, cwd: filepath.Join(home, "work")}
	command := p.agent
	if tapped {
		l.tap = filepath.Join(home, "tap")
		command = slices.Concat([]string{self, tapArgument, l.tap}, command)
	}
	files := map[string]string{agentScript: "#!/bin/sh\nexec " + strings.Join(command, " ") + ` "$@"` + "\n", "work/README": "Nothing is done here.\n"}
	for name, content := range p.files {
		files[name] = set.Replace(content)
	}
	for name, content := range files {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)); err != nil {
			return nil, err
		}
	}
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	for _, kv := range slices.Concat(p.env, s.env) {
		env = append(env, set.Replace(kv))
	}
	line := make([]string, len(s.command))
	for i, word := range s.command {
		line[i] = set.Replace(word)
	}
	began := time.Now()
	l.streams, err = startStreams(ctx, line, env, l.cwd)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopErr := l.streams.stop()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, l.streams.said())
		}
		err = errors.Join(err, stopErr)
	}()
	l.client, err = greet(l.streams, &target{cwd: l.cwd, real: true})
	if err == nil {
		l.session, err = l.client.open()
	}
	if err != nil {
		return nil, err
	}
	l.opened = time.Since(began)
	return measure(l)
}

// deltasVerb begins a prompt that asks the model for chunks with stamps.
const deltasVerb = "deltas"

// said is what the model says for "deltas FIRST COUNT PAUSE", the pause in microseconds.
func said(prompt string) scriptedmodel.Step {
	var first, count, pause int
	if n, err := fmt.Sscanf(prompt, deltasVerb+" %d %d %d", &first, &count, &pause); n != 3 {
		return scriptedmodel.Step{scriptedmodel.Fail(400, "", fmt.Sprintf("not a prompt: %v", err))}
	}
	return scriptedmodel.Step{
		scriptedmodel.Slowly(time.Duration(pause) * time.Microsecond),
		scriptedmodel.SayMade(count, func(n int) string {
			b := make([]byte, stampSize)
			stamp(b, time.Now().UnixNano(), first+n)
			return string(b) + " and so on"
		}),
	}
}

// life is a side whose process runs, with a first session.
type life struct {
	*client
	*session
	side    side
	shared  bool // one process of the agent has all sessions
	streams *streams
	home    string
	cwd     string
	tap     string        // file in which a tap writes, "" for none
	opened  time.Duration // from the start of the process
}

// stream has the model say chunks in a session, and returns when all have come.
func (l *life) stream(s *session, count int, pause time.Duration) (took time.Duration, err error) {
	d := s.deltas
	d.expect(count)
	began := time.Now()
	if _, err := l.prompt(s, fmt.Sprintf("%s %d %d %d", deltasVerb, d.from, count, pause.Microseconds())); err != nil {
		return 0, err
	}
	select {
	case <-d.all:
	case <-time.After(answerBound):
		return 0, fmt.Errorf("%d of %d deltas came", len(d.came), count)
	}
	if d.wrong > 0 {
		return 0, fmt.Errorf("%d deltas were not the next one", d.wrong)
	}
	return d.came[count-1].Sub(began), nil
}

// first returns the times from a prompt to its first update.
func (l *life) first(n int) ([]time.Duration, error) {
	var all []time.Duration
	for range n {
		took, err := l.stream(l.session, 1, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// whole measures what a client sees and what the processes take.
func whole(l *life) ([]figure, error) {
	cold, err := l.first(1)
	if err != nil {
		return nil, err
	}
	if _, err := l.stream(l.session, warmDeltas, 0); err != nil {
		return nil, err
	}
	warm, err := l.first(warmPrompts)
	if err != nil {
		return nil, err
	}
	before := l.usage()
	if _, err := l.stream(l.session, pacedDeltas, pacedPause); err != nil {
		return nil, err
	}
	paced, late := l.usage().since(before), l.deltas.late()
	before = l.usage()
	took, err := l.stream(l.session, burstDeltas, 0)
	if err != nil {
		return nil, err
	}
	busy := l.usage()
	burst, updates := busy.since(before), l.deltas.updates
	time.Sleep(still)
	one := l.usage()
	n := moreSessions
	if l.shared {
		n = manySessions
	}
	if err := l.more(n); err != nil {
		return nil, err
	}
	time.Sleep(still)
	more := l.usage().since(one)
	return []figure{
		{ms(l.opened), "new-ms"},
		{ms(cold[0]), "first-ms"},
		{ms(l.opened + cold[0]), "start-to-first-ms"},
		{ms(share(warm, 50)), "warm-first-ms"},
		{micro(share(late, 50)), "paced-p50-µs"},
		{micro(share(late, 99)), "paced-p99-µs"},
		{micro(paced.own.cpu) / pacedDeltas, "paced-cpu-µs/delta"},
		{micro(paced.tree.cpu) / pacedDeltas, "paced-tree-cpu-µs/delta"},
		{micro(burst.own.cpu) / burstDeltas, "burst-cpu-µs/delta"},
		{micro(burst.tree.cpu) / burstDeltas, "burst-tree-cpu-µs/delta"},
		{burstDeltas / took.Seconds(), "burst-deltas/s"},
		{burstDeltas / float64(updates), "burst-deltas/update"},
		{mega(busy.own.memory), "busy-MiB"},
		{mega(one.own.memory), "idle-MiB"},
		{mega(one.tree.memory), "idle-tree-MiB"},
		// Without pages of programs, which come and go.
		{mega(more.own.anon) / float64(n), "MiB/session"},
		{mega(more.tree.anon) / float64(n), "tree-MiB/session"},
	}, nil
}

// more opens so many sessions, and has the model say something in each.
func (l *life) more(n int) error {
	for range n {
		s, err := l.client.open()
		if err == nil {
			_, err = l.stream(s, 1, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// added measures how long it takes from what the agent writes to what the client reads.
func added(l *life) ([]figure, error) {
	if _, err := l.stream(l.session, warmDeltas, 0); err != nil {
		return nil, err
	}
	if _, err := l.stream(l.session, pacedDeltas, pacedPause); err != nil {
		return nil, err
	}
	written, err := readTap(l.tap)
	if err != nil {
		return nil, err
	}
	var late []time.Duration
	for i, at := range l.deltas.came {
		if from, ok := written[l.deltas.from+i]; ok {
			late = append(late, at.Sub(from))
		}
	}
	if len(late) < pacedDeltas/2 {
		return nil, fmt.Errorf("the agent was seen to write %d of %d deltas", len(late), pacedDeltas)
	}
	return []figure{{micro(share(late, 50)), "added-p50-µs"}, {micro(share(late, 99)), "added-p99-µs"}}, nil
}

// used is what processes have taken: the side's own, and those with the agent's.
type used struct {
	own, tree usage
	each      map[int]time.Duration // processor time of those of the tree, of which some may end
}

func (u used) since(before used) used {
	less := func(a, b usage) usage {
		return usage{cpu: a.cpu - b.cpu, memory: a.memory - b.memory, anon: a.anon - b.anon}
	}
	d := used{own: less(u.own, before.own), tree: less(u.tree, before.tree)}
	for pid, cpu := range u.each {
		d.tree.cpu += cpu - before.each[pid]
	}
	return d
}

func (l *life) usage() used {
	root := l.streams.cmd.Process.Pid
	program, _ := os.Readlink("/proc/" + strconv.Itoa(root) + "/exe")
	own := []int{root}
	if l.side.gateway { // it may need a process of its own program
		own = withBelow(own, func(pid int) bool {
			exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
			return exe == program
		})
	}
	u := used{own: taken(own...), each: map[int]time.Duration{}}
	for _, pid := range withBelow([]int{root}, func(int) bool { return true }) {
		one := taken(pid)
		u.tree.memory, u.tree.anon = u.tree.memory+one.memory, u.tree.anon+one.anon
		u.each[pid] = ticks(pid)
	}
	return u
}

// ticks is the processor time of a process by ticks of ten milliseconds, with that of its threads that
// have ended: agents have many of those.
func ticks(pid int) time.Duration {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// 12 (name) S 1 ...: the 14th and the 15th are those in user mode and in the kernel.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	kernel, _ := strconv.Atoi(fields[12])
	return time.Duration(user+kernel) * 10 * time.Millisecond
}
