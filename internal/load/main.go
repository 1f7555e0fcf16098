package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
)

// What this program is when it is started with these as its first argument.
const (
	agentArgument  = "agent"
	bridgeArgument = "bridge"
	tapArgument    = "tap"
)

func main() {
	var err error
	switch args := os.Args; {
	case len(args) == 2 && args[1] == agentArgument:
		err = runAgent(os.Stdin)
	case len(args) == 3 && args[1] == bridgeArgument:
		err = runBridge(args[2], []string{args[0], agentArgument})
	case len(args) > 3 && args[1] == tapArgument:
		err = runTap(args[2], args[3:], os.Stdin, os.Stdout)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "run the scenarios whose names match this expression")
	against := flag.String("target", "", "and the targets: http, ws, bridge-http, bridge-ws, before-http, before-ws, and those of a hub")
	count := flag.Int("count", 3, "how often; what is compared runs by turns")
	program := flag.String("program", "", "the gateway to measure; without it the one of this folder is built")
	before := flag.String("before", "", "an older one to measure beside it")
	hub := flag.String("hub", "", "a hub's program: the gateway is measured behind it, too: at the hub's own address, as hub-http and hub-ws, and at that of the node, as node-http and node-ws. With -before-hub these begin with before-, too")
	beforeHub := flag.String("before-hub", "", "with -before and -hub: an older hub's program, before which the older gateway is measured")
	withPeers := flag.Bool("peers", false, "measure the gateway beside the adapters of others instead, with real agents, all of them from npm")
	history := flag.String("history", "", "append the lines to this file, too")
	flag.Parse()
	if runtime.GOOS != "linux" {
		return errors.New("it reads /proc, and so runs on Linux only")
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	ways, err := regexp.Compile(*against)
	if err != nil {
		return fmt.Errorf("-target: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if *program == "" {
		dir, err := os.MkdirTemp("", "load-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		*program = filepath.Join(dir, "sandbox-agent")
		build := exec.CommandContext(ctx, "go", "build", "-tags", "urfave_cli_no_docs", "-trimpath", "-ldflags=-s -w", "-o", *program, "./cmd/sandbox-agent")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the gateway: %w", err)
		}
	}
	r := &report{out: os.Stdout}
	if *history != "" {
		f, err := os.OpenFile(*history, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		r.history = f
	}
	r.begin()
	if *withPeers {
		return runPeers(ctx, r, self, *program, *before, *count, wanted, ways)
	}
	for _, s := range scenarios {
		if !wanted.MatchString(s.name) {
			continue
		}
		for i := range *count {
			targets := targetsOf(self, *program, *before, *hub, *beforeHub)
			for j := range targets {
				t := targets[(i+j)%len(targets)] // not always the same one first
				if !ways.MatchString(t.name) || t.bridge && s.alone || s.files && !t.files() || s.stored && t.hub == "" || s.many && t.hub != "" {
					continue
				}
				t.durability = s.durability
				got, err := s.on(ctx, t)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					return fmt.Errorf("%s on %s: %w", s.name, t.name, err)
				}
				r.note(s.name, t.name, got)
			}
		}
	}
	r.table()
	return nil
}

// targetsOf returns what is measured: the gateway and the bridge, each over HTTP and WebSocket.
func targetsOf(self, program, before, hub, beforeHub string) []*target {
	gateway := func(program string) func(addr, dir string) []string {
		return func(addr, dir string) []string {
			return []string{
				program, "server", "--port", portOf(addr), "--no-token", "--data-dir", filepath.Join(dir, "data"),
				"--agent-command", "load=" + self + " " + agentArgument, "--default-agent", "load", "--unattached-timeout", "1h",
			}
		}
	}
	bridge := func(addr, _ string) []string { return []string{self, bridgeArgument, addr} }
	meta := `,"_meta":{"sandboxagent.dev":{"agent":"load"}}`
	targets := []*target{
		{name: "http", command: gateway(program), meta: meta},
		{name: "bridge-http", command: bridge, bridge: true},
		{name: "ws", command: gateway(program), meta: meta, socket: true},
		{name: "bridge-ws", command: bridge, bridge: true, socket: true},
	}
	if before != "" {
		targets = append(targets,
			&target{name: "before-http", command: gateway(before), meta: meta},
			&target{name: "before-ws", command: gateway(before), meta: meta, socket: true})
	}
	for _, h := range []struct{ prefix, program, hub string }{{"", program, hub}, {"before-", before, beforeHub}} {
		if h.hub == "" || h.program == "" {
			continue
		}
		targets = append(targets,
			&target{name: h.prefix + "hub-http", command: gateway(h.program), meta: meta, hub: h.hub},
			&target{name: h.prefix + "hub-ws", command: gateway(h.program), meta: meta, hub: h.hub, socket: true},
			&target{name: h.prefix + "node-http", command: gateway(h.program), meta: meta, hub: h.hub, base: nodePath},
			&target{name: h.prefix + "node-ws", command: gateway(h.program), meta: meta, hub: h.hub, base: nodePath, socket: true})
	}
	return targets
}
