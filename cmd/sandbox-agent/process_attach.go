package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	// attachBound is how long a view that broke off is opened again: nodes come to another
	// hub within less.
	attachBound = 30 * time.Second
	attachPause = 200 * time.Millisecond // before the first attempt, twice as long before each further one
	attachRest  = time.Second            // the longest; who has a view for longer has one
)

func detachFlag() cli.Flag {
	return &cli.StringFlag{Name: "detach-key", Usage: "leaves the terminal, as ctrl-a to ctrl-z, ctrl-], or none", Value: "ctrl-]"}
}

// detachKey returns the byte of the key, 0 for none.
func detachKey(c *cli.Context) (byte, error) {
	v := strings.ToLower(c.String("detach-key"))
	if v == "none" {
		return 0, nil
	}
	if k, ok := strings.CutPrefix(v, "ctrl-"); ok && len(k) == 1 && (k[0] >= 'a' && k[0] <= 'z' || strings.ContainsAny(k, `]\^_`)) {
		return k[0] & 0x1f, nil
	}
	return 0, cmdline.Usagef(c, "--detach-key %s: use ctrl-a to ctrl-z, ctrl-] or none", c.String("detach-key"))
}

func processAttachCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "attach",
		Usage:     "be at the terminal of a process",
		ArgsUsage: "ID",
		Description: `What was printed before is shown first, as far as it is kept. The process's terminal gets the size of
this one. Ctrl-] leaves, and the process goes on. Ends as the program does; a connection that breaks is
made again, and until it is there Ctrl-C leaves as well.`,
		Flags: targetFlags(detachFlag()),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "ID")
			if err != nil {
				return err
			}
			key, err := detachKey(c)
			if err != nil {
				return err
			}
			return attachTo(c, std, args[0], key)
		},
	}
}

// errDetached is returned when the user has left.
var errDetached = errors.New("detached")

// attachTo shows a terminal until its process ends or the user leaves. Whatever
// happens, this program's terminal is as it was.
func attachTo(c *cli.Context, std stdio, id string, key byte) error {
	t, err := targetOf(c)
	if err != nil {
		return err
	}
	api, err := t.client()
	if err != nil {
		return cmdline.Usagef(c, "%s", err)
	}
	// Ctrl-C is the program's as long as the terminal is raw.
	ctx, stop := signal.NotifyContext(c.Context, leaving...)
	defer stop()
	cmdline.OutlivePipes() // the terminal would stay raw
	keys := make(chan []byte)
	a := &attachment{api: api, id: id, std: std, out: readOutput{std.out, stop}, key: key, keys: keys}
	view, err := cmdline.AtOnce(ctx, t.endpoint, func(ctx context.Context) (*client.Terminal, error) { return api.Terminal(ctx, id, 0) })
	if err != nil {
		return advise(err, problem.Conflict, "only a process that was started with --tty has a terminal; its output: sandbox-agent process logs -f "+id)
	}
	restore := func() {}
	if f, ok := std.in.(*os.File); ok && terminal(f) {
		state, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			_ = view.Close()
			return fmt.Errorf("prepare the terminal: %w", err)
		}
		a.raw = true
		restore = func() { _ = term.Restore(int(f.Fd()), state) } // nobody could be told
	}
	defer restore()
	// Nothing interrupts a read of a terminal, so this may live as long as the
	// program.
	go readKeys(ctx, std.in, keys)
	defer cmdline.NoticeSleep()()
	err = a.run(ctx, view)
	restore()
	switch {
	case errors.Is(err, errDetached):
		note(std, "the process goes on: sandbox-agent process attach "+id)
		return nil
	case ctx.Err() != nil && c.Context.Err() == nil:
		return errInterrupted
	}
	return err
}

// attachment is this program at the terminal of a process.
type attachment struct {
	api  *client.Client
	id   string
	std  stdio
	out  io.Writer     // the standard output, with which the attachment ends
	key  byte          // detaches; 0 for none
	raw  bool          // what is typed is Ctrl-C, too
	keys <-chan []byte // what was typed; closed at the end of the input, and nil behind that
	held []byte        // what was typed and not sent; at most mostHeld and one read
	at   uint64        // position of what follows
	// Up to here somebody has been shown the output before.
	shown uint64
	again replay
	begun bool // there was output since the connection was made
}

// mostHeld bounds what is typed while there is no view; beyond, the input is not read.
const mostHeld = 64 << 10

