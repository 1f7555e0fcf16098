package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// askSession has a node say what a session of it is. One that does not answer within tellBound is taken to be away: its tunnel can be
// there while the gateway hangs.
func askSession(ctx context.Context, of *client.Client, node, id string) (runtime.SessionInfo, error) {
	within, cancel := context.WithTimeout(ctx, tellBound)
	defer cancel()
	got, err := of.Session(within, id)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = problem.New(problem.NodeOffline, "%s has not answered for %v", node, tellBound)
	}
	return got, err
}

// request is one that the hub itself sends to a node's gateway.
type request struct {
	method string
	params any
}

// tellNode sends requests about a session of an agent to a node's gateway by ACP, one after the other; the
// first that is refused ends it. The agent is named: a gateway need not have one for those who name none.
func (h *Hub) tellNode(ctx context.Context, t store.Token, node, agent string, requests ...request) error {
	conn, err := (nodes{h}).dial(ctx, t, node)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	all := append([]request{{acp.MethodInitialize, map[string]any{
		"protocolVersion": 1, "clientCapabilities": map[string]any{}, "_meta": map[string]any{acp.MetaKey: map[string]any{"agent": agent}},
	}}}, requests...)
	for i, r := range all {
		if err := askOn(ctx, conn, int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

// askOn sends a request and waits for its answer. What else comes is for clients.
func askOn(ctx context.Context, conn acp.Conn, id int64, r request) error {
	params, err := json.Marshal(r.params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.method, err)
	}
	if err := conn.Write(ctx, acp.NewRequest(acp.IntID(id), r.method, params)); err != nil {
		return problem.Wrap(problem.NodeOffline, err, "%s could not be sent", r.method)
	}
	for {
		m, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if !m.IsResponse() || m.ID() != acp.IntID(id) {
			continue
		}
		if e := m.Err(); e != nil {
			return refusalOf(e)
		}
		return nil
	}
}

// refusalOf is the problem that an error of a node is.
func refusalOf(e *acp.Error) error {
	kind := problem.Kind(rawjson.MemberString(e.Data, "type"))
	if len(kind) > len(problem.Prefix) && string(kind[:len(problem.Prefix)]) == problem.Prefix {
		if kind = kind[len(problem.Prefix):]; kind.Status() != 0 {
			return problem.New(kind, "%s", e.Message)
		}
	}
	return problem.New(problem.AgentError, "%s", e.Message)
}
