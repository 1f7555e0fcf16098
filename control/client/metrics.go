package client

import (
	"context"
	"fmt"
	"io"
)

// Metrics returns the server's metrics in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	resp, err := c.send(ctx, call{method: "GET", accept: "text/plain;version=0.0.4", path: []string{"metrics"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return text, nil
}
