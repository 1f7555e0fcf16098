package control

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/fs"
)

func TestAwait_UploadThatIsCutOff(t *testing.T) {
	var o Options
	var dir string
	o.Files, dir = fileService(t, fs.Options{})
	s := newServer(t, o)
	body, sender := io.Pipe()
	answered := httptest.NewRecorder()
	go s.ServeHTTP(answered, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/v2/fs/upload-batch?path=.", body))
	archive := tar.NewWriter(sender)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: 1000}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write(make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.Await(over) // is not held up
	late := httptest.NewRecorder()
	s.ServeHTTP(late, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v2/health", nil))
	if late.Code != http.StatusServiceUnavailable {
		t.Errorf("a request behind the end is answered with %d", late.Code)
	}
	_ = sender.CloseWithError(errors.New("cut off"))
	s.Await(t.Context())
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if answered.Code != http.StatusBadRequest {
		t.Errorf("the upload is answered with %d", answered.Code)
	}
}
