package control

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fs"
)

func init() {
	for _, media := range []string{"application/x-tar", "application/x-ndjson", "text/x-diff"} {
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.FileBodyDecoder)
	}
}

// fileService is one that is confined to a new folder.
func fileService(t *testing.T, o fs.Options) (*fs.Service, string) {
	t.Helper()
	o.Root = t.TempDir()
	files, err := fs.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	return files, o.Root
}

// fileServer is a real server of a new folder.
func fileServer(t *testing.T, o Options) (base, dir string) {
	t.Helper()
	o.Files, dir = fileService(t, fs.Options{})
	srv := httptest.NewServer(newServer(t, o))
	t.Cleanup(srv.Close)
	return srv.URL, dir
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request and returns the answer with its body.
func ask(t *testing.T, method, target string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestFiles_Answers(t *testing.T) {
	files, dir := fileService(t, fs.Options{})
	a := newAPI(t, Options{Files: files})
	put(t, dir+"/a.txt", "hello")
	put(t, dir+"/d/b", "1")
	put(t, dir+"/d/\xff", "1")
	if err := os.Symlink("a.txt", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		method, target, invalid string
		status                  int
		body                    string // contained; a kind for problems
	}{
		{"GET", "/v2/fs/file?path=a.txt", "", 200, "hello"},
		{"GET", "/v2/fs/file?path=" + dir + "/a.txt", "", 200, "hello"},
		{"GET", "/v2/fs/file", "path", 400, "invalid_request"},
		{"GET", "/v2/fs/file?path=", "path", 400, "invalid_request"},
		{"GET", "/v2/fs/file?path=no", "", 404, "not_found"},
		{"GET", "/v2/fs/file?path=d", "", 409, "not_a_file"},
		{"GET", "/v2/fs/file?path=..%2Fx", "", 403, "path_escapes"},
		{"GET", "/v2/fs/file?path=out/passwd", "", 403, "path_escapes"},
		{"GET", "/v2/fs/file?path=/proc/self/environ", "", 403, "path_escapes"},
		{"GET", "/v2/fs/file?path=a.txt&path=b", "", 400, "invalid_request"},
		{"GET", "/v2/fs/file?path=a.txt&sessionId=nope", "", 404, "session_not_found"},
		{"GET", "/v2/fs/file?path=a.txt&sessionId=s1", "", 403, "path_escapes"}, // its directory is outside
		{"GET", "/v2/fs/stat?path=l", "", 200, `"type":"symlink","size":0,"mode":"0777"`},
		{"GET", "/v2/fs/stat?path=l&follow=true", "", 200, `"type":"file","size":5`},
		{"GET", "/v2/fs/stat?path=l&follow=maybe", "follow", 400, "invalid_request"},
		{"GET", "/v2/fs/stat?path=d/%FF", "", 200, `"rawPath":"`},
		{"GET", "/v2/fs/entries?path=.&limit=1", "", 200, `"nextCursor":"`},
		{"GET", "/v2/fs/entries?path=.&recursive=true", "", 200, `"path":"` + dir + `/d/b"`},
		{"GET", "/v2/fs/entries?path=.&sort=size&order=desc", "", 200, `"entries":[{`},
		{"GET", "/v2/fs/entries?path=.&sort=colour", "sort", 400, "invalid_request"},
		{"GET", "/v2/fs/entries?path=.&order=up", "order", 400, "invalid_request"},
		{"GET", "/v2/fs/entries?path=.&recursive=true&sort=size", "", 400, "invalid_request"},
		{"GET", "/v2/fs/entries?path=a.txt", "", 409, "not_a_directory"},
		{"POST", "/v2/fs/mkdir?path=n/m", "", 404, "not_found"},
		{"POST", "/v2/fs/mkdir?path=n/m&parents=true&mode=700", "", 200, `"mode":"0700"`},
		{"POST", "/v2/fs/mkdir?path=n", "", 409, "already_exists"},
		{"POST", "/v2/fs/mkdir?path=x&mode=rwx", "mode", 400, "invalid_request"},
		{"POST", "/v2/fs/mkdir?path=x&mode=7777", "", 400, "invalid_request"},
		{"POST", "/v2/fs/copy?from=d&to=e", "", 200, `"type":"directory"`},
		{"POST", "/v2/fs/copy?from=d&to=e", "", 409, "already_exists"},
		{"POST", "/v2/fs/move?from=e&to=n/e", "", 200, `/n/e"`},
		{"POST", "/v2/fs/move?from=n&to=n/e/x", "", 400, "invalid_request"},
		{"POST", "/v2/fs/move?from=n", "to", 400, "invalid_request"},
		{"POST", "/v2/fs/move?from=a.txt&to=/etc/x", "", 403, "path_escapes"},
		{"GET", "/v2/fs/search?path=.&name=*.txt", "", 200, `/a.txt","type":"file"}],"files":`},
		{"GET", "/v2/fs/search?path=.&content=ell", "", 200, `"line":1,"column":2,"text":"hello"`},
		{"GET", "/v2/fs/search?path=.&name=a&limit=1", "", 200, `"matches":[{`},
		{"GET", "/v2/fs/search?path=.", "", 400, "invalid_request"},
		{"GET", "/v2/fs/search?path=.&content=(&regexp=true", "", 400, "invalid_request"},
		{"GET", "/v2/fs/watch?path=no", "", 404, "not_found"},
		{"GET", "/v2/fs/watch?path=a.txt", "", 409, "not_a_directory"},
		{"GET", "/v2/fs/git/status?path=.", "", 409, "not_a_repository"},
		{"GET", "/v2/fs/git/diff?path=.", "", 409, "not_a_repository"},
		{"DELETE", "/v2/fs/entry?path=n", "", 409, "directory_not_empty"},
		{"DELETE", "/v2/fs/entry?path=n&recursive=true", "", 204, ""},
		{"DELETE", "/v2/fs/entry?path=.&recursive=true", "", 403, "permission_denied"},
		{"GET", "/v2/fs/download-batch?path=d&path=a.txt", "", 200, "a.txt"},
		{"GET", "/v2/fs/download-batch?path=d&path=no", "", 404, "not_found"},
		{"GET", "/v2/fs/download-batch?path=d&path=d", "", 400, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			a.t = t
			w := a.do(tt.method, tt.target, tt.invalid)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if tt.status >= 400 {
				if kind := kindOf(t, w); string(kind) != tt.body {
					t.Errorf("problem %s, want %s: %s", kind, tt.body, w.Body)
				}
			} else if !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("body %q, want %q in it", w.Body, tt.body)
			}
		})
	}
	if w := newAPI(t, Options{}).get("/v2/fs/stat?path=x"); kindOf(t, w) != problem.NotSupported {
		t.Errorf("answer %s", w.Body)
	}
}

