package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// gated is an agent that opens a session only when the test lets it.
type gated struct {
	t    *testing.T
	name string
	fifo string
	gate *os.File // both ends of it: what is written waits for who reads
}

// withGated starts a gateway that has the mock agent and agents that wait for the test.
func withGated(t *testing.T, names ...string) (*gateway, []*gated) {
	t.Helper()
	g := newGateway(t, "--default-agent", "mock")
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// What the test writes to the pipe lets one request through, or ends the agent.
	const start = `while read -r line; do
		case $line in *'"session/new"'* | *'"session/load"'* | *'"session/resume"'*)
			read -r word < "$1"
			[ "$word" != fail ] || exit 1;;
		esac
		printf '%s\n' "$line"
	done | "$2" mock-agent --state-dir "$3"`
	var config strings.Builder
	var agents []*gated
	for _, name := range names {
		a := &gated{t: t, name: name, fifo: filepath.Join(t.TempDir(), name)}
		if err := syscall.Mkfifo(a.fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		if a.gate, err = os.OpenFile(a.fifo, os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.gate.Close() })
		fmt.Fprintf(&config, "[agents.%s]\ncommand = \"/bin/sh\"\nargs = [\"-c\", %q, \"sh\", %q, %q, %q]\n", name, start, a.fifo, bin, t.TempDir())
		agents = append(agents, a)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "agents.toml"), []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g, agents
}

// lets says what one request that opens a session leads to, now or when it comes: "go" or "fail".
func (a *gated) lets(word string) {
	a.t.Helper()
	if _, err := a.gate.WriteString(word + "\n"); err != nil {
		a.t.Fatal(err)
	}
}

// sessionOf makes a session of an agent in which something was said.
func sessionOf(t *testing.T, g *gateway, agent, prompt string) string {
	t.Helper()
	c := connect(t, g, wsocket, options{agent: agent})
	session := c.newSession()
	if r := c.prompt(session, prompt); r != "end_turn" {
		t.Fatal(r)
	}
	c.close()
	return session
}

// chooses goes to the session whose line has the words.
func (k *talk) chooses(words string) {
	k.t.Helper()
	k.types("\x13") // Ctrl-S
	k.sees(`Sessions`)
	k.types(words)
	k.sees(`Sessions with ` + words)
	k.types("\r")
}

// prompted reports whether a session was told something.
func prompted(g *gateway, session, text string) bool {
	return slices.ContainsFunc(g.events(session), func(e event) bool { return strings.Contains(string(e.Message), text) })
}

// A new session that comes when another one was chosen is not the chat's, and is not left behind.
func TestChat_ANewSessionComesTooLate(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"go", "fail"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			g, late := withGated(t, "late1")
			here := sessionOf(t, g, "mock", "echo here")
			c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
			watch := c.follow("sessions", "watch")
			k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 300}, "--agent", "late1", "--cwd", t.TempDir())
			k.sees(`opening the session`)
			k.chooses("here")
			k.sees(`(?m)^here`, `ready · mock`)
			late[0].lets(word)
			if word == "go" {
				watch.await(watch.out, "late1")
				watch.await(watch.out, "deleted")
			}
			k.types("echo it stays\r")
			k.sees(`(?m)^it stays`)
			if !prompted(g, here, "it stays") {
				t.Error("the prompt went to another session")
			}
			k.interrupts("chat --session " + here)
			watch.interrupt()
		})
	}
}

