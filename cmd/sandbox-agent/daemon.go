package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/internal/claim"
)

const (
	daemonStartBound = 30 * time.Second // until it answers
	daemonStopBound  = shutdownBound + 5*time.Second
	// The same for one that does not answer: it is not expected to end in order.
	daemonFrozenBound = 2 * time.Second
	// For one that was killed: only what the system does for it holds it up, as a disk that does not answer.
	daemonKilledBound = 5 * time.Second
	daemonPoll        = 50 * time.Millisecond

	// How long one that holds its data directory may take to answer or to end.
	daemonSettleBound = 10 * time.Second
)

func daemonCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "daemon",
		Usage: "run the gateway in the background",
		Description: `One gateway for each data directory. Its log, process id and version are kept in
the folder daemon there. Other commands find it by themselves, wherever it listens.`,
		Subcommands: []*cli.Command{
			daemonStartCommand(std), daemonStopCommand(std), daemonRestartCommand(std), daemonStatusCommand(std), daemonLogsCommand(std), daemonUnitCommand(std),
		},
	}
}

// daemon is the gateway that runs in the background for a data directory.
type daemon struct{ dataDir string }

// daemonState is what is kept of one that was started.
type daemonState struct {
	PID       int       `json:"pid"` // 0 while it is being started
	Version   string    `json:"version"`
	Build     string    `json:"build,omitempty"` // see buildOf
	Program   string    `json:"program"`
	Args      []string  `json:"args"` // of the server command
	URL       string    `json:"url"`  // "" until it has said where it listens
	StartedAt time.Time `json:"startedAt"`

	Machine string `json:"machine,omitempty"` // on which PID is its number; see machine

	AnyPort bool  `json:"anyPort,omitempty"` // it was told to take any port
	LogFrom int64 `json:"logFrom,omitempty"` // where the log of this one begins
}

func daemonOf(c *cli.Context) (*daemon, error) {
	dir, err := dataDirOf(c)
	return &daemon{dataDir: dir}, err
}

func (d *daemon) file(name string) string { return filepath.Join(d.dataDir, "daemon", name) }

// stored returns what is kept of the one that was started last, which may have ended;
// nil when nothing is.
func (d *daemon) stored() (*daemonState, error) {
	b, err := os.ReadFile(d.file("state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the daemon's state: %w", err)
	}
	var s daemonState
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, nil // written by nobody here; a start replaces it
	}
	return &s, nil
}

// running returns what runs; nil when nothing does. A process that has taken a
// dead one's number is not mistaken for it: the gateway holds its data directory.
func (d *daemon) running() (*daemonState, error) {
	s, err := d.stored()
	if err != nil || s == nil {
		return nil, err
	}
	holder, held := holderOf(d.dataDir)
	if !held || s.PID != 0 && holder != s.PID {
		return nil, nil
	}
	if s.URL == "" { // the command that started it has not read it, or was killed before
		if log, err := os.Open(d.file("log")); err == nil {
			defer log.Close()
			s.URL, _, _ = saidSince(log, s.LogFrom) // without an address it does not answer
		}
	}
	if s.PID == 0 { // the same, before it knew the number: only a daemon writes into that log
		if s.URL == "" {
			return nil, nil
		}
		s.PID = holder
	}
	return s, nil
}

// settled is running for those who act on it. It waits for one that was just started,
// by a command that may be gone, until it holds its data directory or has ended.
func (d *daemon) settled(ctx context.Context) (*daemonState, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonSettleBound)
	defer cancel()
	for {
		s, err := d.running()
		if err != nil || s != nil {
			return s, err
		}
		s, err = d.stored()
		if err != nil || s == nil || s.URL != "" || s.elsewhere() || time.Since(s.StartedAt).Abs() > daemonStartBound || s.PID != 0 && !alive(s.PID) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, interruption(ctx)
		case <-time.After(daemonPoll):
		}
	}
}

// interruption returns errInterrupted when that is why ctx has ended, else nil.
func interruption(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errInterrupted) {
		return cause
	}
	return nil
}