func TestFiles_Content(t *testing.T) {
	base, dir := fileServer(t, Options{})
	put(t, dir+"/page.html", "<p>0123456789")
	target := base + "/v2/fs/file?path=page.html"
	resp, body := ask(t, "GET", target, nil)
	etag := resp.Header.Get("ETag")
	if body != "<p>0123456789" || etag == "" || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || resp.Header.Get("Content-Security-Policy") != "sandbox" || resp.ContentLength != 13 {
		t.Errorf("%s, %v", body, resp.Header)
	}
	tests := []struct {
		name, method string
		header       []string
		status       int
		body         string // all of it; a kind for problems
	}{
		{"HEAD", "HEAD", nil, 200, ""},
		{"range", "GET", []string{"Range", "bytes=3-6"}, 206, "0123"},
		{"end", "GET", []string{"Range", "bytes=-3"}, 206, "789"},
		{"rest", "GET", []string{"Range", "bytes=10-"}, 206, "789"},
		{"no part", "GET", []string{"Range", "bytes=13-"}, 416, "range_not_satisfiable"},
		{"if-range", "GET", []string{"Range", "bytes=3-6", "If-Range", etag}, 206, "0123"},
		{"if-range of an old one", "GET", []string{"Range", "bytes=3-6", "If-Range", `"old"`}, 200, "<p>0123456789"},
		{"not changed", "GET", []string{"If-None-Match", etag}, 304, ""},
		{"changed", "GET", []string{"If-None-Match", `"old"`}, 200, "<p>0123456789"},
		{"if-match", "GET", []string{"If-Match", `"old"`}, 412, "precondition_failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := ask(t, tt.method, target, nil, tt.header...)
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, tt.status, body)
			}
			if tt.status >= 400 {
				if !strings.Contains(body, problem.Prefix+tt.body+`"`) || resp.Header.Get("Content-Type") != problem.ContentType {
					t.Errorf("answer %s, %v", body, resp.Header)
				}
			} else if body != tt.body {
				t.Errorf("body %q, want %q", body, tt.body)
			}
			if tt.status == 416 && resp.Header.Get("Content-Range") != "bytes */13" {
				t.Errorf("Content-Range %q", resp.Header.Get("Content-Range"))
			}
		})
	}
}

