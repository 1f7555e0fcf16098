package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// explainListen says who has the address that the gateway wants, and what can be
// done.
func explainListen(ctx context.Context, cfg serverConfig, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen: %w", err)
	}
	address := net.JoinHostPort(cfg.host, cfg.port)
	who := ""
	if pid, name := listener(cfg.port); pid != 0 {
		who = fmt.Sprintf(" by %s (process %d)", name, pid)
	}
	url := cmdline.LocalURL(cfg.host, cfg.port, nil, cfg.tlsCert != "")
	if answers(ctx, url) {
		return fmt.Errorf("%s is in use%s, which is a gateway already: use that one (sandbox-agent prompt --endpoint %s ...), stop it, or give this one another --port; 0 is any free one", address, who, url)
	}
	return fmt.Errorf("%s is in use%s: stop that program, or give another --port; 0 is any free one", address, who)
}
