package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsWatchCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "watch",
		Usage: "print how the list of sessions changes, until Ctrl-C",
		Description: `Begins with all sessions, unless --after says how far they are known. A gateway that ends is looked for until it is there
again; what has not changed meanwhile is not shown again. With --json every change is one line, as it was sent, with its position: then a gateway that was
started again tells all sessions behind a "reset". At a hub these are the sessions of all nodes that the token is for, and another hub of the same store
begins with a "reset", too.`,
		Flags: targetFlags(
			&cli.Uint64Flag{Name: "after", Usage: "begin behind this position of a change or a list"},
			&cli.IntFlag{Name: "limit", Usage: "the most changes to print, 0 is all"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			return sessionsWatch(c, std)
		},
	}
}

func sessionsWatch(c *cli.Context, std stdio) error {
	limit := c.Int("limit")
	if limit < 0 {
		return cmdline.Usagef(c, "--limit cannot be negative")
	}
	w := &changePrinter{c: c, std: std, after: c.Uint64("after"), limit: limit, shown: map[string]string{}}
	return follow(c, std, "the list of sessions", w.follow)
}

// changePrinter prints how the list of sessions changes.
type changePrinter struct {
	c     *cli.Context
	std   stdio
	after uint64 // position of the change that was told last
	limit int    // the most to print, 0 is all
	n     int

	shown map[string]string   // what was printed of each session last
	anew  map[string]struct{} // sessions of a list that is told from its beginning; nil when none is
}

// listChange is a change as it was sent.
type listChange struct {
	runtime.SessionChange
	node string // of the session, "" from a gateway
	sent json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *listChange) UnmarshalJSON(b []byte) error {
	var at struct{ Session struct{ Node string } }
	if err := errors.Join(json.Unmarshal(b, &l.SessionChange), json.Unmarshal(b, &at)); err != nil {
		return err
	}
	l.node, l.sent = at.Session.Node, bytes.Clone(b)
	return nil
}

// follow is an [opener].
func (w *changePrinter) follow(ctx context.Context, api *client.Client, opened func()) (enough bool, err error) {
	for change, err := range client.FollowSessionsAs[listChange](ctx, api, w.after, opened) {
		if err != nil {
			return false, err
		}
		if change.Position > 0 {
			w.after = change.Position
		}
		if w.c.Bool("json") {
			cmdline.WriteJSON(w.std.out, change.sent)
			w.n++
		} else {
			for _, line := range w.lines(change) {
				fmt.Fprintln(w.std.out, line)
				w.n++
			}
		}
		if w.n >= w.limit && w.limit > 0 {
			return true, nil
		}
	}
	return false, nil
}

// lines shows a change to people, unless they see no difference. A gateway that was started again tells all
// sessions anew: those that are not there any more were deleted.
func (w *changePrinter) lines(change listChange) (lines []string) {
	switch change.Type {
	case runtime.ChangeReset:
		w.anew = map[string]struct{}{}
	case runtime.ChangeCurrent:
		if w.anew == nil {
			return nil
		}
		for _, id := range slices.Sorted(maps.Keys(w.shown)) {
			if _, there := w.anew[id]; !there {
				lines = append(lines, deletedLine(id))
				delete(w.shown, id)
			}
		}
		w.anew = nil
	case runtime.ChangeDeleted:
		if w.anew != nil {
			delete(w.anew, change.SessionID) // it is told with the others, if it was shown
			return nil
		}
		delete(w.shown, change.SessionID)
		return []string{deletedLine(change.SessionID)}
	case runtime.ChangeSession:
		id, line := change.Session.ID, changeLine(change.Session, change.node)
		if w.anew != nil {
			w.anew[id] = struct{}{}
		}
		if w.shown[id] == line { // what has changed is not in it
			return nil
		}
		w.shown[id] = line
		return []string{line}
	}
	return lines
}

func deletedLine(id string) string { return fmt.Sprintf("%s  %-8s", id, "deleted") }

// changeLine shows a session to people.
func changeLine(s *runtime.SessionInfo, node string) string {
	agent := s.Agent
	if node != "" {
		agent += " at " + node
	}
	line := fmt.Sprintf("%s  %-8s  %s  %s  %d events", s.ID, s.State, agent, cmdline.Clock(s.UpdatedAt), s.EventCount)
	if s.Pending > 0 {
		line += fmt.Sprintf(", %d to answer", s.Pending)
	}
	if s.Cost != nil {
		line += fmt.Sprintf(", %.4g %s", s.Cost.Amount, s.Cost.Currency)
	}
	if title := cmp.Or(s.Title, s.Gist); title != "" {
		line += "  " + cmdline.Shorten(cmdline.OneLine(title), 40)
	}
	return line
}
