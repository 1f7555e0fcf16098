package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/internal/certificate"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
)

// checkServerArgs reports what is wrong with arguments of the server command,
// without running it.
func checkServerArgs(ctx context.Context, args []string) (cfg serverConfig, err error) {
	app := newApp(stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	server := cmdline.Find(app.Commands, "server")
	server.Action = func(c *cli.Context) error {
		if _, err := cmdline.Exactly(c); err != nil {
			return err
		}
		if cfg, err = serverConfigOf(c); err != nil {
			return err
		}
		switch {
		case cfg.ephemeral:
			return cmdline.Usagef(c, "--ephemeral leaves the data directory to others, and by that a daemon is found: run sandbox-agent server with it")
		case c.Bool("end-with-stdin"):
			return cmdline.Usagef(c, "--end-with-stdin would end a daemon at once, which has no standard input: run sandbox-agent server with it")
		}
		return nil
	}
	err = app.RunContext(ctx, append([]string{app.Name}, cmdline.FlagsFirst(app, append([]string{"server"}, args...), behind)...))
	return cfg, err
}

// check returns what arguments of the server command say, and whatever can be told
// beforehand of why it would not start with them. Of its address the port of the one
// that runs will be free; now is nil when none does.
func (d *daemon) check(ctx context.Context, args []string, now *daemonState) (serverConfig, error) {
	cfg, err := checkServerArgs(ctx, args)
	if err != nil {
		return cfg, err
	}
	_, closeLog, err := openLog(cfg, io.Discard)
	if err != nil {
		return cfg, err
	}
	closeLog()
	silent := slog.New(slog.DiscardHandler)
	if _, err := certificate.Open(cfg.tlsCert, cfg.tlsKey, silent); err != nil {
		return cfg, err
	}
	if hub, err := openJoining(cfg.join, silent); err != nil {
		return cfg, err
	} else if hub != nil {
		hub.leave()
	}
	files, err := fs.New(fs.Options{Root: cfg.fsRoot})
	if err != nil {
		return cfg, fmt.Errorf("%w: give --fs-root a folder that is there", err)
	}
	_ = files.Close()
	if err := d.checkAgents(ctx, cfg); err != nil {
		return cfg, err
	}
	port := cfg.port
	if now != nil && portOf(now.URL) == port {
		port = "0"
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.host, port))
	if err != nil {
		return cfg, cmdline.ExplainListen(ctx, cmdline.Gateway, cfg.host, cfg.port, err)
	}
	_ = ln.Close()
	return cfg, nil
}

// checkAgents reports agents that cannot be, and a default agent that there is not.
func (d *daemon) checkAgents(ctx context.Context, cfg serverConfig) error {
	list, err := all.Adapters(all.Options{DataDir: d.dataDir, Commands: cfg.commands})
	if err != nil {
		return err
	}
	silent := slog.New(slog.DiscardHandler)
	cfg.install.DataDir, cfg.install.Logger = d.dataDir, silent
	catalog := all.NewCatalog(install.New(cfg.install))
	defer catalog.Close()
	set, err := agents.NewSet(agents.Options{Adapters: list, Catalog: catalog, Default: cfg.defaultAgent, Logger: silent})
	if err != nil {
		return err
	}
	return set.Close(ctx) // nothing was started
}

// portOf returns the port in an address, "" when there is none.
func portOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Port()
}

// lastPort returns the port that the last one took, if it could take any: clients know it.
// It keeps it for when the state is forgotten.
func (d *daemon) lastPort() string {
	s, err := d.stored()
	if err == nil && s != nil && s.URL != "" {
		if !s.AnyPort {
			_ = os.Remove(d.file("port")) // of one that was told its port
			return ""
		}
		_ = d.write("port", portOf(s.URL)) // without it the next takes another
	}
	b, _ := os.ReadFile(d.file("port"))
	port := strings.TrimSpace(string(b))
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return ""
	}
	return port
}

// free reports whether one can listen there.
func free(ctx context.Context, host, port string) bool {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}

// launch starts the server. One that may take any port takes the one that it had last,
// if that is free.
func (d *daemon) launch(ctx context.Context, program string, args []string, cfg serverConfig) (*daemonState, error) {
	s := &daemonState{Version: version, Build: buildOf(program), Program: program, Args: args, Machine: machine(), AnyPort: cfg.port == "0"}
	if port := d.lastPort(); s.AnyPort && port != "" && free(ctx, cfg.host, port) {
		err := d.launchWith(ctx, s, "--port", port)
		if err == nil || ctx.Err() != nil || free(ctx, cfg.host, port) {
			return s, err
		}
		s.URL, s.PID = "", 0 // somebody was faster
	}
	return s, d.launchWith(ctx, s)
}

// launchWith starts the server in a session of its own, with its output in the log,
// and waits until it answers. more are flags that count before those of s.
func (d *daemon) launchWith(ctx context.Context, s *daemonState, more ...string) error {
	log, err := os.OpenFile(d.file("log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the daemon's log: %w", err)
	}
	defer log.Close()
	roomInLog(d.file("log"))
	if s.LogFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("read the daemon's log: %w", err)
	}
	cmd := exec.Command(s.Program, slices.Concat([]string{"server"}, s.Args, more, []string{"--data-dir", d.dataDir})...) // it outlives this command
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.SysProcAttr = log, log, "/", detached()
	if cmd.Env, err = absoluteEnv(); err != nil {
		return err
	}
	if err := interruption(ctx); err != nil {
		return err
	}
	// It is kept before anything is waited for: when this command is killed, others manage it.
	s.StartedAt = time.Now().UTC()
	if err := d.save(s); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		d.forget()
		return fmt.Errorf("start the gateway: %w", err)
	}
	s.PID = cmd.Process.Pid
	err = d.save(s)
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	if err == nil {
		err = d.awaitAnswer(ctx, s, log, exited)
	}
	if err == nil {
		err = d.save(s)
	}
	if err == nil {
		err = d.keepArgs(s.Args)
	}
	if err != nil {
		endChild(cmd.Process, exited)
		d.forget()
		return err
	}
	return nil
}

// awaitAnswer waits until the server answers, and puts its address into s. Whoever
// takes from exited puts it back.
func (d *daemon) awaitAnswer(ctx context.Context, s *daemonState, log *os.File, exited chan error) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStartBound)
	defer cancel()
	for {
		address, _, err := saidSince(log, s.LogFrom)
		if err != nil {
			return err
		}
		if address != "" && cmdline.Answers(ctx, address) {
			s.URL = address
			return nil
		}
		select {
		case err := <-exited:
			exited <- err
			_, said, _ := saidSince(log, s.LogFrom) // without it the reason stands in the log
			return fmt.Errorf("the gateway did not start (%w):\n%s", err, strings.TrimSpace(string(said)))
		case <-ctx.Done():
			if err := interruption(ctx); err != nil {
				return err
			}
			return fmt.Errorf("the gateway did not answer within %v: see %s", daemonStartBound, d.file("log"))
		case <-time.After(daemonPoll):
		}
	}
}

// endChild ends a server that nobody has used yet, and waits for it, as long as that helps.
func endChild(p *os.Process, exited <-chan error) {
	if err := askToEnd(p); err != nil {
		_ = p.Kill()
	}
	select {
	case <-exited:
	case <-time.After(daemonFrozenBound):
		_ = p.Kill()
		select {
		case <-exited:
		case <-time.After(daemonKilledBound):
		}
	}
}

// machine tells where numbers of processes mean the same: on this run of the machine, in this container of it; "" when
// that is not known.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

// alive reports whether there is a process of a number.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission) || goruntime.GOOS == "windows" // where it was found
}
