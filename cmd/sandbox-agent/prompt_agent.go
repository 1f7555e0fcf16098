package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// pickAgent returns the agent for a new session when the command names none: ""
// when the gateway has a default one, else what a person chooses.
func (t *turn) pickAgent(ctx context.Context) (string, error) {
	api, err := t.o.target.client()
	if err != nil {
		return "", err
	}
	agents, err := api.Agents(ctx)
	if isGone(err) {
		return "", nil // a hub lists none: its nodes have them, and one that has a default agent takes the session
	}
	if err != nil {
		return "", err
	}
	var all, ready []string
	for _, a := range agents {
		if a.Default {
			return "", nil
		}
		all = append(all, a.ID)
		if lacks(a) == "" {
			ready = append(ready, a.ID)
		}
	}
	if t.o.interactive && len(agents) > 0 {
		steps := func(a runtime.AgentInfo) int { // until it works
			switch {
			case lacks(a) == "":
				return 0
			case a.Installed:
				return 1
			}
			return 2
		}
		slices.SortStableFunc(agents, func(a, b runtime.AgentInfo) int { return cmp.Compare(steps(a), steps(b)) })
		var shown []string
		for _, a := range agents {
			shown = append(shown, strings.TrimSuffix(a.ID+": "+lacks(a), ": "))
		}
		i, ok := t.asker.choose(ctx, "Which agent?", shown, "leave")
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case ok && i >= 0:
			return agents[i].ID, nil
		}
	}
	text := "no agent is named, and the gateway has no default one: give --agent with one of " + strings.Join(all, ", ")
	if len(ready) > 0 {
		text = fmt.Sprintf("no agent is named, and the gateway has no default one: give --agent %s; ready on this gateway: %s",
			ready[0], strings.Join(ready, ", "))
	}
	return "", &cmdline.Usage{Text: text, Command: "sandbox-agent prompt"}
}

// lacks says what an agent needs before it works, as far as that is known; "" for nothing.
func lacks(a runtime.AgentInfo) string {
	switch {
	case !a.Installed:
		return "not installed, which is done first"
	case a.AuthState == runtime.AuthRequired:
		return "needs a login, with " + programName() + " agents login " + a.ID
	}
	return ""
}
