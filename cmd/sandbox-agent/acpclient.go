package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// object is a JSON object that is built here.
type object = map[string]any

// meta is _meta with this gateway's own member.
func meta(own object) object { return object{acp.MetaKey: own} }

// meta is meta of what makes or opens a session.
func (l *link) meta(own object) object {
	all := object{}
	maps.Copy(all, own)
	if l.node != "" {
		all["node"] = l.node
	}
	return meta(all)
}

// initialize makes the connection one with the agent; "" leaves the choice to
// the gateway. capabilities are this client's own members of _meta.
func (l *link) initialize(ctx context.Context, agent string, capabilities object) (json.RawMessage, error) {
	return l.call(ctx, acp.MethodInitialize, initializeParams(agent, capabilities))
}

func initializeParams(agent string, capabilities object) object {
	params := object{
		"protocolVersion": 1,
		"clientCapabilities": object{
			"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false,
			"_meta": meta(capabilities),
		},
		"clientInfo": object{"name": "sandbox-agent", "title": "Sandbox Agent", "version": version},
	}
	if agent != "" {
		params["_meta"] = meta(object{"agent": agent})
	}
	return params
}

// initializeTwo makes the connection one of version 2 of the protocol.
func initializeTwo(agent string, capabilities object) object {
	params := object{
		"protocolVersion": acpversion.Two,
		"info":            object{"name": "sandbox-agent", "title": "Sandbox Agent", "version": version},
		"capabilities":    object{"_meta": meta(capabilities)},
	}
	if agent != "" {
		params["_meta"] = meta(object{"agent": agent})
	}
	return params
}

// initializeAs is initialize for commands whose user chooses the version. A gateway that
// does not speak it is an error.
func (l *link) initializeAs(ctx context.Context, version int, agent string, capabilities object) (json.RawMessage, error) {
	params, capable := initializeParams(agent, capabilities), "agentCapabilities"
	if version == acpversion.Two {
		params, capable = initializeTwo(agent, capabilities), "capabilities"
	}
	res, err := l.call(ctx, acp.MethodInitialize, params)
	if err != nil {
		return nil, err
	}
	if speaks, _ := rawjson.Member(res, "protocolVersion"); version == acpversion.Two && string(speaks) != strconv.Itoa(version) {
		return nil, fmt.Errorf("the gateway speaks version %s of the protocol, not %d: leave out --acp %d", speaks, version, version)
	}
	if l.node != "" && !rawjson.MemberBool(res, capable, "_meta", acp.MetaKey, "hub") {
		return nil, fmt.Errorf("--node %s: at --endpoint is a gateway and no hub: leave out --node", l.node)
	}
	return res, nil
}

// versionFlag says which version of the protocol a command speaks.
func versionFlag() cli.Flag {
	return &cli.IntFlag{Name: "acp", Usage: "version of the protocol to speak, 1 or 2", Value: acpversion.One}
}

func versionOf(c *cli.Context) (int, error) {
	v := c.Int("acp")
	if !slices.Contains(acpversion.All(), v) {
		return 0, cmdline.Usagef(c, "--acp %d: use 1 or 2", v)
	}
	return v, nil
}

// resume attaches to a session. own are members of _meta for the request.
func (l *link) resume(ctx context.Context, id, cwd string, own object) (json.RawMessage, error) {
	params := object{"sessionId": id, "cwd": cwd, "mcpServers": []any{}}
	if len(own) > 0 || l.node != "" {
		params["_meta"] = l.meta(own)
	}
	return l.call(ctx, acp.MethodSessionResume, params)
}

// sessionCwd returns the directory of a session, and its agent. A session that the gateway
// does not know may still be one of the agent that is named, else of the gateway's default:
// it is opened in the current directory. Without either it is not found.
func sessionCwd(ctx context.Context, t target, id, named string) (cwd, agent string, err error) {
	if t.hub != "" { // which knows where it is by now; else its node does
		hub, err := t.ofSessions().client()
		if err != nil {
			return "", "", err
		}
		if info, err := hub.Session(ctx, id); err == nil {
			return info.Cwd, cmp.Or(named, info.Agent), nil
		}
	}
	api, err := t.client()
	if err != nil {
		return "", "", err
	}
	info, err := api.Session(ctx, id)
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.SessionNotFound {
		return info.Cwd, cmp.Or(named, info.Agent), err
	}
	if named == "" {
		agents, failed := api.Agents(ctx)
		if failed != nil && !isGone(failed) { // a hub has none
			return "", "", failed
		}
		if !slices.ContainsFunc(agents, func(a runtime.AgentInfo) bool { return a.Default }) {
			return "", "", err
		}
	}
	cwd, err = os.Getwd()
	return cwd, named, err
}

// workDir returns the absolute directory that a new session works in.
func workDir(given string) (string, error) {
	dir, err := filepath.Abs(given)
	if err != nil {
		return "", fmt.Errorf("find working directory: %w", err)
	}
	return dir, nil
}
