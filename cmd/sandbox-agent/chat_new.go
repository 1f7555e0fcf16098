package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// chatNew is the session that a chat begins, whose id only the gateway's answer tells: who leaves before it has come waits
// for it a little, because nobody else learns it.
type chatNew struct {
	mu       sync.Mutex
	asked    bool
	left     bool            // the chat has ended: it is not asked for any more
	answered chan chatOpened // gets the one answer
}

// ask reports whether the gateway may still be asked, and notes that it is. What it says is then given to answered.
func (n *chatNew) ask() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = !n.left
	return n.asked
}

// leave says that the chat has ended. It reports whether an answer comes.
func (n *chatNew) leave() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = true
	return n.asked
}

// leavesNew is the end of a chat that has not seen what became of its new session.
func (c *chatSession) leavesNew(ctx context.Context, m *chatModel, std stdio) error {
	if !c.fresh.leave() {
		return nil
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, leaving...)
	defer signal.Stop(told)
	var opened chatOpened
	select {
	case opened = <-c.fresh.answered: // it has come already
	default:
		fmt.Fprintln(std.err, "waiting for the id of the session, Ctrl-C again to leave at once")
		select {
		case opened = <-c.fresh.answered:
		case <-told:
		case <-time.After(cancelPatience):
		}
	}
	_, refused := errors.AsType[*acp.Error](opened.err)
	switch {
	case refused:
		return nil
	case opened.id == "":
		return &leftError{sessionUnanswered, errInterrupted}
	case m.begun: // another one was chosen, and nobody has said anything in this one
		return ending{delete: true}.of(ctx, c.target, opened.id, opened.agent, nil)
	}
	fmt.Fprintf(std.err, "the session lives on: %s chat --session %s\n", programName(), opened.id)
	return nil
}
