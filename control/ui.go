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

// page serves the web page.
type page struct {
	files fs.FS // nil for none
	plain http.Handler
}

// NewPage returns what serves the web page in files at /ui/, and leads there from
// /ui and /. They are the same for everybody.
func NewPage(files fs.FS) http.Handler {
	p := &page{files: files}
	if files != nil {
		p.plain = http.StripPrefix("/ui", http.FileServerFS(files))
	}
	return p
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if !p.has(name) {
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
		if r.Header.Get("Range") != "" || !accepts(r, e.encoding) {
			continue
		}
		b, err := fs.ReadFile(p.files, name+e.suffix)
		if err != nil {
			continue
		}
		h.Set("Content-Encoding", e.encoding)
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		writeAll(w, nil, b)
		return
	}
	p.plain.ServeHTTP(timed{w, takesOf(w)}, r)
}

// has reports whether name is a file, or a directory with a page: listings
// of directories are not shown, nor compressed forms by themselves.
func (p *page) has(name string) bool {
	if p.files == nil {
		return false
	}
	for _, e := range uiEncodings {
		if strings.HasSuffix(name, e.suffix) {
			return false
		}
	}
	info, err := fs.Stat(p.files, name)
	if err == nil && info.IsDir() {
		_, err = fs.Stat(p.files, path.Join(name, "index.html"))
	}
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid)
}
