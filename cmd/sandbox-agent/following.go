package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

const (
	followAgain  = 200 * time.Millisecond // until a stream that has ended is opened again,
	followLonger = 5 * time.Second        // when that has failed often
)

// opener opens a stream of the gateway's and shows what it says until it ends. It calls opened when
// there is one. The stream is to go on behind what was shown before; enough says that nobody wants
// more of it, and an error that is nil that it has ended.
type opener func(ctx context.Context, api *client.Client, opened func()) (enough bool, err error)

// follow keeps a stream open until Ctrl-C or --timeout: a gateway that ends is looked for until it is
// there again, as on its restart. It gives up for what does not go away by itself: what the stream is about
// is gone, which is no failure, or the gateway refuses it. The first stream is tried once.
func follow(c *cli.Context, std stdio, what string, open opener) error {
	t, err := targetOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	ctx, stop := interruptible(ctx)
	defer stop()
	begun := false
	var lost time.Time // since when there is no stream; zero while there is
	for pause := followAgain; ; pause = min(2*pause, followLonger) {
		api, err := t.client()
		if err != nil {
			return cmdline.Usagef(c, "%s", err)
		}
		enough, err := open(ctx, api, func() {
			if !lost.IsZero() {
				note(std, linkLine(lasting.Link{For: time.Since(lost)}, "", false))
			}
			begun, lost, pause = true, time.Time{}, followAgain
		})
		switch cause := context.Cause(ctx); {
		case enough:
			return nil
		case cause != nil:
			return cause
		case begun && isGone(err):
			note(std, what+" is gone")
			return nil
		case !begun || err != nil && !passes(err):
			return err
		}
		if lost.IsZero() {
			lost = time.Now()
			note(std, linkLine(lasting.Link{Lost: errConnectionLost}, "", false))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t = t.now(c)
	}
}

// now returns where the gateway is when it may have been started again: as a daemon it may have
// another address. While none runs that is where it was.
func (t target) now(c *cli.Context) target {
	if again, err := targetOf(c); err == nil && (again.endpoint != defaultEndpoint || t.endpoint == defaultEndpoint) {
		return again
	}
	return t
}

// isGone reports whether a gateway has answered that there is no such thing.
func isGone(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && p.Kind.Status() == http.StatusNotFound && !errors.Is(err, acphttp.ErrForeign)
}

// passes reports whether an error is one that goes away by itself: the gateway is not there, or can
// do nothing now.
func passes(err error) bool {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		switch p.Kind.Status() {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return cmdline.Unreachable(err)
}
