package all

import (
	"context"
	"os"
	"os/signal"

	"sandboxagent.dev/sandbox-agent/adapters/amp"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// RunChild runs the programs that are children of the gateway by its own binary:
// the mock agent, the guard, and, known by the name that it was started under, the
// program that Amp asks for permissions. ok is false when it is none of them.
func RunChild(args []string) (code int, ok bool) {
	if name := os.Args[0]; amp.IsDelegate(name) {
		return amp.RunDelegate(name, os.Stdin, os.Stderr), true
	}
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case mock.Arg:
		return agent.Main(context.Background(), args[1:], os.Stdin, os.Stdout, os.Stderr), true
	case process.GuardArg:
		mark := ""
		if len(args) > 1 {
			mark = args[1]
		}
		process.RunGuard(mark, os.Stdin)
		return 0, true
	}
	return 0, false
}

// Supervise makes this program answer for everything its agents start: a guard
// ends that should the program be killed, and orphans are reaped. What an earlier
// program left running that used the data directory is ended first; "" is for a
// program without one. Call stop when all agents were closed. The program's main
// function must call [RunChild].
func Supervise(dataDir string) (stop func(), err error) {
	if dataDir != "" {
		if err := process.TakeOver(dataDir); err != nil {
			return nil, err
		}
	}
	if exe, err := os.Executable(); err == nil {
		process.UseGuard(exe)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, process.ChildEnded)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		process.ReapOrphans(ended, quit)
	}()
	return func() {
		process.StopGuard()
		signal.Stop(ended)
		close(quit)
		<-done
	}, nil
}
