package control

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
)

// A file that the system makes while it is read cannot be sent in ranges, and the answer says how to
// read it.
func TestFiles_WithoutASize(t *testing.T) {
	files, err := fs.New(fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	srv := httptest.NewServer(newServer(t, Options{Files: files}))
	t.Cleanup(srv.Close)
	resp, body := ask(t, http.MethodGet, srv.URL+"/v2/fs/file?path=/proc/cpuinfo", io.Reader(nil))
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, string(problem.NotAFile)) || !strings.Contains(body, "such as cat") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
