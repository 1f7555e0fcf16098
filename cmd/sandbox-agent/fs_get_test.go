package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fs"
)

// A download has one version of its file or none, however often that changes there and the connection breaks.
func TestFS_GetOfWhatChanges(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": strings.Repeat("a", 1_000_000), "b": strings.Repeat("b", 900_000), "short": "b", "empty": ""}
	for name, tt := range map[string]struct {
		answers string   // each is a version, and :N where the connection breaks N bytes behind its head
		runs    []string // of each run of the command the version that is there when it begins, and : and what comes of it
		goes    bool     // the file is gone when it has come
	}{
		"nothing":            {"a", []string{"a:a"}, false},
		"between two parts":  {"a:500000 b:300000 b", []string{"a:b"}, false},
		"and back":           {"a:500000 b:300000 b:0 b:0 a", []string{"a:", "a:a"}, false},
		"and back at once":   {"a:500000 b:300000 a:100000 a", []string{"a:a"}, false},
		"before it begins":   {"b:300000 b:0 b:0 b:0 a", []string{"a:", "a:a"}, false},
		"to one in parts":    {"a:500000 b:300000 b:0 b:0 b", []string{"a:", "b:b"}, false},
		"to less than there": {"a:500000 short a", []string{"a:short", "a:a"}, false},
		"to nothing":         {"a:500000 empty a", []string{"a:empty", "a:a"}, false},
		"from nothing":       {"a:500000 a:0 a:0 a:0 a", []string{"empty:", "a:a"}, false},
		"and goes":           {"a:500000 b:300000 b", []string{"a:b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			now, left := "", strings.Fields(tt.answers)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.URL.Path == "/v2/fs/stat" {
					if tt.goes && len(left) == 0 {
						w.Header().Set("Content-Type", problem.ContentType)
						w.WriteHeader(http.StatusNotFound)
						_, _ = fmt.Fprintf(w, `{"type":%q,"status":404}`, problem.NotFound.Type())
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_ = json.NewEncoder(w).Encode(fs.Entry{Path: "/f", Name: "f", Type: fs.File, Size: int64(len(files[now])), ETag: `"` + now + `"`})
					return
				}
				if len(left) == 0 {
					t.Errorf("it is asked for the file once more: %v", r.Header)
					panic(http.ErrAbortHandler)
				}
				version, end, cut := strings.Cut(left[0], ":")
				left = left[1:]
				if cut {
					var n int
					_, _ = fmt.Sscan(end, &n)
					w = &shortened{w, n}
				}
				w.Header().Set("ETag", `"`+version+`"`)
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(files[version]))
			}))
			defer srv.Close()
			local := filepath.Join(t.TempDir(), "f")
			for _, run := range tt.runs {
				begins, becomes, _ := strings.Cut(run, ":")
				mu.Lock()
				now = begins
				mu.Unlock()
				code, out, errOut := tool(t, "", "fs", "get", "/f", local, "--json", "--endpoint", srv.URL)
				if (code == cmdline.ExitOK) != (becomes != "") {
					t.Errorf("%s: exit %d, %s", run, code, errOut)
				}
				if becomes == "" {
					continue
				}
				var e fs.Entry
				if err := json.Unmarshal([]byte(out), &e); err != nil || e.ETag != `"`+becomes+`"` || e.Size != int64(len(files[becomes])) {
					t.Errorf("%s: it says %s, %v", run, out, err)
				}
				if b, err := os.ReadFile(local); err != nil || string(b) != files[becomes] {
					t.Errorf("%s: %d bytes, of them %d a and %d b; %v", run, len(b), strings.Count(string(b), "a"), strings.Count(string(b), "b"), err)
				}
			}
			if len(left) > 0 {
				t.Errorf("it has not asked for %q", left)
			}
		})
	}
}

// shortened is an answer whose connection breaks behind so many bytes of its body.
type shortened struct {
	http.ResponseWriter
	left int
}

func (b *shortened) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p[:min(b.left, len(p))])
	b.left -= n
	if err == nil && b.left == 0 {
		_ = http.NewResponseController(b.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}
