package control

import (
	"cmp"
	"io"
	"mime"
	"net/http"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
)

// getFile sends a file, or the ranges of it that are asked for.
func (s *Server) getFile(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	f, e, err := r.fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil { // as most of /proc
		return problem.New(problem.NotAFile, "%s is made by the system while it is read and has no size: read it with a program, such as cat", path)
	}
	h := r.Response().Header()
	h.Set("ETag", e.ETag)
	h.Set("Cache-Control", "no-cache") // ask each time whether it changed
	// A page from somebody's workspace must not act with this server's origin.
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": e.Name}), "attachment"))
	out := newOutgoing(r)
	http.ServeContent(out, r.Request(), e.Name, e.ModifiedAt, f)
	switch out.refused {
	case 0:
		return nil
	case http.StatusPreconditionFailed:
		return problem.New(problem.PreconditionFailed, "%s has the ETag %s, which the request does not accept", path, e.ETag)
	case http.StatusRequestedRangeNotSatisfiable:
		return problem.New(problem.RangeNotSatisfiable, "%s has %d bytes, and the Range %q is no part of them", path, e.Size, r.Request().Header.Get("Range"))
	}
	return problem.New(problem.Internal, "%s could not be read", path)
}

// putFile makes a file of the body.
func (s *Server) putFile(r fileRequest) error {
	path, err := s.path(r, "path")
	if err != nil {
		return err
	}
	var o fs.WriteOptions
	if o.Mode, err = modeParam(r); err != nil {
		return err
	}
	if err := flags(r, map[string]*bool{"parents": &o.Parents, "sync": &o.Sync}); err != nil {
		return err
	}
	h := r.Request().Header
	if h.Get("Content-Range") != "" {
		return problem.New(problem.InvalidRequest, "a part of a file cannot be written: send all of it, without Content-Range")
	}
	match, none := strings.Join(h.Values("If-Match"), ","), strings.Join(h.Values("If-None-Match"), ",")
	o.New = strings.TrimSpace(none) == "*"
	o.Check = func(etag string) error { return checkETag(path, etag, match, none) }
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	in := newIncoming(r)
	defer in.done()
	e, created, err := r.fs.Write(path, in, o)
	if err != nil {
		return err
	}
	r.Response().Header().Set("ETag", e.ETag)
	r.Response().Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return r.JSON(status, e)
}

// checkETag compares a file's ETag, "" for no file, with the preconditions of a
// request.
func checkETag(path, etag, match, none string) error {
	state := "there is no such file"
	if etag != "" {
		state = "its ETag is " + etag
	}
	if match != "" && !matches(match, etag) {
		return problem.New(problem.PreconditionFailed, "%s was to be written if its ETag is %s, but %s", path, match, state).With("etag", etag)
	}
	if none != "" && matches(none, etag) {
		return problem.New(problem.PreconditionFailed, "%s was to be written unless its ETag is %s, but %s", path, none, state).With("etag", etag)
	}
	return nil
}

// matches reports whether a list of ETags has this one. ETags of files have no
// comma.
func matches(list, etag string) bool {
	if etag == "" {
		return false
	}
	for v := range strings.SplitSeq(list, ",") {
		if v = strings.TrimSpace(v); v == "*" || v == etag {
			return true
		}
	}
	return false
}
