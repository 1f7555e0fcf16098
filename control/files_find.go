package control

import (
	"context"
	"net/http"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fs"
)

// maxSearches bounds the searches and runs of git at one time; others wait as
// long as their clients do.
const maxSearches = 8

// holding does work while it holds one of places, which is free again before the answer is sent: a client that reads
// slowly, or not at all, keeps no other one waiting.
func (s *Server) holding(ctx context.Context, places chan struct{}, work func(ctx context.Context) error) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
		if err := work(ctx); err == nil || s.stop.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	return errStopping()
}

// searchFiles finds names and lines.
func (s *Server) searchFiles(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	o := fs.SearchOptions{Name: r.QueryParam("name"), Content: r.QueryParam("content"), Cursor: r.QueryParam("cursor")}
	if o.Limit, err = limitParam(r); err != nil {
		return err
	}
	if err := flags(r, map[string]*bool{"regexp": &o.Regexp, "ignoreCase": &o.IgnoreCase, "hidden": &o.Hidden, "ignored": &o.Ignored}); err != nil {
		return err
	}
	var found fs.Found
	ctx := r.Request().Context()
	err = s.holding(ctx, s.searches, func(ctx context.Context) (err error) {
		found, err = r.fs.Search(ctx, path, o)
		return err
	})
	if err != nil {
		return err
	}
	return s.writeJSON(r, found)
}

// watchFiles streams the changes in a folder until the client leaves, the
// server stops, or the folder is gone. A client that does not keep up is told
// so by a change of type overflow.
func (s *Server) watchFiles(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	var o fs.WatchOptions
	if err := flags(r, map[string]*bool{"recursive": &o.Recursive, "hidden": &o.Hidden}); err != nil {
		return err
	}
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return problem.New(problem.TooManyRequests, "%d folders are watched, which is the most that this server does at one time", cap(s.watchers))
	}
	ctx, cancel := s.bounded(r.Request().Context())
	defer cancel()
	out := newEventWriter(r.Response(), nil)
	changes := make(chan fs.Change) // what waits, waits in the system's queue
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	ended := make(chan error, 1)
	go func() {
		ended <- r.fs.Watch(ctx, path, o, func(c fs.Change) error {
			select {
			case changes <- c:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	err = out.stream(ctx, changes, ended)
	cancel()
	if err != nil {
		<-ended // the client is gone
	}
	return nil
}

// stream writes changes as they come. It returns an error when the client takes
// nothing any more; otherwise the watch has ended.
func (w *eventWriter) stream(ctx context.Context, changes <-chan fs.Change, ended <-chan error) error {
	h := w.w.Header()
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.w.WriteHeader(http.StatusOK)
	w.named("ready", struct{}{})
	if err := w.flush(); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case c := <-changes:
			w.named("change", c)
		case <-beat.C:
			w.buf = append(w.buf, sse.Heartbeat...)
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				w.fail(problem.From(fileProblem(err)))
			}
			return nil
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
}

func (s *Server) gitStatus(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	recent := false
	if err := flags(r, map[string]*bool{"recent": &recent}); err != nil {
		return err
	}
	var st fs.GitStatus
	ctx := r.Request().Context()
	err = s.holding(ctx, s.searches, func(ctx context.Context) (err error) {
		if st, err = r.fs.GitStatus(ctx, path); err == nil && recent {
			st.Recent, err = r.fs.GitRecent(ctx, path, st.Commit)
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.writeJSON(r, st)
}

// gitDiff answers with a patch.
func (s *Server) gitDiff(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	o := fs.DiffOptions{Base: r.QueryParam("base")}
	if err := flags(r, map[string]*bool{"staged": &o.Staged, "binary": &o.Binary}); err != nil {
		return err
	}
	share, ctx, end := s.share(r)
	defer end()
	var patch []byte
	cut := false
	for room := 0; patch == nil; { // what has no room is made once more when it has: nothing waits that is not counted
		size := 0
		err = s.holding(ctx, s.searches, func(ctx context.Context) (err error) {
			if patch, cut, err = r.fs.GitDiff(ctx, path, o); err != nil {
				return err
			}
			if size = len(patch); size > room && !share.Try(size-room) {
				patch = nil
			} else if patch == nil {
				patch = []byte{}
			}
			return nil
		})
		if err == nil && patch == nil && (room > 0 || share.Take(ctx, size) != nil) {
			err = errMemory()
		}
		if err != nil {
			return err
		}
		room = max(room, size)
	}
	h := r.Response().Header()
	h.Set("Content-Type", "text/x-diff")
	h.Set("Cache-Control", "no-store")
	if cut {
		h.Set(truncatedHeader, "true")
	}
	writeAll(r.Response(), share, patch)
	return nil
}
