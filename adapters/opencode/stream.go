package opencode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/sse"
)

const (
	// maxEvent bounds an event. At the bound the stream is opened again, and what
	// was in it is fetched.
	maxEvent = 64 << 20
	// silence is how long nothing comes from a stream that has died; a heartbeat
	// comes every ten seconds.
	silence = 35 * time.Second
)

// follow reads the stream of events, again and again until the process ends or
// is ended. connected is closed when it has begun.
func (s *server) follow(connected chan struct{}) {
	first := true
	pause := 50 * time.Millisecond
	for s.ctx.Err() == nil {
		err := s.read(func() {
			pause = 50 * time.Millisecond
			if first {
				first = false
				close(connected)
				return
			}
			s.a.refetch(s)
		})
		if s.ctx.Err() != nil {
			return
		}
		s.log.Debug("the stream of events broke", "err", err)
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-s.ctx.Done():
			wait.Stop()
			return
		}
		pause = min(2*pause, 2*time.Second)
	}
}

var errSilent = errors.New("the stream of events is silent")

// read reads one stream of events to its end; begun is called when it is known
// that from now on everything comes.
func (s *server) read(begun func()) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/global/event", nil)
	if err != nil {
		return fmt.Errorf("open the stream of events: %w", err)
	}
	r.SetBasicAuth(user, s.pass)
	s.toServer(r.Method, r.URL.Path, nil)
	resp, err := s.http.Do(r)
	if err != nil {
		return fmt.Errorf("open the stream of events: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("open the stream of events: HTTP %d", resp.StatusCode)
	}
	in := sse.NewDecoder(resp.Body, maxEvent)
	for {
		watchdog.Reset(silence)
		frame, err := in.Next()
		watchdog.Stop() // what follows may wait for the gateway
		if err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("read the stream of events: %w", err))
		}
		s.fromServer("event", frame.Data)
		e, err := parse(frame.Data)
		switch {
		case err != nil:
			s.a.unparsed(frame.Data, err)
		case e == nil:
		case e.Type == "server.connected":
			begun()
		default:
			s.a.take(s, e)
		}
	}
}
