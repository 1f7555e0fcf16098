package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// InstallRequest says what to install; its zero value asks for whatever is
// there, and the newest version if nothing is.
type InstallRequest struct {
	AgentVersion string           `json:"agentVersion,omitempty"` // exact, or [install.Latest]
	Reinstall    bool             `json:"reinstall,omitempty"`    // even if it is there
	Sources      []install.Source `json:"sources,omitempty"`      // instead of the server's
}

// Install makes sure that an agent's program is installed at the server.
// progress, which may be nil, is called by the calling goroutine. When ctx ends
// and nobody else waits for it, the installation ends too.
func (c *Client) Install(ctx context.Context, agent string, r InstallRequest, progress func(install.Progress)) (install.Result, error) {
	var result install.Result
	body, err := json.Marshal(r)
	if err != nil {
		return result, fmt.Errorf("make request: %w", err)
	}
	resp, err := c.send(ctx, call{method: http.MethodPost, path: []string{"v2", "agents", agent, "install"}, accept: sse.ContentType, body: body})
	if err != nil {
		return result, err
	}
	defer resp.Body.Close()
	dec := sse.NewDecoder(resp.Body, maxEvent)
	for {
		ev, err := dec.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return result, fmt.Errorf("read the installation's progress: %w", err)
		}
		switch ev.Type {
		case "progress":
			var p install.Progress
			if err := json.Unmarshal(ev.Data, &p); err != nil {
				return result, fmt.Errorf("read the installation's progress: %w", err)
			}
			if progress != nil {
				progress(p)
			}
		case "result":
			if err := json.Unmarshal(ev.Data, &result); err != nil {
				return result, fmt.Errorf("read the installation's result: %w", err)
			}
			return result, nil
		case "error":
			if p := acphttp.DecodeProblem(ev.Data); p != nil {
				return result, p
			}
			return result, fmt.Errorf("install %s: the server ended the installation: %s", agent, ev.Data)
		}
	}
}

// InstallStatus returns what of an agent is on the server's machine.
func (c *Client) InstallStatus(ctx context.Context, agent string) (install.Status, error) {
	return get[install.Status](ctx, c, nil, "v2", "agents", agent, "install")
}

// RemoveInstall removes every installed version of an agent's program.
func (c *Client) RemoveInstall(ctx context.Context, agent string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, "v2", "agents", agent, "install")
}

// Doctor checks the server's machine and agents, those that are named or all.
func (c *Client) Doctor(ctx context.Context, agents ...string) (install.Report, error) {
	return get[install.Report](ctx, c, url.Values{"agent": agents}, "v2", "doctor")
}
