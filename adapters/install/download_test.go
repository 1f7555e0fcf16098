package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

const claudeFile = "/claude/1.0.0/linux-x64/claude"

// bigClaude is a program that takes many reads.
func bigClaude() []byte {
	return append(program("1.0.0"), []byte(strings.Repeat("# padding\n", 100_000))...)
}

// claudeServer publishes bigClaude behind h, which is told how many requests
// for the program came before.
func claudeServer(t *testing.T, h func(w http.ResponseWriter, r *http.Request, nth int, body []byte)) (*maker, []byte) {
	t.Helper()
	m, body := newMaker(t), bigClaude()
	m.putClaude("1.0.0", body)
	m.handle(claudeFile, func(w http.ResponseWriter, r *http.Request) { h(w, r, m.hitsOf(claudeFile)-1, body) })
	return m, body
}

// half sends a whole file's header and a part of it.
func half(w http.ResponseWriter, body []byte, n int) {
	w.Header().Set("ETag", `"one"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:n])
	_ = http.NewResponseController(w).Flush()
}

func TestDownload_CutThenResumed(t *testing.T) {
	var ranges []string
	m, body := claudeServer(t, func(w http.ResponseWriter, r *http.Request, nth int, body []byte) {
		ranges = append(ranges, r.Header.Get("Range")+" if "+r.Header.Get("If-Range"))
		if nth == 0 {
			half(w, body, len(body)/2)
			panic(http.ErrAbortHandler)
		}
		var from int
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		if nth == 1 { // and cut again
			_, _ = w.Write(body[from : from+1000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body[from:])
	})
	r := mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude"})
	if !r.Verified || r.Downloads[0].Bytes != int64(len(body)) || r.Downloads[0].SHA256 != sum(body) {
		t.Errorf("downloads %+v", r.Downloads)
	}
	if len(ranges) != 3 || ranges[0] != " if " || !strings.HasPrefix(ranges[1], "bytes=") || !strings.HasSuffix(ranges[1], `if "one"`) || ranges[1] == ranges[2] {
		t.Errorf("ranges asked for: %q", ranges)
	}
}

func TestDownload_ContinuedByTheNextCall(t *testing.T) {
	var asked string
	m, body := claudeServer(t, nil)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	interrupt := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		m.handle(claudeFile, func(w http.ResponseWriter, r *http.Request) {
			half(w, body, len(body)/2)
			<-r.Context().Done()
		})
		_, err := in.Install(ctx, Request{Agent: "claude", Reinstall: true, Progress: func(p Progress) {
			if p.Step == StepDownload && p.Done > 0 {
				cancel()
			}
		}})
		wantProblem(t, err, problem.InstallFailed, "context canceled")
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Range")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
	parts := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(in.root, "claude", partPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}

	interrupt()
	m.handle(claudeFile, serve)
	r := mustInstall(t, in, Request{Agent: "claude", Reinstall: true})
	if !strings.HasPrefix(asked, "bytes=") || !r.Verified || r.Downloads[0].Bytes != int64(len(body)) {
		t.Errorf("asked for %q, downloads %+v", asked, r.Downloads)
	}
	wantOnly(t, in, r.Installation)

	// A part that does not fit is not trusted.
	interrupt()
	if len(parts()) != 1 {
		t.Fatalf("parts %q", parts())
	}
	if err := os.WriteFile(parts()[0], []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.handle(claudeFile, serve)
	r = mustInstall(t, in, Request{Agent: "claude", Reinstall: true})
	if asked != "" || !r.Verified {
		t.Errorf("asked for %q, downloads %+v", asked, r.Downloads)
	}
	wantOnly(t, in, r.Installation)

	// All of it was there already.
	interrupt()
	if err := os.WriteFile(parts()[0], body, 0o644); err != nil {
		t.Fatal(err)
	}
	hits := m.hitsOf(claudeFile)
	r = mustInstall(t, in, Request{Agent: "claude", Reinstall: true})
	if m.hitsOf(claudeFile) != hits || !r.Verified {
		t.Errorf("%d requests, downloads %+v", m.hitsOf(claudeFile)-hits, r.Downloads)
	}

	// An old one is removed.
	interrupt()
	old := time.Now().Add(-2 * partAge)
	if err := os.Chtimes(parts()[0], old, old); err != nil {
		t.Fatal(err)
	}
	if err := in.tidy(t.Context(), "claude"); err != nil || len(parts()) != 0 {
		t.Errorf("parts %q, %v", parts(), err)
	}
}

func TestDownload_RedirectWithoutTLS(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, m.URL+r.URL.Path, http.StatusFound)
	}))
	defer s.Close()
	in := m.installer(t, Options{Sources: []Source{Vendor}, Mirrors: mirrorsAt(s.URL)})
	in.http.Transport = s.Client().Transport
	_, err := in.Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "redirects to the unprotected")
}

func TestDownload_ServerWithoutRange(t *testing.T) {
	m, body := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, nth int, body []byte) {
		if nth == 0 {
			half(w, body, len(body)/2)
			panic(http.ErrAbortHandler)
		}
		half(w, body, len(body))
	})
	r := mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude"})
	if !r.Verified || r.Downloads[0].Bytes != int64(len(body)) {
		t.Errorf("downloads %+v", r.Downloads)
	}
}

func TestDownload_FileChangedMeanwhile(t *testing.T) {
	m, _ := claudeServer(t, func(w http.ResponseWriter, r *http.Request, nth int, body []byte) {
		switch nth {
		case 0:
			half(w, body, len(body)/2)
			panic(http.ErrAbortHandler)
		case 1: // a part of another file
			w.Header().Set("Content-Range", fmt.Sprintf("%s-%d/%d", strings.TrimSuffix(strings.Replace(r.Header.Get("Range"), "=", " ", 1), "-"), len(body)+8, len(body)+9))
			w.WriteHeader(http.StatusPartialContent)
		case 2:
			if r.Header.Get("Range") != "" {
				t.Error("a range was asked for of a file that changed")
			}
			half(w, body, len(body)/3)
			panic(http.ErrAbortHandler)
		case 3:
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		default:
			half(w, body, len(body))
		}
	})
	if r := mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude"}); !r.Verified {
		t.Errorf("downloads %+v", r.Downloads)
	}
}

// A program whose digest nobody publishes is of one version or not there, also from a server that does not say which version
// it sends, or sends a range of another one.
func TestDownload_ChangedAndNobodyTells(t *testing.T) {
	onPath(t, nil)
	for name, tags := range map[string][2]string{"no tags": {}, "a range of another": {`"one"`, `"two"`}} {
		t.Run(name, func(t *testing.T) {
			m := newMaker(t)
			version := func(padding string) []byte {
				return append(program("1.5.0"), strings.Repeat("# "+padding+"\n", 100_000)...)
			}
			before, after := version("before"), version("behind")
			putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose", "args": []string{"acp"}}))
			m.handle("/files/goose", func(w http.ResponseWriter, r *http.Request) {
				nth := m.hitsOf("/files/goose") - 1
				if tag := tags[min(nth, 1)]; tag != "" {
					w.Header().Set("ETag", tag)
				}
				if nth == 0 {
					w.Header().Set("Content-Length", strconv.Itoa(len(before)))
					_, _ = w.Write(before[:len(before)/2])
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				r.Header.Del("If-Range") // as some servers do
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(after))
			})
			r := mustInstall(t, m.installer(t, Options{Sources: []Source{Registry}}), Request{Agent: "goose"})
			if got := readFile(t, r.Program); got != string(after) {
				t.Errorf("%d lines of the one before and %d of the one behind", strings.Count(got, "before"), strings.Count(got, "behind"))
			}
		})
	}
}

func TestDownload_SilentServer(t *testing.T) {
	m, _ := claudeServer(t, func(w http.ResponseWriter, r *http.Request, nth int, body []byte) {
		if nth == 0 {
			half(w, body, 1000)
			<-r.Context().Done() // the installer gives up
			return
		}
		half(w, body, len(body))
	})
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	in.stall = 2 * time.Second // more than a slow machine lets its own server wait
	if r := mustInstall(t, in, Request{Agent: "claude"}); !r.Verified {
		t.Errorf("downloads %+v", r.Downloads)
	}
	in.stall = 100 * time.Millisecond
	m.handle(claudeFile, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := in.Install(t.Context(), Request{Agent: "claude", Reinstall: true})
	wantProblem(t, err, problem.InstallFailed, "sent nothing for too long", "use a mirror")
}

func TestDownload_AlwaysCut(t *testing.T) {
	m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, _ int, body []byte) {
		half(w, body, 1000)
		panic(http.ErrAbortHandler)
	})
	_, err := m.installer(t, Options{Sources: []Source{Vendor}}).Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "unexpected EOF")
	if n := m.hitsOf(claudeFile); n > 2*maxCuts {
		t.Errorf("%d requests", n)
	}
}

func TestDownload_TooLarge(t *testing.T) {
	for _, declared := range []bool{true, false} {
		m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, _ int, body []byte) {
			if declared {
				half(w, body, len(body))
				return
			}
			_ = http.NewResponseController(w).Flush() // no length
			_, _ = w.Write(body)
		})
		_, err := m.installer(t, Options{Sources: []Source{Vendor}, MaxDownload: 5000}).Install(t.Context(), Request{Agent: "claude"})
		wantProblem(t, err, problem.InstallFailed, "larger than allowed", "5000")
	}
}

func TestDownload_ServerErrors(t *testing.T) {
	tests := []struct {
		code  int
		words []string
	}{
		{http.StatusInternalServerError, []string{"500", "try again later"}},
		{http.StatusForbidden, []string{"403", "mirror"}},
		{http.StatusUnauthorized, []string{"401", "credentials"}},
	}
	for _, tt := range tests {
		m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) { w.WriteHeader(tt.code) })
		_, err := m.installer(t, Options{Sources: []Source{Vendor}}).Install(t.Context(), Request{Agent: "claude"})
		wantProblem(t, err, problem.InstallFailed, tt.words...)
	}
	// A short overload is waited for.
	m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, nth int, body []byte) {
		if nth < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		half(w, body, len(body))
	})
	mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude"})
}

func TestDownload_Offline(t *testing.T) {
	m := newMaker(t)
	m.Close()
	_, err := m.installer(t, Options{Sources: []Source{Vendor}}).Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "cannot be reached", "HTTPS_PROXY")
}

func TestDownload_UnknownCertificate(t *testing.T) {
	m := newMaker(t)
	secure := newTLSMaker(t, m)
	_, err := m.installer(t, Options{Sources: []Source{Vendor}, Mirrors: mirrorsAt(secure)}).Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "ca-certificates", "SSL_CERT_FILE")
}

// failing fails after some bytes, as a full disk does.
type failing struct {
	w    io.Writer
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, f.err
	}
	f.left -= len(p)
	return f.w.Write(p)
}

func TestDownload_DiskFull(t *testing.T) {
	m, _ := claudeServer(t, func(w http.ResponseWriter, _ *http.Request, _ int, body []byte) { half(w, body, len(body)) })
	in := m.installer(t, Options{Sources: []Source{Vendor, NPM, Registry}})
	in.hooks.writer = func(w io.Writer) io.Writer {
		return &failing{w: w, left: 50_000, err: &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	}
	_, err := in.Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "no space left", "free some space at "+in.root)
	if strings.Contains(err.Error(), "npm") {
		t.Errorf("other sources were asked although the disk is full: %v", err)
	}
	if m.hitsOf(claudeFile) != 1 {
		t.Errorf("%d requests, want 1", m.hitsOf(claudeFile))
	}
}

func TestDownload_NoPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		err := advise(&fs.PathError{Op: "mkdir", Path: "/data", Err: syscall.EACCES}, "/data")
		if !strings.Contains(err.Error(), "may not write") || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("advice %q", err)
		}
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	m := newMaker(t)
	_, err := m.installer(t, Options{DataDir: dir}).Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "may not write")
}

// An archive that is whole waits, too, when it is the unpacking that was interrupted: nothing of it is sent again.
func TestDownload_UnpackedByTheNextCall(t *testing.T) {
	onPath(t, nil)
	m := newMaker(t)
	packed := tarGz(t, entry{name: "pkg/large", body: strings.Repeat("0123456789abcdef", 1<<18), mode: 0o644}, entry{name: "pkg/goose", body: acpAgent, mode: 0o755})
	sent := 0
	m.handle("/files/goose.tgz", func(w http.ResponseWriter, r *http.Request) {
		counted := &countingWriter{w, &sent}
		http.ServeContent(counted, r, "", time.Time{}, bytes.NewReader(packed))
	})
	putIndex(m, goose(obj{"archive": "https://files.test/goose.tgz", "cmd": "./pkg/goose", "args": []string{"acp"}, "sha256": sum(packed)}))
	in := m.installer(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := in.Install(ctx, Request{Agent: "goose", Progress: func(p Progress) {
		if p.Step == StepUnpack {
			cancel()
		}
	}})
	wantProblem(t, err, problem.InstallFailed, "context canceled")
	sent = 0
	r := mustInstall(t, in, Request{Agent: "goose"})
	if sent >= len(packed) {
		t.Errorf("%d of %d bytes were sent again", sent, len(packed))
	}
	wantOnly(t, in, r.Installation)
}

type countingWriter struct {
	http.ResponseWriter
	n *int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	*w.n += len(p)
	return w.ResponseWriter.Write(p)
}
