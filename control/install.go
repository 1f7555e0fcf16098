package control

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// maxInstallBody bounds the body of a request to install.
const maxInstallBody = 64 << 10

// installBody is what a request to install may say.
type installBody struct {
	AgentVersion string           `json:"agentVersion,omitempty"`
	Reinstall    bool             `json:"reinstall,omitempty"`
	Sources      []install.Source `json:"sources,omitempty"`
}

func (s *Server) installer() (Installer, error) {
	if s.o.Installer == nil {
		return nil, problem.New(problem.NotSupported, "this server does not install agents")
	}
	return s.o.Installer, nil
}

// installAgent installs an agent's program and answers when that is done, or,
// to who accepts an event stream, tells how far it is.
func (s *Server) installAgent(c echo.Context) error {
	in, err := s.installer()
	if err != nil {
		return err
	}
	agent, err := pathParam(c, "agent")
	if err != nil {
		return err
	}
	body, err := readInstallBody(c.Response(), c.Request())
	if err != nil {
		return err
	}
	f, leave, err := s.installs.join(in, install.Request{Agent: agent, Version: body.AgentVersion, Reinstall: body.Reinstall, Sources: body.Sources})
	if err != nil {
		return err
	}
	defer leave()
	r := c.Request()
	if strings.Contains(strings.ToLower(r.Header.Get("Accept")), sse.ContentType) {
		return s.streamInstall(c, f)
	}
	select {
	case <-f.ended:
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
	if f.err != nil {
		return noSuchAgent(f.err)
	}
	return s.writeJSON(c, f.result)
}

// readInstallBody reads the body, which may be empty.
func readInstallBody(w http.ResponseWriter, r *http.Request) (body installBody, err error) {
	b, err := ReadBody(w, r, maxInstallBody)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return body, err
	}
	return body, decodeBody(r, b, &body, "any of agentVersion, reinstall and sources")
}

// noSuchAgent makes an unknown agent's path one at which there is nothing.
func noSuchAgent(err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.UnsupportedAgent {
		return &problem.Error{Kind: problem.NotFound, Detail: p.Detail, Extensions: p.Extensions}
	}
	return err
}

// streamInstall writes progress and then the result or a problem. What fails
// before anything was done is an ordinary error answer.
func (s *Server) streamInstall(c echo.Context, f *flight) error {
	r := c.Request()
	out := newEventWriter(c.Response(), nil)
	begin := func() {
		if !c.Response().Committed {
			h := c.Response().Header()
			h.Set("Content-Type", sse.ContentType)
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no")
			c.Response().WriteHeader(http.StatusOK)
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var at reader
	for {
		news, more := at.next(f)
		for _, p := range news {
			begin()
			out.named("progress", p)
		}
		if len(news) > 0 && out.flush() != nil {
			return nil // the client is gone: there is nobody to tell
		}
		select {
		case <-more:
			continue
		case <-beat.C:
			begin()
			out.buf = append(out.buf, sse.Heartbeat...)
			if out.flush() != nil {
				return nil
			}
			continue
		case <-r.Context().Done():
			return nil
		case <-f.ended:
		}
		if news, _ := at.next(f); len(news) > 0 {
			begin()
			for _, p := range news {
				out.named("progress", p)
			}
		}
		err := noSuchAgent(f.err)
		if err != nil && !c.Response().Committed {
			return err
		}
		begin()
		if err != nil {
			out.named("error", s.shown(r, err))
		} else {
			out.named("result", f.result)
		}
		_ = out.flush() // the stream ends in either case
		return nil
	}
}

// getInstall says what of an agent is on this machine and where it came from.
func (s *Server) getInstall(c echo.Context) error {
	in, err := s.installer()
	if err != nil {
		return err
	}
	agent, err := pathParam(c, "agent")
	if err != nil {
		return err
	}
	status, err := in.Status(agent)
	if err != nil {
		return noSuchAgent(err)
	}
	return s.writeJSON(c, status)
}

func (s *Server) removeInstall(c echo.Context) error {
	in, err := s.installer()
	if err != nil {
		return err
	}
	agent, err := pathParam(c, "agent")
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(c.Request().Context())
	defer cancel()
	if err := in.Remove(ctx, agent); err != nil {
		return noSuchAgent(err)
	}
	return c.NoContent(http.StatusNoContent)
}

// getDoctor checks the machine and its agents.
func (s *Server) getDoctor(c echo.Context) error {
	in, err := s.installer()
	if err != nil {
		return err
	}
	var report install.Report
	err = s.holding(c.Request().Context(), s.examining, func(ctx context.Context) (err error) {
		report, err = in.Doctor(ctx, c.QueryParams()["agent"])
		return err
	})
	if err != nil {
		return err
	}
	return s.writeJSON(c, report)
}

// bounded returns a context that also ends when the server stops.
func (s *Server) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.stop, cancel)
	return ctx, func() { stop(); cancel() }
}