func readKeys(ctx context.Context, in io.Reader, keys chan<- []byte) {
	defer close(keys)
	b := make([]byte, 4<<10)
	for {
		n, err := in.Read(b)
		if n > 0 {
			select {
			case keys <- bytes.Clone(b[:n]):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// typed takes what was read from the input, and reports whether the user leaves behind it.
func (a *attachment) typed(b []byte, ok bool) (leaves bool) {
	switch {
	case !ok && a.raw: // there Ctrl-D is a key: the terminal has hung up, or it is Ctrl-Z on Windows; nobody can leave behind it
		a.keys, leaves = nil, true
	case !ok: // the input's end is Ctrl-D
		a.keys, b = nil, []byte{4}
	case a.key != 0:
		b, _, leaves = bytes.Cut(b, []byte{a.key})
	}
	a.held = append(a.held, b...)
	return leaves
}

// send gives the program what was typed.
func (a *attachment) send(ctx context.Context, view *client.Terminal) error {
	if len(a.held) == 0 {
		return nil
	}
	err := view.Input(ctx, a.held)
	if err == nil {
		a.held = nil
	}
	return err
}

// run shows the terminal, again when the connection broke.
func (a *attachment) run(ctx context.Context, view *client.Terminal) error {
	var lost awake.Moment
	var pause time.Duration // 0 before the first break, and when there is a view again
	for {
		before, since := a.at, awake.Now()
		err := a.show(ctx, view)
		_ = view.Close() // it has ended in either case
		if err == nil || !errors.Is(err, errConnectionLost) {
			return err
		}
		if a.at > before || since.Ago() > attachRest {
			pause = 0
		}
		if pause == 0 {
			lost = awake.Now()
		}
		if view, pause, err = a.reopen(ctx, lost, pause, err); err != nil {
			return err
		}
	}
}

// reopen opens the view that was lost for a reason again, behind a pause that is longer than the one
// before. What is typed meanwhile is kept. There is no program for Ctrl-C, so that leaves, too.
func (a *attachment) reopen(ctx context.Context, lost awake.Moment, pause time.Duration, why error) (*client.Terminal, time.Duration, error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	done := make(chan struct{})
	var typing sync.WaitGroup
	typing.Go(func() { a.hold(done, leave) })
	defer typing.Wait()
	defer close(done)
	for told := false; ; told = true {
		pause = min(max(2*pause, attachPause), attachRest)
		if lost.Ago()+pause > attachBound {
			return nil, pause, why
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, pause, context.Cause(ctx)
		}
		view, err := a.api.Terminal(ctx, a.id, a.at)
		if err == nil {
			return view, pause, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, pause, cause
		}
		if _, refused := errors.AsType[*problem.Error](err); refused && !passes(err) {
			return nil, pause, err
		}
		if !told {
			fmt.Fprintf(a.std.err, "\r\n[%s: Ctrl-C leaves]\r\n", linkLine(lasting.Link{Lost: why}, "", false))
		}
	}
}

// hold keeps what is typed until done is closed.
func (a *attachment) hold(done <-chan struct{}, leave context.CancelCauseFunc) {
	for {
		keys := a.keys
		if len(a.held) >= mostHeld {
			keys = nil
		}
		select {
		case b, ok := <-keys:
			switch leaves := a.typed(b, ok); {
			case leaves:
				leave(errDetached)
			case a.raw && bytes.IndexByte(b, 3) >= 0:
				leave(errInterrupted)
			}
		case <-done:
			return
		}
	}
}

// show shows one view until it ends. The error is that of the program's end.
func (a *attachment) show(ctx context.Context, view *client.Terminal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type event struct {
		client.TerminalEvent
		err error
	}
	events := make(chan event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := view.Read(ctx)
			select {
			case events <- event{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { <-done }()
	defer cancel()
	resized := make(chan os.Signal, 1)
	notifyResized(resized)
	defer signal.Stop(resized)
	err := a.resize(ctx, view)
	if err == nil {
		err = a.send(ctx, view)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errConnectionLost, err)
	}
	for {
		var err error
		select {
		case e := <-events:
			if e.err != nil {
				return fmt.Errorf("%w: %w", errConnectionLost, e.err)
			}
			if done, err := a.handle(e.TerminalEvent); done {
				return err
			}
		case b, ok := <-a.keys:
			leaves := a.typed(b, ok)
			if err = a.send(ctx, view); leaves {
				return errDetached
			}
		case <-resized:
			err = a.resize(ctx, view)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errConnectionLost, err)
		}
	}
}

// handle shows what happened; done means that it was the last.
func (a *attachment) handle(e client.TerminalEvent) (done bool, err error) {
	switch e.Type {
	case "ready":
		a.at, a.shown, a.begun = e.Position, e.Shown, false
	case "output":
		a.print(e.Output)
		a.begun = true
	case "missed":
		if a.begun { // before that, ready's position knows of it
			a.at += e.Missed
		}
		fmt.Fprintf(a.std.err, "\r\n[%d bytes are not shown]\r\n", e.Missed)
	case "error":
		if e.Problem != nil {
			fmt.Fprintf(a.std.err, "\r\n[%s]\r\n", cmdline.OneLine(e.Problem.Error()))
		}
	case "exit":
		_, _ = a.out.Write(a.again.rest())
		return true, exitOf(e.ExitCode, e.Signal)
	}
	return false, nil
}

// print shows output. What cannot be written has nowhere to be reported.
func (a *attachment) print(output []byte) {
	old := output[:min(uint64(len(output)), a.shown-min(a.shown, a.at))]
	a.at += uint64(len(output))
	if len(old) > 0 {
		_, _ = a.out.Write(a.again.without(old))
	}
	if fresh := output[len(old):]; len(fresh) > 0 {
		_, _ = a.out.Write(append(a.again.rest(), fresh...))
	}
}

// resize gives the process's terminal the size of this one.
func (a *attachment) resize(ctx context.Context, view *client.Terminal) error {
	f, ok := a.std.out.(*os.File)
	if !ok {
		return nil
	}
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		return nil // it is no terminal
	}
	return view.Resize(ctx, cols, rows)
}
