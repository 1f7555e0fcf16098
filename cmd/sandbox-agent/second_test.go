package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// inBothVersions runs a test of a command in both versions of the protocol.
func inBothVersions(t *testing.T, f func(t *testing.T, speaks string)) {
	t.Helper()
	for _, speaks := range []string{"1", "2"} {
		t.Run("version "+speaks, func(t *testing.T) { f(t, speaks) })
	}
}

func versionNumber(t *testing.T, speaks string) int {
	t.Helper()
	n, err := strconv.Atoi(speaks)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// startTwo runs a gateway that has the mock agent in both versions: mock and mock2.
func startTwo(t *testing.T, args ...string) (url string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	config := fmt.Sprintf("[agents.mock2]\ncommand = %q\nargs = [\"mock-agent\", \"--acp\", \"2\", \"--state-dir\", %q]\nacp = 2\n", exe, t.TempDir())
	if err := os.WriteFile(filepath.Join(data, "agents.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	url, _ = start(t, append([]string{"--default-agent", "mock", "--data-dir", data}, args...)...)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	return url
}

// notes is what a command wrote to the standard error, without the session's id.
func notes(errOut string) string {
	return regexp.MustCompile(`(?m)^session .*\n`).ReplaceAllString(errOut, "")
}

// What the agent says is the same in both versions, whichever the agent speaks; so is how the
// turn ends.
func TestPrompt_VersionsSayTheSame(t *testing.T) {
	startTwo(t)
	for _, agent := range []string{"mock", "mock2"} {
		for _, text := range []string{
			"echo hi", "stream 30 5", "plan", "permission", "question", "run", "tool", "diff", "subagent", "usage",
			"child", "child-permission", "notice", "compaction", "upsert", "shell", "crash", "stop refusal",
		} {
			t.Run(agent+" "+text, func(t *testing.T) {
				args := []string{"prompt", "--agent", agent, "--permission", "allow", "--close", text}
				code, out, _ := tool(t, "", append(args, "--acp", "1")...)
				code2, out2, err2 := tool(t, "", append(args, "--acp", "2")...)
				if diff := cmp.Diff(out, out2); diff != "" || code != code2 {
					t.Errorf("exit %d in version 1 and %d in version 2; the text differs (-1 +2):\n%s\n%s", code, code2, diff, err2)
				}
			})
		}
	}
}

// In version 2 all is shown that version 1 does not say.
func TestPrompt_VersionTwoShowsMore(t *testing.T) {
	startTwo(t)
	for _, tt := range []struct{ agent, text, want string }{
		{"mock", "run", "• count; exit 3 (pending)\n$ count; exit 3:\none\n• count; exit 3 (in progress)\n$ count; exit 3:\ntwo\nthree\n$ count; exit 3: exit code 3\n✗ count; exit 3 (failed)\n"},
		{"mock2", "shell", "• Run count (in progress)\n$ count:\none\ntwo\n$ count: exit code 3\n✓ Run count (completed)\n"},
		{"mock2", "notice", "warning: The disk is nearly full (1 % is left)\n"},
		{"mock2", "compaction", "compacting the conversation\nthe conversation was compacted\n"},
		{"mock2", "child", "• subagent Look around (running)\nLook around:\nI look \n• List files (in progress)\n✓ List files (completed)\nLook around:\naround.\n• subagent Look around (idle)\n"},
		{"mock2", "child-permission", "• subagent Look around (running)\npermission allowed: May I?\nLook around:\npermission: allow_once\n• subagent Look around (idle)\n"},
		{"mock", "subagent", "• Look around (in progress)\n• subagent Look around (running)\nLook around:\nlook around\nI look \n• Edit notes.txt (pending)\npermission allowed: Edit notes.txt\n✓ Edit notes.txt (completed)\nLook around:\naround: allow_once.\n✓ Look around (completed)\n• subagent Look around (idle)\n"},
	} {
		t.Run(tt.agent+" "+tt.text, func(t *testing.T) {
			code, _, errOut := tool(t, "", "prompt", "--acp", "2", "--agent", tt.agent, "--permission", "allow", "--close", tt.text)
			if diff := cmp.Diff(tt.want, notes(errOut)); diff != "" || code != cmdline.ExitOK {
				t.Errorf("exit %d; what was shown differs (-want +got):\n%s", code, diff)
			}
		})
	}
	t.Run("background", func(t *testing.T) {
		code, out, errOut := tool(t, "", "prompt", "--acp", "2", "--agent", "mock2", "background 1000")
		if code != cmdline.ExitOK || !strings.Contains(errOut, "\nin the background: $ tick\n") {
			t.Fatalf("exit %d\n%s\n%s", code, out, errOut)
		}
		// Who comes later is told of it, and the session can be closed with it.
		id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
		code, out, errOut = tool(t, "", "prompt", "--acp", "2", "--session", id, "--close", "echo hi")
		if code != cmdline.ExitOK || out != "hi\n" || !strings.Contains(errOut, "in the background: ") {
			t.Errorf("exit %d\n%s\n%s", code, out, errOut)
		}
	})
}

// What is chosen for a session is chosen in both versions, and what it is set to is known.
func TestPrompt_ChoosesInBothVersions(t *testing.T) {
	startTwo(t)
	inBothVersions(t, func(t *testing.T, speaks string) {
		for _, agent := range []string{"mock", "mock2"} {
			code, _, errOut := tool(t, "", "prompt", "--acp", speaks, "--agent", agent, "--model", "mock-large", "--mode", "plan", "--mcp", "m=true", "echo hi")
			id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
			if code != cmdline.ExitOK || strings.Contains(errOut, "no effect") {
				t.Fatalf("%s: exit %d\n%s", agent, code, errOut)
			}
			code, _, errOut = tool(t, "", "prompt", "--acp", speaks, "--session", id, "--mode", "code", "--close", "echo hi")
			if code != cmdline.ExitOK {
				t.Fatalf("%s: exit %d\n%s", agent, code, errOut)
			}
			_, shown, _ := tool(t, "", "sessions", "show", id, "--json")
			_, opened, _ := tool(t, "", "rpc", "call", "--acp", speaks, "--json", "session/resume", `{"sessionId":"`+id+`","cwd":"/tmp","mcpServers":[]}`)
			for what, where := range map[string]string{`"model":"mock-large"`: shown, `"currentValue":"code"`: opened} {
				if !strings.Contains(where, what) {
					t.Errorf("%s: %s was not chosen:\n%s", agent, what, where)
				}
			}
		}
	})
}

// With --json the messages are those of the version, and the last one is the turn's end.
func TestPrompt_JSONOfVersionTwo(t *testing.T) {
	startTwo(t)
	code, out, errOut := tool(t, "", "prompt", "--acp", "2", "--json", "--close", "run")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	end := []byte(lines[len(lines)-1])
	if code != cmdline.ExitOK || errOut != "" || rawjson.MemberString(end, "params", "update", "stopReason") != "end_turn" || !strings.Contains(out, `"terminal_output_chunk"`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
}

func TestPrompt_AGatewayOfVersionOne(t *testing.T) {
	startTwo(t, "--acp-versions", "1")
	for _, args := range [][]string{{"prompt", "--acp", "2", "hi"}, {"rpc", "call", "--acp", "2", "session/list"}} {
		code, out, errOut := tool(t, "", args...)
		if code != cmdline.ExitFailure || out != "" || !strings.Contains(errOut, "the gateway speaks version 1 of the protocol, not 2: leave out --acp 2") {
			t.Errorf("%q: exit %d\n%s\n%s", args, code, out, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "prompt", "--acp", "3", "hi"); code != cmdline.ExitUsage || !strings.Contains(errOut, "--acp 3: use 1 or 2") {
		t.Errorf("exit %d\n%s", code, errOut)
	}
}

// The idle state of a subagent is not the end of the turn.
func TestRPCCall_ASubagentEndsBeforeTheTurn(t *testing.T) {
	startTwo(t)
	_, made, _ := tool(t, "", "rpc", "call", "--acp", "2", "--agent", "mock2", "--json", "session/new", `{"cwd":"/tmp"}`)
	id := rawjson.MemberString([]byte(made), "sessionId")
	code, out, errOut := tool(t, "", "rpc", "call", "--acp", "2", "--session", id, "--raw", "--close", "session/prompt", `{"prompt":[{"type":"text","text":"child"}]}`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	end := []byte(lines[len(lines)-1])
	if code != cmdline.ExitOK || rawjson.MemberString(end, "params", "sessionId") != id || rawjson.MemberString(end, "params", "update", "stopReason") != "end_turn" {
		t.Errorf("exit %d, the last message is %s\n%s", code, end, errOut)
	}
}

// breaking returns the address of a proxy before a gateway whose connections can be cut.
func breaking(t *testing.T, url string) (address string, cut func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
		open = nil
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			gateway, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, gateway)
			mu.Unlock()
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = to.Close(), from.Close()
			}
			work.Go(func() { pass(client, gateway) })
			work.Go(func() { pass(gateway, client) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cut()
		work.Wait()
	})
	return "http://" + ln.Addr().String(), cut
}

// Connections that break lose nothing of a turn and show nothing twice, and its end is found.
func TestPrompt_GoesOnAfterBreaks(t *testing.T) {
	url := startTwo(t)
	inBothVersions(t, func(t *testing.T, speaks string) {
		for _, agent := range []string{"mock", "mock2"} {
			address, cut := breaking(t, url)
			out, errOut, signals, end := startTurnOf(t, promptOptions{target: target{endpoint: address}, acp: versionNumber(t, speaks), agent: agent, text: "slow"}, strings.NewReader(""))
			for _, tick := range []int{0, 5, 15, 25} {
				out.await(t, fmt.Sprintf("tick %d\\D", tick))
				cut()
			}
			out.await(t, `tick 30\D`)
			signals <- os.Interrupt
			if err := endOf(t, end); exitCode(err) != exitInterrupted {
				t.Errorf("%s: %v", agent, err)
			}
			errOut.await(t, "the connection to the gateway is lost, and is made again")
			errOut.await(t, "the connection to the gateway is there again, after [0-9.]+m?s; the turn went on")
			var want strings.Builder
			for i := range strings.Count(out.String(), "tick") {
				fmt.Fprintf(&want, "tick %d ", i)
			}
			want.WriteString("\n")
			if diff := cmp.Diff(want.String(), out.String()); diff != "" {
				t.Errorf("%s: what was said differs (-want +got):\n%s", agent, diff)
			}
		}
	})
}

// A turn whose session is deleted by another client has an end.
func TestPrompt_TheSessionIsDeleted(t *testing.T) {
	startTwo(t)
	inBothVersions(t, func(t *testing.T, speaks string) {
		out, errOut, _, end := startTurnIn(t, versionNumber(t, speaks), os.Getenv("SANDBOX_AGENT_ENDPOINT"), "slow", strings.NewReader(""))
		out.await(t, `\S`)
		id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut.String()), "session ")
		if code, _, e := tool(t, "", "sessions", "delete", id); code != cmdline.ExitOK {
			t.Fatalf("exit %d\n%s", code, e)
		}
		if err := endOf(t, end); err == nil {
			t.Error("the turn ended well")
		}
	})
}

// How a turn ended can be on its way still when its session is deleted, and comes no more. It comes behind the news that
// the session was closed.
func TestTurnEnds_SessionIsEnded(t *testing.T) {
	for _, tt := range []struct{ session, reason, want string }{
		{"other", "deleted", "end_turn <nil>"},
		{"s", "deleted", " session s was deleted by a client (code -32002)"},
		{"s", "closed", "end_turn <nil>"},
		{"s", "moved", "end_turn <nil>"},
	} {
		t.Run(tt.session+" "+tt.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := newTurnEnds()
				defer ends.expect("s")()
				note := func(method, params string) { ends.note(acp.NewNotification(method, []byte(params))) }
				note(acp.MethodSessionUpdate, `{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"m"}}`)
				var got string
				go func() {
					reason, err := ends.of(t.Context(), &link{ended: make(chan struct{})}, "s", "m")
					got = fmt.Sprint(reason, " ", err)
				}()
				note("_sandboxagent/session/ended", `{"sessionId":"`+tt.session+`","data":{"reason":"`+tt.reason+`","terminatedBy":"client"}}`)
				synctest.Wait()
				note(acp.MethodSessionUpdate, `{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}`)
				synctest.Wait()
				if got != tt.want {
					t.Errorf("the turn ended with %q, want %q", got, tt.want)
				}
			})
		})
	}
}