func TestFiles_Put(t *testing.T) {
	base, dir := fileServer(t, Options{})
	var e fs.Entry
	write := func(query, body string, header ...string) (int, string) {
		t.Helper()
		resp, text := ask(t, "PUT", base+"/v2/fs/file?"+query, strings.NewReader(body), header...)
		e = fs.Entry{}
		if resp.StatusCode < 300 {
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.ETag != resp.Header.Get("ETag") {
				t.Errorf("%v: %s", err, text)
			}
		}
		return resp.StatusCode, text
	}
	wants := func(status int, text string) func(int, string) {
		return func(got int, body string) {
			t.Helper()
			if got != status || !strings.Contains(body, text) {
				t.Errorf("status %d: %s, want %d with %s", got, body, status, text)
			}
		}
	}
	wants(404, "not_found")(write("path=a/b", "1"))
	wants(201, `"size":1`)(write("path=a/b&parents=true&mode=640", "1"))
	first := e.ETag
	if e.Mode != "0640" {
		t.Errorf("%+v", e)
	}
	wants(412, strings.Trim(first, `"`))(write("path=a/b", "2", "If-Match", `"other"`))
	wants(412, "ETag")(write("path=a/b", "2", "If-None-Match", "*"))
	wants(412, "ETag")(write("path=a/b", "2", "If-None-Match", first))
	wants(412, "no such file")(write("path=a/new", "2", "If-Match", "*"))
	wants(200, `"mode":"0640"`)(write("path=a/b", "2", "If-Match", `"x", `+first))
	wants(412, strings.Trim(e.ETag, `"`))(write("path=a/b", "3", "If-Match", first))
	wants(201, "")(write("path=a/c", "2", "If-None-Match", "*"))
	wants(400, "Content-Range")(write("path=a/b", "3", "Content-Range", "bytes 0-0/1"))
	wants(403, "path_escapes")(write("path=../x", "3"))
	wants(409, "not_a_file")(write("path=a", "3"))
	wants(200, "")(write("path=a/b", ""))
	if b, err := os.ReadFile(dir + "/a/b"); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	name := "%\xff\n" + strings.Repeat("ü", 100) + "?&#+ "
	wants(201, `"rawPath"`)(write(url.Values{"path": {name}}.Encode(), "named"))
	if b, err := os.ReadFile(dir + "/" + name); err != nil || string(b) != "named" {
		t.Errorf("%q, %v", b, err)
	}
}

// An upload that breaks off leaves the old file and nothing beside it.
func TestFiles_PutBreaksOff(t *testing.T) {
	base, dir := fileServer(t, Options{})
	put(t, dir+"/f", "old")
	host := strings.TrimPrefix(base, "http://")
	for _, framing := range []string{"Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n"} {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "PUT /v2/fs/file?path=f HTTP/1.1\r\nHost: localhost\r\n%sabc", framing)
		_ = c.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(c) // the server has done all that it will do
		_ = c.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 && !strings.Contains(string(b), "the body ended after 3 bytes") {
			t.Errorf("answer %s", b)
		}
	}
	awaitEntries(t, dir, "f")
	if b, err := os.ReadFile(dir + "/f"); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
}

// awaitEntries waits until a folder has these entries and no others.
func awaitEntries(t *testing.T, dir string, names ...string) {
	t.Helper()
	for late := time.After(patience); ; {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if cmp.Equal(names, got) {
			return
		}
		select { // nobody tells when a handler has ended
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-tick(t):
		case <-late:
			t.Fatalf("entries differ: %s", cmp.Diff(names, got))
		}
	}
}

