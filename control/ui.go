package control

import (
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// uiPolicy says what the page may do: run the scripts of this server and no
// others, whatever an agent gets it to show. It may connect to other gateways,
// because people tell it to, and have styles of its own making, which the
// terminal needs.
const uiPolicy = "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; " +
	"connect-src 'self' http: https: ws: wss:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// uiEncodings are the forms in which a file of the page may stand beside itself,
// by their suffix, the smallest first.
var uiEncodings = []struct{ suffix, encoding string }{{".br", "br"}, {".gz", "gzip"}}

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
	h := w.Header()
	h.Set("Cache-Control", "no-cache") // the files change with the binary
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // their names change with them
	}
	h.Set("Content-Security-Policy", uiPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Add("Vary", "Accept-Encoding")
	if strings.HasSuffix(r.URL.Path, "/") {
		name = path.Join(name, "index.html")
	}
	for _, e := range uiEncodings {
		if s.o.UI == nil || r.Header.Get("Range") != "" || !accepts(r, e.encoding) {
			continue
		}
		b, err := fs.ReadFile(s.o.UI, name+e.suffix)
		if err != nil {
			continue
		}
		h.Set("Content-Encoding", e.encoding)
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		writeAll(w, b)
		return
	}
	s.ui.ServeHTTP(w, r)
}

// hasFile reports whether name is a file, or a directory with a page: listings
// of directories are not shown, nor compressed forms by themselves.
func (s *Server) hasFile(name string) bool {
	if s.ui == nil {
		return false
	}
	for _, e := range uiEncodings {
		if strings.HasSuffix(name, e.suffix) {
			return false
		}
	}
	info, err := fs.Stat(s.o.UI, name)
	if err == nil && info.IsDir() {
		_, err = fs.Stat(s.o.UI, path.Join(name, "index.html"))
	}
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid)
}
