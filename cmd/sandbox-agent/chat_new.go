package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"
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
	switch {
	case refuses(opened.err), opened.id == m.session.id && m.begun: // chosen in the list by then
		return nil
	case opened.id == "":
		return &leftError{sessionUnanswered, errInterrupted}
	case m.begun: // another one was chosen
		ctx, cancel := context.WithTimeout(ctx, endPatience)
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			select {
			case <-told:
				cancel()
			case <-ctx.Done():
			}
		}()
		defer func() {
			cancel()
			<-heard
		}()
		return deleteUnused(ctx, c.target, opened.id, opened.agent)
	}
	fmt.Fprintf(std.err, "the session lives on: %s chat --session %s\n", programName(), opened.id)
	return nil
}

// deleteUnused deletes a session that was made and left, unless somebody has said something in it: others could find it meanwhile.
func deleteUnused(ctx context.Context, t target, id, agent string) error {
	api, err := t.client()
	if err != nil {
		return err
	}
	if s, err := api.Session(ctx, id); err == nil && s.Gist != "" {
		return nil
	}
	return ending{delete: true}.of(ctx, t, id, agent, nil)
}