func tarOf(t *testing.T, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		name, content, _ := strings.Cut(e, "=")
		h := &tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644, Typeflag: tar.TypeReg}
		if n, target, ok := strings.Cut(e, " -> "); ok {
			h = &tar.Header{Name: n, Linkname: target, Typeflag: tar.TypeSymlink}
			content = ""
		}
		if err := errors.Join(w.WriteHeader(h), func() error { _, err := io.WriteString(w, content); return err }()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func TestFiles_UploadBatch(t *testing.T) {
	base, dir := fileServer(t, Options{})
	plain := tarOf(t, "a/b=1", "c=22", "a/l -> ../c")
	for name, body := range map[string][]byte{"tar": plain, "tar.gz": gzipped(t, plain), "tar.zst": zstandard(t, plain)} {
		for _, media := range []string{"", "application/x-tar", "application/octet-stream"} {
			into := name + "-" + filepath.Base(media)
			resp, text := ask(t, "POST", base+"/v2/fs/upload-batch?path="+into, bytes.NewReader(body), "Content-Type", media)
			var got fs.Unpacked
			if err := json.Unmarshal([]byte(text), &got); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%d, %v: %s", resp.StatusCode, err, text)
			}
			if diff := cmp.Diff(fs.Unpacked{Paths: []string{dir + "/" + into + "/a/b", dir + "/" + into + "/c", dir + "/" + into + "/a/l"}, Files: 2, Bytes: 3}, got); diff != "" {
				t.Errorf("%s differs (-want +got):\n%s", into, diff)
			}
			if b, err := os.ReadFile(dir + "/" + into + "/a/l"); err != nil || string(b) != "22" {
				t.Errorf("%q, %v", b, err)
			}
		}
	}
	bad := tarOf(t, "first=1", "l -> /etc", "l/passwd=x")
	for _, tt := range []struct {
		name, media string
		body        []byte
		status      int
		text        string
	}{
		{"json", "application/json", []byte("{}"), 415, "unsupported_media_type"},
		{"nonsense", "", bytes.Repeat([]byte("x"), 1000), 400, "no whole tar archive"},
		{"attack", "", bad, 422, "archive_refused"},
		{"attack in gzip", "", gzipped(t, bad), 422, "archive_refused"},
		{"attack in zstd", "", zstandard(t, bad), 422, "archive_refused"},
		{"cut gzip", "", gzipped(t, tarOf(t, "first=1", "big="+strings.Repeat("xyz", 10000)))[:150], 400, "no whole gzip file"},
		{"cut zstd", "", zstandard(t, tarOf(t, "big="+strings.Repeat("xyz", 10000)))[:40], 400, "no whole zstd file"},
		{"nothing that is gzip", "", []byte("\x1f\x8bnonsense"), 400, "gzip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, text := ask(t, "POST", base+"/v2/fs/upload-batch?path=bad", bytes.NewReader(tt.body), "Content-Type", tt.media)
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.text) {
				t.Errorf("%d: %s", resp.StatusCode, text)
			}
			if tt.status == 422 && !strings.Contains(text, `"written":{"paths":["`+dir+`/bad/first"],"truncated":false,"files":1,"bytes":1}`) {
				t.Errorf("it does not say what was written: %s", text)
			}
		})
	}
}

func TestFiles_BombIsRefused(t *testing.T) {
	o := Options{}
	var dir string
	o.Files, dir = fileService(t, fs.Options{Unpack: fs.UnpackLimits{Ratio: 50, Slack: 1 << 20}})
	srv := httptest.NewServer(newServer(t, o))
	t.Cleanup(srv.Close)
	plain := tarOf(t, "zeros="+strings.Repeat("\x00", 8<<20))
	for _, body := range [][]byte{gzipped(t, plain), zstandard(t, plain)} {
		resp, text := ask(t, "POST", srv.URL+"/v2/fs/upload-batch?path=.", bytes.NewReader(body))
		if resp.StatusCode != 413 || !strings.Contains(text, "50 times its size") {
			t.Errorf("%d: %s", resp.StatusCode, text)
		}
	}
	awaitEntries(t, dir)
	if resp, text := ask(t, "POST", srv.URL+"/v2/fs/upload-batch?path=.", bytes.NewReader(plain)); resp.StatusCode != 200 {
		t.Errorf("uncompressed: %d: %s", resp.StatusCode, text)
	}
}

func TestFiles_DownloadBatch(t *testing.T) {
	base, dir := fileServer(t, Options{})
	put(t, dir+"/d/a", "1")
	put(t, dir+"/d/e/b", "22")
	put(t, dir+"/f", "333")
	resp, body := ask(t, "GET", base+"/v2/fs/download-batch?path=d&path=f", nil)
	if resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("%v", resp.Header)
	}
	got := map[string]string{}
	for r := tar.NewReader(strings.NewReader(body)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		b, rerr := io.ReadAll(r)
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(b)
	}
	if diff := cmp.Diff(map[string]string{"d/": "", "d/a": "1", "d/e/": "", "d/e/b": "22", "f": "333"}, got); diff != "" {
		t.Errorf("archive differs (-want +got):\n%s", diff)
	}
}

// A folder comes and goes while it is asked for. Each answer is a whole archive or says
// what was wrong; none is cut off before anything was sent.
func TestFiles_DownloadOfWhatGoes(t *testing.T) {
	base, dir := fileServer(t, Options{})
	put(t, dir+"/d/a", "1")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for from, to := dir+"/d", dir+"/e"; ; from, to = to, from {
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	for _, path := range []string{"/v2/fs/download-batch?path=d", "/v2/fs/checksums?path=d", "/v2/fs/file?path=d/a"} {
		for range 300 {
			resp, body := ask(t, "GET", base+path, nil)
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s %s", path, resp.Status, body)
				break
			}
		}
	}
}