// current is settled for those who use what runs. It waits for what passes by itself,
// and says whether what runs answers: one that was just killed, or that a busy
// machine holds up, neither answers nor has let go of its directory.
func (d *daemon) current(ctx context.Context) (s *daemonState, answering bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonSettleBound)
	defer cancel()
	for {
		s, err := d.settled(ctx)
		if err != nil || s == nil {
			return nil, false, err
		}
		if s.URL != "" && cmdline.Answers(ctx, s.URL) {
			return s, true, nil
		}
		select {
		case <-ctx.Done():
			return s, false, interruption(ctx)
		case <-time.After(daemonPoll):
		}
	}
}

// exclusive waits until no other command starts or stops the daemon, and keeps
// them waiting until done is called. Who only looks calls done at once.
func (d *daemon) exclusive(ctx context.Context) (done func(), err error) {
	f, err := os.OpenFile(d.file("busy"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) { // no daemon was ever started here, and to look makes no folder
		return func() {}, nil
	}
	if err != nil {
		return nil, &advice{fmt.Errorf("open the daemon's lock: %w", err), "the data directory must be writable; --data-dir names another"}
	}
	ctx, cancel := context.WithTimeout(ctx, daemonStartBound+daemonStopBound+daemonKilledBound)
	defer cancel()
	for {
		if err = claim.File(f); err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, claim.ErrHeld) {
			break
		}
		select {
		case <-time.After(daemonPoll):
			continue
		case <-ctx.Done():
			err = cmp.Or(interruption(ctx), errors.New("another command is starting or stopping the daemon and does not end"))
		}
		break
	}
	_ = f.Close()
	return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
}

// holderOf returns the process that holds a data directory, if one does.
func holderOf(dataDir string) (pid int, held bool) {
	f, err := os.Open(filepath.Join(dataDir, "lock"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if err := claim.FileToLook(f); !errors.Is(err, claim.ErrHeld) {
		return 0, false
	}
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	return pid, true
}

// write replaces a file at once: a disk that is full, a kill and a power cut leave what it was.
func (d *daemon) write(name, line string) error {
	next := d.file(name + ".next")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, d.file(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

func (d *daemon) save(s *daemonState) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the daemon's state: %w", err)
	}
	// The state comes first: this command may be killed behind any line, and others read it.
	err = d.write("state.json", string(b))
	for name, content := range map[string]string{"pid": strconv.Itoa(s.PID), "version": s.Version} {
		if err == nil && s.PID != 0 {
			err = d.write(name, content)
		}
	}
	if err != nil {
		return fmt.Errorf("keep the daemon's state: %w", err)
	}
	return nil
}

// keepArgs keeps the flags for a start without any.
func (d *daemon) keepArgs(args []string) error {
	b, err := json.Marshal(args)
	if err == nil {
		err = d.write("args.json", string(b))
	}
	if err != nil {
		return fmt.Errorf("keep the daemon's flags: %w", err)
	}
	return nil
}

func (d *daemon) forget() {
	d.lastPort() // which is kept
	for _, name := range []string{"state.json", "pid", "version"} {
		_ = os.Remove(d.file(name)) // what stays names a process that holds nothing
	}
}

func daemonStartCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "start",
		Usage:     "start the gateway, and wait until it answers",
		ArgsUsage: serverLine,
		Description: `It takes the flags of the server command, as in daemon start --port 3000. When it
runs already, of this version and with these flags, nothing happens; one of another
version or with other flags is stopped first. If it is another build of this version, a
note says so. Without flags those of the last start count.`,
		Flags: []cli.Flag{dataDirFlag(), &cli.BoolFlag{Name: "json", Usage: "write JSON"}},
		Action: func(c *cli.Context) error {
			d, args, err := daemonArgs(c)
			if err != nil {
				return err
			}
			return d.start(c.Context, args, false, c.Bool("json"), std)
		},
	}
}

func daemonRestartCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "restart",
		Usage:       "stop the gateway if it runs, and start it again",
		ArgsUsage:   serverLine,
		Description: "Without flags of the server command those of the last start count.",
		Flags:       []cli.Flag{dataDirFlag(), &cli.BoolFlag{Name: "json", Usage: "write JSON"}},
		Action: func(c *cli.Context) error {
			d, args, err := daemonArgs(c)
			if err != nil {
				return err
			}
			return d.start(c.Context, args, true, c.Bool("json"), std)
		},
	}
}

// daemonArgs returns the daemon that a command is about, and the flags for its
// server, which are checked as the server command checks them.
func daemonArgs(c *cli.Context) (*daemon, []string, error) {
	d, err := daemonOf(c)
	if err != nil {
		return nil, nil, err
	}
	args, err := absolutePaths(c.Args().Slice())
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(args, func(a string) bool { return a == "--new-token" || a == "--new-token=true" }) {
		return nil, nil, cmdline.Usagef(c, "--new-token makes a token with each start, which would stand in the daemon's log only: write one into a file, and name it with --token-file")
	}
	if slices.ContainsFunc(args, func(a string) bool { return a == "--data-dir" || strings.HasPrefix(a, "--data-dir=") }) {
		return nil, nil, cmdline.Usagef(c, "--data-dir stands before --, so that the other daemon commands can be given it too")
	}
	_, err = checkServerArgs(c.Context, args)
	return d, args, err
}

// start starts the daemon, unless it runs with these flags already. With anew
// that one is stopped, too.
func (d *daemon) start(ctx context.Context, args []string, anew, asJSON bool, std stdio) error {
	ctx, release := interruptible(ctx)
	defer release()
	if err := os.MkdirAll(d.file(""), 0o700); err != nil {
		return fmt.Errorf("make the daemon's folder: %w: give --data-dir a folder that this user can write to", err)
	}
	done, err := d.exclusive(ctx)
	if err != nil {
		return err
	}
	defer done()
	s, answering, err := d.current(ctx)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	last, err := d.lastArgs()
	if s != nil {
		last, err = s.Args, nil // also of one whose start was killed
	}
	if len(args) == 0 {
		if args = last; err != nil {
			return err
		}
	}
	if s != nil && answering && !anew && s.Version == version && slices.Equal(s.Args, args) {
		if err := errors.Join(d.save(s), d.keepArgs(args)); err != nil { // a killed start left them undone
			return err
		}
		return d.show(s, asJSON, std)
	}
	if s == nil {
		if pid, held := holderOf(d.dataDir); held {
			return cmdline.ExplainHeld(ctx, "127.0.0.1", defaultPort, fmt.Errorf("the data directory %s is in use by process %d, which is no daemon: stop that one, or give another --data-dir", d.dataDir, pid))
		}
	}
	// What cannot work is found before anything is stopped for it.
	cfg, err := d.check(ctx, args, s)
	if err != nil {
		err = cmp.Or(interruption(ctx), err)
		if s != nil {
			fmt.Fprintf(std.err, "process %d was not stopped\n", s.PID)
		}
		return err
	}
	if s != nil {
		if err := d.replace(ctx, s, answering, std); err != nil {
			return err
		}
	}
	if gone := lostFlags(last, args); len(gone) > 0 {
		fmt.Fprintf(std.err, "not used any more, of the flags of the last start: %s\n", strings.Join(gone, " "))
	}
	next, err := d.launch(ctx, program, args, cfg)
	if err != nil {
		switch {
		case s == nil:
		case slices.Equal(last, args):
			fmt.Fprintln(std.err, "the gateway that ran before was stopped; daemon start without flags tries again")
		default:
			fmt.Fprintln(std.err, "the gateway that ran before was stopped; daemon start without flags starts it again")
		}
		return err
	}
	return d.show(next, asJSON, std)
}

// replace stops one for another that takes its place, and keeps its flags in case that one does not start.
func (d *daemon) replace(ctx context.Context, s *daemonState, answering bool, std stdio) error {
	why, bound := "", daemonStopBound
	if !answering {
		why, bound = ", which does not answer", daemonFrozenBound
	}
	if err := d.isHere(s); err != nil {
		return err
	}
	if err := d.keepArgs(s.Args); err != nil {
		return err
	}
	fmt.Fprintf(std.err, "stopping process %d, version %s%s\n", s.PID, s.Version, why)
	return d.stop(ctx, s, bound)
}

