package control

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

// Files of the page are served in the smallest form that the client takes, and
// never as the compressed file that they stand in.
func TestServer_PageIsServedCompressed(t *testing.T) {
	s := newServer(t, Options{UI: fstest.MapFS{
		"index.html": {Data: []byte("<p>page")}, "index.html.br": {Data: []byte("page in br")},
		"assets/a-1.js": {Data: []byte("code")}, "assets/a-1.js.br": {Data: []byte("code in br")}, "assets/a-1.js.gz": {Data: []byte("code in gzip")},
		"icon.svg": {Data: []byte("<svg/>")},
	}})
	for _, tt := range []struct {
		path, accepts        string
		status               int
		encoding, kind, body string
	}{
		{"/ui/assets/a-1.js", "gzip, deflate, br", 200, "br", "text/javascript", "code in br"},
		{"/ui/assets/a-1.js", "gzip", 200, "gzip", "text/javascript", "code in gzip"},
		{"/ui/assets/a-1.js", "br;q=0, gzip;q=0.5", 200, "gzip", "text/javascript", "code in gzip"},
		{"/ui/assets/a-1.js", "", 200, "", "text/javascript", "code"},
		{"/ui/", "br", 200, "br", "text/html", "page in br"},
		{"/ui/icon.svg", "br", 200, "", "image/svg+xml", "<svg/>"},
		{"/ui/assets/a-1.js.br", "br", 404, "", "application/problem+json", ""},
	} {
		r := httptest.NewRequest("GET", "http://localhost"+tt.path, nil)
		r.Header.Set("Accept-Encoding", tt.accepts)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		h := w.Header()
		if w.Code != tt.status || h.Get("Content-Encoding") != tt.encoding || !strings.HasPrefix(h.Get("Content-Type"), tt.kind) || tt.body != "" && w.Body.String() != tt.body {
			t.Errorf("%s for %q: %d %q %q %q", tt.path, tt.accepts, w.Code, h.Get("Content-Encoding"), h.Get("Content-Type"), w.Body)
		}
		if w.Code == 200 && !strings.Contains(strings.Join(h.Values("Vary"), ","), "Accept-Encoding") {
			t.Errorf("%s: a cache may give it to who cannot read it", tt.path)
		}
	}
}

// Large documents of the API are compressed for who takes that, with the same content.
func TestServer_LargeDocumentsAreCompressed(t *testing.T) {
	s := newServer(t, Options{})
	get := func(path, accepts string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://localhost"+path, nil)
		r.Header.Set("Accept-Encoding", accepts)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	plain, packed := get("/v2/openapi.json", ""), get("/v2/openapi.json", "br, gzip")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > plain.Body.Len()/3 {
		t.Fatalf("%d of %d bytes, %v", packed.Body.Len(), plain.Body.Len(), packed.Header())
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(b, plain.Body.Bytes()) {
		t.Errorf("it has another content: %v", err)
	}
	small := get("/v2/version", "gzip")
	if small.Header().Get("Content-Encoding") != "" || !json.Valid(small.Body.Bytes()) {
		t.Errorf("a small answer: %v %s", small.Header(), small.Body)
	}
}