func TestFiles_TooManyTransfers(t *testing.T) {
	base, dir := fileServer(t, Options{Transfers: 2})
	put(t, dir+"/f", "x")
	var open []*io.PipeWriter
	results := make(chan int, 2)
	reading := make(chan struct{}, 2) // a server says 100 when it begins to read a body
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { reading <- struct{}{} }})
	for i := range 2 {
		r, w := io.Pipe()
		open = append(open, w)
		req, err := http.NewRequestWithContext(ctx, "PUT", fmt.Sprintf("%s/v2/fs/file?path=n%d", base, i), r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Expect", "100-continue")
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				results <- 0
				return
			}
			_ = resp.Body.Close()
			results <- resp.StatusCode
		}()
	}
	for range 2 {
		select {
		case <-reading:
		case <-time.After(patience):
			t.Fatal("the transfers have not begun")
		}
	}
	for _, method := range []string{"GET", "PUT"} {
		resp, text := ask(t, method, base+"/v2/fs/file?path=f", nil)
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, "too_many_requests") {
			t.Errorf("%s: %d: %s", method, resp.StatusCode, text)
		}
	}
	if resp, _ := ask(t, "GET", base+"/v2/fs/stat?path=f", nil); resp.StatusCode != 200 {
		t.Errorf("what is no transfer: %d", resp.StatusCode)
	}
	for _, w := range open {
		_ = w.Close()
	}
	for range 2 {
		if got := <-results; got != 201 {
			t.Errorf("status %d", got)
		}
	}
	if resp, text := ask(t, "GET", base+"/v2/fs/file?path=f", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d: %s", resp.StatusCode, text)
	}
}

// The file routes are behind the guard, and bodies may be of any size.
func TestFiles_Guard(t *testing.T) {
	base, _ := fileServer(t, Options{Guard: Guard{Token: "tok"}})
	if resp, _ := ask(t, "PUT", base+"/v2/fs/file?path=f", strings.NewReader("x")); resp.StatusCode != 401 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
	if resp, _ := ask(t, "PUT", base+"/v2/fs/file?path=f", strings.NewReader("x"), "Authorization", "Bearer tok", "Origin", "https://example.com"); resp.StatusCode != 403 {
		t.Errorf("of another site: %d", resp.StatusCode)
	}
	resp, text := ask(t, "PUT", base+"/v2/fs/file?path=f", io.LimitReader(zeros{}, 40<<20), "Authorization", "Bearer tok")
	if resp.StatusCode != 201 || !strings.Contains(text, `"size":41943040`) {
		t.Errorf("%d: %s", resp.StatusCode, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestFiles_Watch(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("folders are watched on Linux only")
	}
	o := Options{}
	var dir string
	o.Files, dir = fileService(t, fs.Options{})
	s := newServer(t, o)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v2/fs/watch?path=.", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := sse.NewDecoder(resp.Body, 1<<20)
	next := func(kind, data string) {
		t.Helper()
		ev, err := events.Next()
		if err != nil || ev.Type != kind || string(ev.Data) != data {
			t.Fatalf("event %s %s, %v, want %s %s", ev.Type, ev.Data, err, kind, data)
		}
	}
	next("ready", "{}")
	put(t, dir+"/f", "x")
	next("change", `{"type":"created","path":"`+dir+`/f"}`)
	next("change", `{"type":"modified","path":"`+dir+`/f"}`)
	s.Shutdown(t.Context())
	if ev, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the shutdown: %v, %v", ev, err)
	}
}

// inGit runs git in a folder.
func inGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestFiles_Git(t *testing.T) {
	files, dir := fileService(t, fs.Options{})
	a := newAPI(t, Options{Files: files})
	put(t, dir+"/f", "one\n")
	inGit(t, dir, "init", "-q", "-b", "trunk")
	inGit(t, dir, "add", "-A")
	put(t, dir+"/f", "two\n")
	if w := a.get("/v2/fs/git/status?path=."); w.Code != 200 || !strings.Contains(w.Body.String(), `"branch":"trunk","ahead":0,"behind":0,"files":[{"path":"`+dir+`/f","index":"A","workTree":"M"}],"truncated":false`) {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	if w := a.get("/v2/fs/git/diff?path=f"); w.Code != 200 || !strings.Contains(w.Body.String(), "-one\n+two\n") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	put(t, dir+"/new", "text\n")
	if w := a.get("/v2/fs/git/diff?path=."); !strings.Contains(w.Body.String(), "+++ b/new\n@@ -0,0 +1 @@\n+text\n") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	if w := a.get("/v2/fs/git/diff?path=.&staged=true"); !strings.Contains(w.Body.String(), "+one\n") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
