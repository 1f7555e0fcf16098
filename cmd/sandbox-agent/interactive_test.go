package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// startTurn runs a turn as at a terminal; keys is what is typed.
func startTurn(t *testing.T, url, text string, keys io.Reader) (out, errOut *screen, signals chan os.Signal, end <-chan error) {
	t.Helper()
	return startTurnIn(t, acpversion.One, url, text, keys)
}

func startTurnIn(t *testing.T, version int, url, text string, keys io.Reader) (out, errOut *screen, signals chan os.Signal, end <-chan error) {
	t.Helper()
	return startTurnOf(t, promptOptions{target: target{endpoint: url}, acp: version, text: text}, keys)
}

func startTurnOf(t *testing.T, o promptOptions, keys io.Reader) (out, errOut *screen, signals chan os.Signal, end <-chan error) {
	t.Helper()
	out, errOut, signals = newScreen(), newScreen(), make(chan os.Signal, 2)
	done := make(chan error, 1)
	o.cwd, o.permission, o.interactive, o.colours = t.TempDir(), permissionRules{others: ask}, true, true
	go func() { done <- runTurn(t.Context(), o, signals, stdio{in: keys, out: out, err: errOut}) }()
	return out, errOut, signals, done
}

func endOf(t *testing.T, end <-chan error) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(patience):
		t.Fatal("the turn did not end")
		return nil
	}
}

// answer types lines as a person does, each when something more is asked and was read.
func answer(t *testing.T, shown *screen, keys io.Writer, lines ...string) {
	t.Helper()
	for i, line := range lines {
		shown.await(t, fmt.Sprintf(`(?s)(\n> .*){%d}`, i+1))
		<-time.After(surprise)
		if _, err := fmt.Fprintln(keys, line); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTurn_PermissionAtTheTerminal(t *testing.T) { inBothVersions(t, permissionAtTheTerminal) }

func permissionAtTheTerminal(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	for _, tt := range []struct {
		lines  []string
		option string
	}{
		{[]string{"9", "x", "1"}, "allow_once"},
		{[]string{""}, "reject"},
	} {
		keys, typing := io.Pipe()
		out, errOut, _, end := startTurnIn(t, versionNumber(t, speaks), url, "permission", keys)
		answer(t, errOut, typing, tt.lines...)
		if err := endOf(t, end); err != nil || !strings.Contains(out.String(), "permission: "+tt.option) {
			t.Errorf("keys %q: %v\n%s", tt.lines, err, out)
		}
		if s := errOut.String(); !strings.Contains(s, "Permission: ") || !strings.Contains(s, "  1) Allow") {
			t.Errorf("the question was not shown:\n%s", s)
		}
		_ = typing.Close()
	}
}

// What was written before the agent asked allows nothing: nobody has read yet what it would allow.
func TestTurn_WrittenBeforeItWasAsked(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	keys, typing := io.Pipe()
	defer typing.Close()
	out, errOut, _, end := startTurn(t, url, "permission", keys)
	if _, err := io.WriteString(typing, "1\n1\n"); err != nil { // it is read with the question
		t.Fatal(err)
	}
	errOut.await(t, `(?s)(answers nothing.*){2}`)
	answer(t, errOut, typing, "3")
	if err := endOf(t, end); err != nil || strings.Contains(out.String(), "allow") {
		t.Errorf("%v\n%s\n%s", err, out, errOut)
	}
}

func TestTurn_QuestionsAtTheTerminal(t *testing.T) { inBothVersions(t, questionsAtTheTerminal) }

func questionsAtTheTerminal(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	keys, typing := io.Pipe()
	defer typing.Close()
	out, errOut, _, end := startTurnIn(t, versionNumber(t, speaks), url, "question 2", keys)
	answer(t, errOut, typing, "1", "1")
	if err := endOf(t, end); err != nil {
		t.Error(err)
	}
	if n := strings.Count(errOut.String(), "Question: "); n < 2 {
		t.Errorf("%d questions were asked:\n%s\n%s", n, errOut, out)
	}
}

// Who only presses Enter has written no answer to a question without options.
func TestTurn_AQuestionIsNotAnsweredByNothing(t *testing.T) {
	for line, want := range map[string]string{"": `{"outcome":"rejected"}`, " blue ": `{"answers":[["blue"]],"outcome":"answered"}`} {
		keys, typing := io.Pipe()
		shown := newScreen()
		v := newView(stdio{in: keys, out: shown, err: shown}, false, false)
		turn := &turn{o: promptOptions{interactive: true}, view: v, asker: newAsker(keys, v)}
		answered := make(chan any, 1)
		go func() { answered <- turn.question(t.Context(), []byte(`{"questions":[{"question":"Which color?"}]}`)) }()
		answer(t, shown, typing, line)
		if got, err := json.Marshal(<-answered); err != nil || string(got) != want {
			t.Errorf("%q: %s, %v; want %s", line, got, err, want)
		}
		_ = typing.Close()
	}
}

func TestTurn_InterruptCancels(t *testing.T) { inBothVersions(t, interruptCancels) }

func interruptCancels(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	out, errOut, signals, end := startTurnIn(t, versionNumber(t, speaks), url, "slow", strings.NewReader(""))
	out.await(t, `\S`)
	signals <- os.Interrupt
	if code := exitCode(endOf(t, end)); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
	errOut.await(t, "cancelling")
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut.String()), "session ")
	code, events, _ := tool(t, "", "sessions", "events", id, "--json", "--endpoint", url)
	if code != cmdline.ExitOK || !strings.Contains(events, "session/cancel") || !strings.Contains(events, "cancelled") {
		t.Errorf("the session was not cancelled:\n%s", events)
	}
}

