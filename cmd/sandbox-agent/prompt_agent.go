package main

import (
	"context"
	"fmt"
	"strings"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// pickAgent returns the agent for a new session when the command names none: ""
// when the gateway has a default one, else what a person chooses.
func (t *turn) pickAgent(ctx context.Context) (string, error) {
	api, err := client.New(t.o.target.endpoint, client.Options{Token: t.o.target.token})
	if err != nil {
		return "", err
	}
	agents, err := api.Agents(ctx)
	if err != nil {
		return "", err
	}
	var all, ready []string
	for _, a := range agents {
		if a.Default {
			return "", nil
		}
		all = append(all, a.ID)
		if readyToWork(a) {
			ready = append(ready, a.ID)
		}
	}
	if t.o.interactive && len(ready) > 0 {
		i, ok := t.asker.choose(ctx, "Which agent?", ready, "leave")
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case ok && i >= 0:
			return ready[i], nil
		}
	}
	text := "no agent is named, and the gateway has no default one: give --agent with one of " + strings.Join(all, ", ")
	if len(ready) > 0 {
		text = fmt.Sprintf("no agent is named, and the gateway has no default one: give --agent %s; ready on this gateway: %s",
			ready[0], strings.Join(ready, ", "))
	}
	return "", &cmdline.Usage{Text: text, Command: "sandbox-agent prompt"}
}

// readyToWork reports whether an agent is likely to work without an installation
// or a login.
func readyToWork(a runtime.AgentInfo) bool {
	return a.Installed && a.AuthState != runtime.AuthRequired
}