// Who leaves while the first session opens learns which it is, or that it may be there: nobody else knows its id.
func TestChat_IsLeftBeforeItsSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		elsewhere, answers bool
		code               int
		says               string
	}{
		"it comes":               {false, true, 0, `the session lives on: \S+ chat --session (\S+)`},
		"it does not":            {false, false, 130, `sandbox-agent sessions list`},
		"it comes, not wanted":   {true, true, 0, `the session lives on: \S+ chat --session `},
		"it does not, elsewhere": {true, false, 130, `sandbox-agent sessions list`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, late := withGated(t, "late1")
			here := sessionOf(t, g, "mock", "echo here")
			c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
			watch := c.follow("sessions", "watch")
			defer watch.interrupt()
			k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 300}, "--agent", "late1", "--cwd", t.TempDir())
			k.sees(`opening the session`)
			if tt.elsewhere {
				k.chooses("here")
				k.sees(`(?m)^here`, `ready · mock`)
			}
			k.types("\x03")
			k.writes("waiting for the id of the session")
			if tt.answers {
				late[0].lets("go")
			} else {
				k.types("\x03")
			}
			<-k.over
			all := k.seen.String()
			found := regexp.MustCompile(tt.says).FindStringSubmatch(all[strings.LastIndex(all, "\x1b[?1049l"):])
			if code := k.cmd.ProcessState.ExitCode(); code != tt.code || found == nil {
				t.Fatalf("exit %d, it says %q, want %d and %s", code, all[max(0, len(all)-400):], tt.code, tt.says)
			}
			switch {
			case !tt.answers:
			case tt.elsewhere:
				watch.await(watch.out, "late1")
				watch.await(watch.out, "deleted")
				if a := g.ask("GET", "/v2/sessions/"+here, ""); a.status != 200 {
					t.Errorf("the session that was chosen: status %d", a.status)
				}
			case found[1] == here || g.ask("GET", "/v2/sessions/"+found[1], "").status != 200:
				t.Errorf("it names %s, which is not the new session", found[1])
			}
		})
	}
}

// Who finds the new session in the list before the chat has learned of it, goes there and leaves, leaves it there.
func TestChat_IsLeftInItsNewSession(t *testing.T) {
	t.Parallel()
	held := t.TempDir()
	script := filepath.Join(held, "agent")
	if err := os.WriteFile(script, []byte(heldAgent), 0o700); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--agent-command", "models=env HELD="+quoteArg(held)+" MODELS=1 "+quoteArg(script))
	sessionOf(t, g, "mock", "echo before")
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	watch := c.follow("sessions", "watch")
	defer watch.interrupt()
	k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 300}, "--agent", "models", "--model", "b", "--cwd", t.TempDir())
	k.sees(`opening the session`)
	watch.await(watch.out, "session-of-the-held-agent")
	k.types("\x13")      // Ctrl-S
	k.sees(`❯ .*models`) // the newest is the first
	k.types("\r\x03")
	<-k.over
	if a := g.ask("GET", "/v2/sessions/session-of-the-held-agent", ""); a.status != 200 {
		t.Errorf("the session that was left: status %d", a.status)
	}
}

// A session that is left while a prompt of the chat runs, and is gone to again, is ready when its turn has ended, here or meanwhile.
func TestChat_ComesBackToItsTurn(t *testing.T) {
	t.Parallel()
	for _, speaks := range []string{"1", "2"} {
		for _, ends := range []string{"here", "meanwhile"} {
			t.Run("version "+speaks+", "+ends, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t, "--default-agent", "mock")
				first, second := sessionOf(t, g, "mock", "echo number1"), sessionOf(t, g, "mock", "echo number2")
				k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 120}, "--acp", speaks, "--session", first)
				k.sees(`ready · mock`)
				k.types("permission\r")
				k.asks(`1 Allow`)
				k.chooses("number2")
				k.sees(`(?m)^number2`, `ready · mock`)
				k.types("echo elsewhere\r")
				k.sees(`(?m)^elsewhere`)
				if ends == "meanwhile" {
					other := connect(t, g, wsocket, options{agent: "mock"})
					other.attach("session/load", first, nil)
					ask := other.findMethod("session/request_permission")
					other.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "allow"}})
					other.find(0, "the end of the turn", func(m *message) bool { return strings.Contains(string(m.raw), "permission: ") })
				}
				k.chooses("number1")
				if ends == "here" {
					k.asks(`1 Allow`)
					k.types("1")
					k.sees(`allow_once`)
				}
				k.types("echo it goes on\r")
				k.sees(`(?m)^it goes on`)
				k.leaves()
				if !strings.Contains(k.seen.String(), "chat --session "+first) {
					t.Error("it is not in the session that was chosen last")
				}
				if prompted(g, second, "goes on") {
					t.Error("a prompt went to the other session")
				}
			})
		}
	}
}