func TestTurn_SecondInterruptLeaves(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	_, errOut, signals, end := startTurn(t, url, "hang", strings.NewReader(""))
	errOut.await(t, "session ")
	// The session is named before the prompt is sent; what comes first of
	// signal and prompt does not matter for the outcome.
	signals <- os.Interrupt
	signals <- os.Interrupt
	if code := exitCode(endOf(t, end)); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
}

// An agent that goes on after the cancel does not keep the program.
func TestTurn_InterruptOfAStubbornAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	url, _ := start(t, "--default-agent", "mock")
	_, errOut, signals, end := startTurn(t, url, "hang", strings.NewReader(""))
	errOut.await(t, "session ")
	signals <- os.Interrupt
	err := endOf(t, end)
	if code := exitCode(err); code != exitInterrupted {
		t.Errorf("exit %d, want %d: %v", code, exitInterrupted, err)
	}
}

// freezing returns the address of a proxy before a gateway that can be frozen: it is then
// connected, and takes and says nothing more.
func freezing(t *testing.T, url string) (address string, freeze func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	frozen := make(chan struct{})
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			gateway, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				return
			}
			pass := func(to, from net.Conn) {
				buf := make([]byte, 64<<10)
				for {
					n, err := from.Read(buf)
					select {
					case <-frozen: // it is read no more, and not closed
						return
					default:
					}
					if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
						_, _ = client.Close(), gateway.Close()
						return
					}
				}
			}
			go pass(client, gateway)
			go pass(gateway, client)
		}
	}()
	return "http://" + ln.Addr().String(), func() { close(frozen) }
}

// A gateway that takes and says nothing more does not keep it either.
func TestTurn_InterruptWithAFrozenGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	url, _ := start(t, "--default-agent", "mock")
	address, freeze := freezing(t, url)
	out, _, signals, end := startTurn(t, address, "slow", strings.NewReader(""))
	out.await(t, `\S`)
	freeze()
	signals <- os.Interrupt
	if code := exitCode(endOf(t, end)); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
}

