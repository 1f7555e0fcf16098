package bridgetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// ends ends the agent's process when it is about to be given a line with some text: who
// writes the line finds nobody who reads, and nobody has told of the end yet.
type ends struct {
	t    *testing.T
	text []byte
	pid  atomic.Int64 // 0 for not yet, and not again
}

func (e *ends) FromAgent([]byte) {}

func (e *ends) ToAgent(line []byte) {
	if !bytes.Contains(line, e.text) {
		return
	}
	if pid := int(e.pid.Swap(0)); pid != 0 {
		if err := killed(pid); err != nil {
			e.t.Error(err)
		}
	}
}

// killed kills a process and waits for its end.
func killed(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(Patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR): // by a signal of this process, such as that a child has ended
			continue
		case n != 1:
			return fmt.Errorf("process %d does not end: %w", pid, err)
		}
		return nil
	}
}

// DiesUnread checks who is told what when the agent's process dies before it is given a line
// that a request of a session needs: the connection ends with how the process did, the request
// is answered by nobody, and a prompt counts as one that was not taken. lines are what is in
// the lines, by request, in JSON; ID in a request is the session's id. open makes a World
// whose program is ready for it, own is the session's _meta.
func DiesUnread(t *testing.T, open func(t *testing.T) *World, own string, lines map[string]string) {
	t.Helper()
	lines[`{"method":"session/prompt","params":{"sessionId":"ID","prompt":[{"type":"text","text":"never read"}]}}`] = "never read"
	for request, line := range lines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			w, e := open(t), &ends{t: t, text: []byte(line)}
			w.Tap = e
			c := w.OpenAlone(schema.ClientCapabilities{}, nil)
			id := c.New(own)
			e.pid.Store(int64(c.Conn.(adapters.Process).PID()))
			var r struct {
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(request, "ID", string(id))), &r); err != nil {
				t.Fatal(err)
			}
			asked := c.Begin(r.Method, r.Params)
			err := c.Ended()
			if exit, ok := errors.AsType[*adapters.ExitError](err); !ok || exit.Signal != "SIGKILL" {
				t.Errorf("reading ended with %v", err)
			}
			for _, m := range c.Frames() {
				if m.IsResponse() && m.ID() == asked {
					t.Errorf("it was answered with %s", m.Frame())
				}
			}
			if r.Method == acp.MethodSessionPrompt && !c.Conn.(adapters.Untaker).Untaken(string(id)) {
				t.Error("the prompt counts as taken")
			}
		})
	}
}