// A prompt that waits behind another client's turn, with words that were said before, waits still when the chat has been in
// another session. Cancelled with that turn it waits again; while the chat is away it is not put into what is written
// there, and is where its session is.
func TestChat_ComesBackBehindAnothersTurn(t *testing.T) {
	t.Parallel()
	for _, speaks := range []string{"1", "2"} {
		for _, cancelled := range []string{"here", "meanwhile"} {
			t.Run("version "+speaks+", "+cancelled, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t, "--default-agent", "mock")
				first, second := sessionOf(t, g, "mock", "echo number1"), sessionOf(t, g, "mock", "echo number2")
				other := connect(t, g, wsocket, options{agent: "mock"})
				other.attach("session/load", first, nil)
				way := newCutter(t, g.url)
				k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 120}, "--endpoint", way.url(), "--acp", speaks, "--session", first)
				k.sees(`ready · mock`)
				letGo := way.delays(t) // it is sent before the chat knows of the other's turn
				other.forget()
				turn := other.start("session/prompt", promptParams(first, "slow"))
				other.find(0, "the turn", func(m *message) bool { return strings.Contains(string(m.raw), "agent_message_chunk") })
				k.types("echo number1\r")
				k.sees(`❯ echo number1`, `working, Escape cancels`)
				letGo()
				k.sees(`waits: echo number1`, `tick 3`)
				k.chooses("number2")
				k.sees(`(?m)^number2`, `ready · mock`)
				k.types("half")
				k.sees(`❯ half`)
				if cancelled == "here" {
					k.chooses("number1")
					k.sees(`waits: echo number1`, `working, Escape cancels`)
				}
				other.forget()
				other.notify("session/cancel", map[string]any{"sessionId": first})
				if res, err := other.wait(turn); err != nil || stopReason(t, res) != "cancelled" {
					t.Fatalf("%s, %v", res, err)
				}
				if cancelled == "meanwhile" {
					k.sees(`a prompt that did not begin in session ` + first)
					k.types(" of it\r")
					k.sees(`(?m)^half of it`)
					k.chooses("number1")
					k.sees(`(?m)^❯ echo number1 *$`)
					k.types("\r")
				}
				other.find(0, "the answer to what waited", func(m *message) bool {
					return strings.Contains(string(m.raw), "agent_message_chunk") && strings.Contains(string(m.raw), "number1")
				})
				if prompted(g, second, "number1") || !prompted(g, second, "half of it") == (cancelled == "meanwhile") {
					t.Error("to the other session went what was not for it, or nothing")
				}
			})
		}
	}
}

// What was written while the first session opens is printed when it cannot be opened, and when a signal ends the chat.
func TestChat_WhatWasNotSentIsPrinted(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"refused", "signal"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			g, late := withGated(t, "late1")
			k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 120}, "--agent", "late1", "--cwd", t.TempDir())
			k.sees(`opening the session`)
			k.types("a prompt that waits\r")
			k.sees(`waits: a prompt that waits`)
			k.types("half a sent")
			k.sees(`half a sent`)
			if why == "signal" {
				if err := k.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			} else {
				late[0].lets("fail")
			}
			<-k.over
			all := k.seen.String()
			after := all[strings.LastIndex(all, "\x1b[?1049l"):] // the screen is as it was
			if want := "not sent:\r\na prompt that waits\r\nhalf a sent\r\n"; !strings.Contains(after, want) {
				t.Errorf("at its end it wrote %q, without %q", after, want)
			}
		})
	}
}