// lostFlags names the flags that stand in had and not in has. It says no values: one may be a token.
func lostFlags(had, has []string) []string {
	names := func(args []string) []string {
		var list []string
		for _, a := range args {
			if name, _, _ := strings.Cut(a, "="); strings.HasPrefix(a, "-") {
				list = append(list, "--"+strings.TrimLeft(name, "-"))
			}
		}
		return list
	}
	now := names(has)
	return slices.DeleteFunc(names(had), func(n string) bool { return slices.Contains(now, n) })
}

// lastArgs returns the flags of the last start, nil when there was none. Flags that are lost are an error: without
// them a gateway has no token, perhaps, or serves another folder.
func (d *daemon) lastArgs() (args []string, err error) {
	b, err := os.ReadFile(d.file("args.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &args)
	}
	if err != nil {
		if s, _ := d.stored(); s != nil { // of one that was killed; the error is that of the flags
			return s.Args, nil
		}
		return nil, &advice{fmt.Errorf("read the flags of the last start: %w", err), "name the flags, as in: sandbox-agent daemon start -- --port " + defaultPort}
	}
	return args, nil
}

// buildOf tells builds of one version apart by the content of their programs, "" where that cannot be read.
func buildOf(program string) string {
	f, err := os.Open(program)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli)) // it is read by each daemon start: others take ten times as long
	n, err := io.Copy(sum, f)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d-%08x", n, sum.Sum32())
}

func (d *daemon) show(s *daemonState, asJSON bool, std stdio) error {
	switch program, err := os.Executable(); {
	case s.Version != version:
		fmt.Fprintf(std.err, "this program is version %s: daemon start replaces it\n", version)
	case err == nil && s.Build != "" && s.Build != buildOf(program):
		fmt.Fprintln(std.err, "the gateway that runs is another build than this program: daemon restart starts this one")
	}
	if asJSON {
		cmdline.WriteJSON(std.out, s)
		return nil
	}
	cmdline.List(std.out, "gateway", s.URL, "process", strconv.Itoa(s.PID), "version", s.Version, "since", cmdline.Clock(s.StartedAt), "data", d.dataDir, "log", d.file("log"))
	return nil
}

func daemonStopCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "stop",
		Usage:       "stop the gateway",
		Description: "Turns are cancelled, agents end, sessions are kept. When it does not end in time it is killed.",
		Flags:       []cli.Flag{dataDirFlag()},
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			d, err := daemonOf(c)
			if err != nil {
				return err
			}
			done, err := d.exclusive(c.Context)
			if err != nil {
				return err
			}
			defer done()
			s, err := d.settled(c.Context)
			if err != nil {
				return err
			}
			if s == nil {
				fmt.Fprintln(std.err, "not running")
				return nil
			}
			if err := d.stop(c.Context, s, daemonStopBound); err != nil {
				return err
			}
			fmt.Fprintf(std.err, "stopped process %d\n", s.PID)
			return nil
		},
	}
}

// elsewhere reports whether it was started where numbers of processes are others, or before the machine was: its own is
// another process's here.
func (s *daemonState) elsewhere() bool {
	here := machine()
	return s.Machine != "" && here != "" && s.Machine != here
}

// isHere is the error of a daemon that runs elsewhere.
func (d *daemon) isHere(s *daemonState) error {
	if !s.elsewhere() {
		return nil
	}
	return fmt.Errorf("the data directory %s is in use by a daemon of another container or machine, process %d there: stop it there, or give another --data-dir", d.dataDir, s.PID)
}

