package client

import (
	"context"
	"net/http"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// Permissions lists what clients have allowed a session's agent for more than one call, the oldest first.
func (c *Client) Permissions(ctx context.Context, id string) ([]runtime.Grant, error) {
	body, err := get[struct{ Permissions []runtime.Grant }](ctx, c, nil, "v2", "sessions", id, "permissions")
	return body.Permissions, err
}

// ForgetPermission takes one of them back: the agent asks again. It returns what does not count any more: some agents forget more than
// they were asked to.
func (c *Client) ForgetPermission(ctx context.Context, id, grant string) ([]runtime.Grant, error) {
	return c.forget(ctx, "v2", "sessions", id, "permissions", grant)
}

// ForgetPermissions takes back all that can be.
func (c *Client) ForgetPermissions(ctx context.Context, id string) ([]runtime.Grant, error) {
	return c.forget(ctx, "v2", "sessions", id, "permissions")
}

func (c *Client) forget(ctx context.Context, path ...string) ([]runtime.Grant, error) {
	var body struct{ Forgotten []runtime.Grant }
	err := c.do(ctx, http.MethodDelete, nil, &body, path...)
	return body.Forgotten, err
}
