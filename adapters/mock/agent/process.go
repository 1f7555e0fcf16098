package agent

import (
	"fmt"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

const crashCode = 3

// hang waits for the end of the connection. Neither session/cancel nor
// $/cancel_request ends it.
func (t *turn) hang(string) (schema.StopReason, error) {
	<-t.a.closed
	return schema.StopReasonCancelled, nil
}

func (t *turn) crash(rest string) (schema.StopReason, error) {
	if ms, err := strconv.Atoi(rest); err == nil {
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
	_, _ = fmt.Fprint(t.a.stderr, "mock-agent: something terrible happened\nmock-agent: giving up\n")
	t.a.exit(crashCode)
	return "", nil
}

func (t *turn) ignoreEOF(string) (schema.StopReason, error) {
	signal.Ignore(syscall.SIGTERM)
	t.a.outlive.Store(true)
	return schema.StopReasonEndTurn, t.say("this process does not end by itself any more")
}

// forkChild leaves a process of another process group and session behind.
func (t *turn) forkChild(string) (schema.StopReason, error) {
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return schema.StopReasonEndTurn, t.say("child error: " + err.Error())
	}
	pid := cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return "", err
	}
	return schema.StopReasonEndTurn, t.say(fmt.Sprintf("child: %d", pid))
}
