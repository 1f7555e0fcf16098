package control

import (
	"context"
	"net/http"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
)

// listEntries returns a page of what is in a folder.
func (s *Server) listEntries(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	o := fs.ListOptions{Sort: fs.Sort(r.QueryParam("sort")), Cursor: r.QueryParam("cursor")}
	if o.Limit, err = limitParam(r); err != nil {
		return err
	}
	if err := flags(r, map[string]*bool{"recursive": &o.Recursive, "hidden": &o.Hidden}); err != nil {
		return err
	}
	if o.Descending, err = descending(r.QueryParam("order")); err != nil {
		return err
	}
	page, err := r.fs.List(r.Request().Context(), path, o)
	if err != nil {
		return err
	}
	return s.writeJSON(r, page)
}

// descending reads in which order entries are wanted.
func descending(order string) (bool, error) {
	switch order {
	case "", "asc", "desc":
		return order == "desc", nil
	}
	return false, problem.New(problem.InvalidRequest, "order must be asc or desc, not %q", order).With("parameter", "order")
}

func (s *Server) statEntry(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	follow := false
	if err := flags(r, map[string]*bool{"follow": &follow}); err != nil {
		return err
	}
	e, err := r.fs.Stat(path, follow)
	if err != nil {
		return err
	}
	return s.writeJSON(r, e)
}

func (s *Server) makeDirectory(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	mode, err := modeParam(r)
	if err != nil {
		return err
	}
	parents := false
	if err := flags(r, map[string]*bool{"parents": &parents}); err != nil {
		return err
	}
	perm := fs.NewDirectory
	if mode != nil {
		perm = *mode
	}
	e, err := r.fs.Mkdir(path, perm, parents)
	if err != nil {
		return err
	}
	return s.writeJSON(r, e)
}

func (s *Server) moveEntry(r fileRequest) error { return s.placeEntry(r, r.fs.Move) }
func (s *Server) copyEntry(r fileRequest) error { return s.placeEntry(r, r.fs.Copy) }

func (s *Server) placeEntry(r fileRequest, place func(ctx context.Context, from, to string, o fs.PlaceOptions) (fs.Entry, error)) error {
	from, err := s.path(r, "from")
	if err != nil {
		return err
	}
	to, err := s.path(r, "to")
	if err != nil {
		return err
	}
	var o fs.PlaceOptions
	if err := flags(r, map[string]*bool{"overwrite": &o.Overwrite, "parents": &o.Parents}); err != nil {
		return err
	}
	e, err := place(r.Request().Context(), from, to, o)
	if err != nil {
		return err
	}
	return s.writeJSON(r, e)
}

func (s *Server) deleteEntry(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	recursive := false
	if err := flags(r, map[string]*bool{"recursive": &recursive}); err != nil {
		return err
	}
	if err := r.fs.Delete(path, recursive); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}