// A session that is to be deleted at the end does not keep it: a signal in that time ends
// it, and after two signals it is not tried.
func TestTurn_InterruptOfTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	url, _ := start(t, "--default-agent", "mock")
	for _, tt := range []struct {
		name  string
		first []os.Signal
		says  string
	}{
		{"while it is deleted", []os.Signal{os.Interrupt}, "was not ended"},
		{"two at once", []os.Signal{os.Interrupt, os.Interrupt}, "was not ended"},
	} {
		address, freeze := freezing(t, url)
		out, errOut, signals := newScreen(), newScreen(), make(chan os.Signal, 2)
		done := make(chan error, 1)
		o := promptOptions{target: target{endpoint: address}, text: "slow", cwd: t.TempDir(), permission: permissionRules{others: ask}, ending: ending{delete: true}}
		go func() {
			done <- runTurn(t.Context(), o, signals, stdio{in: strings.NewReader(""), out: out, err: errOut})
		}()
		out.await(t, `\S`)
		freeze()
		began := time.Now()
		for _, s := range tt.first {
			signals <- s
		}
		if len(tt.first) == 1 {
			time.AfterFunc(cancelPatience+goodbye+time.Second, func() { signals <- os.Interrupt })
		}
		err := endOf(t, done)
		if took := time.Since(began); exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), tt.says) || took > endPatience {
			t.Errorf("%s: exit %d after %s: %v", tt.name, exitCode(err), took, err)
		}
	}
}

// stuck is an output that nobody reads.
type stuck struct {
	full  chan struct{} // closed when something is written
	first sync.Once
	read  chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.first.Do(func() { close(s.full) })
	<-s.read
	return len(p), nil
}

// An output that nobody reads does not keep it, after a second signal nor after a time.
func TestTurn_InterruptWithAnOutputThatNobodyReads(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	least := time.Duration(math.MaxInt64)
	for range 3 { // a machine with much else to do makes one end slow, and waiting makes all slow
		out, signals := &stuck{full: make(chan struct{}), read: make(chan struct{})}, make(chan os.Signal, 2)
		done := make(chan error, 1)
		o := promptOptions{target: target{endpoint: url}, text: "slow", cwd: t.TempDir(), permission: permissionRules{others: ask}}
		go func() {
			done <- runTurn(t.Context(), o, signals, stdio{in: strings.NewReader(""), out: out, err: newScreen()})
		}()
		<-out.full
		began := time.Now()
		signals <- os.Interrupt
		signals <- os.Interrupt
		err := endOf(t, done)
		close(out.read)
		if exitCode(err) != exitInterrupted {
			t.Errorf("exit %d: %v", exitCode(err), err)
		}
		if least = min(least, time.Since(began)); least <= cancelPatience {
			break
		}
	}
	if least > cancelPatience {
		t.Errorf("it took %s", least)
	}
}

func TestTurn_AnsweredElsewhere(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	keys, typed := io.Pipe() // nobody types
	defer typed.Close()
	_, errOut, signals, end := startTurn(t, url, "permission", keys)
	errOut.await(t, `> $`)
	signals <- os.Interrupt
	if code := exitCode(endOf(t, end)); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
}

func TestRPCStream_ShowsWhatHappens(t *testing.T) {
	t.Run("version 1", func(t *testing.T) { showsWhatHappens(t) })
	t.Run("version 2", func(t *testing.T) { showsWhatHappens(t, "--acp", "2") })
}

func showsWhatHappens(t *testing.T, args ...string) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	address, cut := breaking(t, url)
	_, _, errOut := tool(t, "", "prompt", "echo first")
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")

	ctx, cancel := context.WithCancel(t.Context())
	out := newScreen()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"rpc", "stream", "--endpoint", address, "--session", id, "--after", "0"}, args...), stdio{in: strings.NewReader(""), out: out, err: newScreen()})
	}()
	out.await(t, `(?m)^\d+ session/update agent_message_chunk first$`)
	cut() // it goes on after a break
	if code, _, errOut := tool(t, "", "prompt", "--session", id, "echo second"); code != cmdline.ExitOK {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	out.await(t, `(?m)^\d+ session/update agent_message_chunk second$`)
	cancel()
	<-done
	for _, said := range []string{"first", "second"} {
		if n := strings.Count(out.String(), "agent_message_chunk "+said); n != 1 {
			t.Errorf("%s was shown %d times:\n%s", said, n, out)
		}
	}
}