// stop ends a daemon and waits until its data directory is free. One that has not
// ended within the bound is killed, and waited for a little longer. Ctrl-C ends the waiting only.
func (d *daemon) stop(ctx context.Context, s *daemonState, bound time.Duration) error {
	if err := d.isHere(s); err != nil {
		return err
	}
	p, err := os.FindProcess(s.PID)
	if err != nil {
		return fmt.Errorf("find process %d: %w", s.PID, err)
	}
	if err := askToEnd(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", s.PID, err)
	}
	free := func() bool {
		pid, held := holderOf(d.dataDir)
		return !held || pid != s.PID
	}
	killed := false
	for end := time.Now().Add(bound); !free(); time.Sleep(daemonPoll) {
		if err := interruption(ctx); err != nil {
			return err
		}
		switch now := time.Now(); {
		case !now.After(end):
		case killed:
			return fmt.Errorf("process %d does not end and keeps the data directory %s, though it was killed: see what it waits for, such as a disk that does not answer, and try again", s.PID, d.dataDir)
		default:
			_ = p.Kill() // its guard ends what its agents have started
			killed, end = true, now.Add(daemonKilledBound)
		}
	}
	d.forget()
	return nil
}

// errNotRunning is the error of daemon status without a daemon.
var errNotRunning = errors.New("no daemon runs for this data directory")

// startable gives errNotRunning the command that starts the daemon which c is about.
func (d *daemon) startable(c *cli.Context, err error) error {
	if !c.IsSet("data-dir") {
		return err
	}
	return &advice{err, "start one with: sandbox-agent daemon start --data-dir " + quoteWord(d.dataDir)}
}

func daemonStatusCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "tell whether the gateway runs, and where",
		Description: "The exit code is 3 when it does not run, or does not answer.",
		Flags:       []cli.Flag{dataDirFlag(), &cli.BoolFlag{Name: "json", Usage: "write JSON"}},
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			d, err := daemonOf(c)
			if err != nil {
				return err
			}
			done, err := d.exclusive(c.Context)
			switch {
			case err == nil:
				done()
			case !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS): // where nothing can be written no other command starts it
				return err
			}
			s, answering, err := d.current(c.Context)
			if err != nil {
				return err
			}
			if s == nil {
				return d.startable(c, fmt.Errorf("%w: %s", errNotRunning, d.dataDir))
			}
			if err := d.show(s, c.Bool("json"), std); err != nil {
				return err
			}
			if !answering {
				return fmt.Errorf("%w: process %d holds the data directory and has not answered for %v: daemon start replaces it", errNotRunning, s.PID, daemonSettleBound)
			}
			return nil
		},
	}
}

func daemonLogsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "logs",
		Usage: "print its log",
		Flags: []cli.Flag{
			dataDirFlag(),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until Ctrl-C"},
			&cli.IntFlag{Name: "tail", Aliases: []string{"n"}, Usage: "only so many of the last lines, 0 is all", Value: 200},
		},
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			if c.Int("tail") < 0 {
				return cmdline.Usagef(c, "--tail cannot be negative")
			}
			d, err := daemonOf(c)
			if err != nil {
				return err
			}
			f, err := os.Open(d.file("log"))
			if errors.Is(err, fs.ErrNotExist) {
				return d.startable(c, fmt.Errorf("no daemon was started with this data directory, so there is no log: %w", errNotRunning))
			}
			if err != nil {
				return fmt.Errorf("open the daemon's log: %w", err)
			}
			defer f.Close()
			if err := seekTail(f, c.Int("tail")); err != nil {
				return fmt.Errorf("read the daemon's log: %w", err)
			}
			log, err := readLog(f)
			if err != nil {
				return fmt.Errorf("read the daemon's log: %w", err)
			}
			ctx, stop := signal.NotifyContext(c.Context, leaving...)
			defer stop()
			for {
				if _, err := io.Copy(std.out, log); err != nil {
					return fmt.Errorf("read the daemon's log: %w", err)
				}
				cut, missing := log.askCut()
				if missing {
					fmt.Fprintln(std.err, "the older half of the log was removed: lines may be missing here")
				}
				if cut {
					continue // with what is kept
				}
				if !c.Bool("follow") {
					return nil
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(4 * daemonPoll):
				}
			}
		},
	}
}
