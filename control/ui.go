package control

import (
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// serveUI serves the web page's files. They are the same for everybody.
func (s *Server) serveUI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		problem.Write(w, problem.New(problem.MethodNotAllowed, "%s does not accept %s", r.URL.Path, r.Method))
		return
	}
	if routeOf(r.URL.Path) == routeToUI {
		http.Redirect(w, r, "/ui/", http.StatusFound)
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/ui")
	name = strings.TrimPrefix(name, "/")
	if name == "" {
		name = "."
	}
	if !s.hasFile(name) {
		problem.Write(w, problem.New(problem.NotFound, "there is no file at %s", r.URL.Path))
		return
	}
	w.Header().Set("Cache-Control", "no-cache") // the files change with the binary
	w.Header().Set("X-Frame-Options", "DENY")
	w.Header().Set("Referrer-Policy", "no-referrer")
	s.ui.ServeHTTP(w, r)
}

// hasFile reports whether name is a file, or a directory with a page: listings
// of directories are not shown.
func (s *Server) hasFile(name string) bool {
	if s.ui == nil {
		return false
	}
	info, err := fs.Stat(s.o.UI, name)
	if err == nil && info.IsDir() {
		_, err = fs.Stat(s.o.UI, path.Join(name, "index.html"))
	}
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid)
}
