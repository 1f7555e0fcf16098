package claude

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// TestStuck_AtTheStart: a program that never gets ready is ended when the client
// gives up, and nothing is left of it.
func TestStuck_AtTheStart(t *testing.T) {
	state := t.TempDir()
	conn := openPlayerAs(t, state, "silent")
	cwd, _ := schema.Encode(t.TempDir())
	if err := conn.Write(t.Context(), acp.NewRequest("1", acp.MethodSessionNew, []byte(`{"cwd":`+string(cwd)+`,"mcpServers":[]}`))); err != nil {
		t.Fatal(err)
	}
	for { // its record is made before it is started
		if made, _ := filepath.Glob(filepath.Join(state, "sessions", "*")); len(made) > 0 {
			break
		}
		time.Sleep(time.Millisecond) // there is no event for it
	}
	if err := conn.Write(t.Context(), acp.NewNotification(acp.MethodCancelRequest, []byte(`{"requestId":1}`))); err != nil {
		t.Fatal(err)
	}
	m, err := conn.Read(t.Context())
	if err != nil || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
		t.Errorf("session/new ended with %s, %v", m.Frame(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestStuck_InATurn: a turn that does not end when it is interrupted ends with
// its process, as does one whose prompt the program does not read.
func TestStuck_InATurn(t *testing.T) {
	defer func(d time.Duration) { cancelBound = d }(cancelBound)
	cancelBound = 200 * time.Millisecond
	t.Run("interrupted", func(t *testing.T) { stuckInATurn(t, "deaf", "go", "on and on") })
	t.Run("unread", func(t *testing.T) {
		stuckInATurn(t, "unread", strings.Repeat("more than a pipe holds ", 1<<13), "session_info_update")
	})
}

// stuckInATurn cancels a turn when the program has shown something.
func stuckInATurn(t *testing.T, mode, prompt, shown string) {
	conn := openPlayerAs(t, t.TempDir(), mode)
	id := newPlayed(t, conn)
	if err := conn.Write(t.Context(), acp.NewRequest("2", acp.MethodSessionPrompt, []byte(`{"sessionId":"`+id+`","prompt":[{"type":"text","text":"`+prompt+`"}]}`))); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := conn.Read(t.Context())
		if err != nil {
			if _, ok := errors.AsType[*adapters.ExitError](err); !ok {
				t.Errorf("reading ended with %v", err)
			}
			return
		}
		if m.IsResponse() { // if it is answered at all
			if rawjson.MemberString(m.Result(), "stopReason") != "cancelled" {
				t.Errorf("the prompt was answered: %s", m.Frame())
			}
			if mode == "unread" { // on a busy machine it was cancelled before the program was given any of it
				return
			}
		}
		if strings.Contains(string(m.Frame()), shown) {
			if err := conn.Write(t.Context(), acp.NewNotification(acp.MethodSessionCancel, []byte(`{"sessionId":"`+id+`"}`))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestStuck_TooManyQuestions: at the bound a question of the turn is refused, like any other.
func TestStuck_TooManyQuestions(t *testing.T) {
	conn := openPlayerAs(t, t.TempDir(), "crowded")
	id := newPlayed(t, conn)
	if err := conn.Write(t.Context(), acp.NewRequest("2", acp.MethodSessionPrompt, []byte(`{"sessionId":"`+id+`","prompt":[{"type":"text","text":"go"}]}`))); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !m.IsResponse() {
			continue
		}
		if m.Err() == nil || m.Err().Message != "too many questions are open" {
			t.Errorf("the question was answered, and the prompt with it: %s", m.Frame())
		}
		return
	}
}

// TestStuck_DeathInEachState: when the process is killed, reading ends with the
// signal, and no prompt is answered as if it had ended well.
func TestStuck_DeathInEachState(t *testing.T) {
	for state, mode := range map[string]string{"idle": "1", "streaming": "deaf", "asking": "asking", "cancelling": "deaf"} {
		t.Run(state, func(t *testing.T) {
			conn := openPlayerAs(t, t.TempDir(), mode)
			id := newPlayed(t, conn)
			if state != "idle" {
				if err := conn.Write(t.Context(), acp.NewRequest("2", acp.MethodSessionPrompt, []byte(`{"sessionId":"`+id+`","prompt":[{"type":"text","text":"go"}]}`))); err != nil {
					t.Fatal(err)
				}
				for {
					m, err := conn.Read(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if m.Method() == acp.MethodSessionRequestPermission || strings.Contains(string(m.Frame()), "on and on") {
						break
					}
				}
			}
			pid := conn.(adapters.Process).PID()
			if state == "cancelling" {
				_ = bridgetest.Stop(pid)
				if err := conn.Write(t.Context(), acp.NewNotification(acp.MethodSessionCancel, []byte(`{"sessionId":"`+id+`"}`))); err != nil {
					t.Fatal(err)
				}
			}
			if err := bridgetest.Kill(pid); err != nil {
				t.Fatal(err)
			}
			for {
				m, err := conn.Read(t.Context())
				if err != nil {
					if exit, ok := errors.AsType[*adapters.ExitError](err); !ok || exit.Signal != "SIGKILL" {
						t.Errorf("reading ended with %v", err)
					}
					return
				}
				if m.IsResponse() && m.Err() == nil {
					t.Errorf("the prompt was answered: %s", m.Frame())
				}
			}
		})
	}
}

// TestStart_WithoutAProgram: errors that say what to do.
func TestStart_WithoutAProgram(t *testing.T) {
	_, err := New().Open(t.Context(), adapters.Options{StateDir: t.TempDir()})
	if _, ok := errors.AsType[*adapters.NotInstalledError](err); !ok {
		t.Errorf("opening without a program: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(bad, []byte("#!/bin/sh\necho 'this machine is too old' >&2\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	conn, err := New().Open(t.Context(), adapters.Options{StateDir: t.TempDir(), Program: adapters.Program{Path: bad}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cwd, _ := schema.Encode(t.TempDir())
	if err := conn.Write(t.Context(), acp.NewRequest("1", acp.MethodSessionNew, []byte(`{"cwd":`+string(cwd)+`,"mcpServers":[]}`))); err != nil {
		t.Fatal(err)
	}
	m, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := m.Err(); e == nil || !strings.Contains(e.Message, "too old") || !strings.Contains(e.Message, "code 7") || !strings.Contains(string(e.Data), "exitCode") {
		t.Errorf("session/new: %s", m.Frame())
	}
}
