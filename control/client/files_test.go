package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

func wantKind(t *testing.T, err error, kind problem.Kind) {
	t.Helper()
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != kind {
		t.Errorf("error %v, want %s", err, kind)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	service, err := fs.New(fs.Options{Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	server := control.New(control.Options{Files: service})
	srv := httptest.NewServer(server)
	defer srv.Close()
	defer server.Shutdown(t.Context())
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, ctx := c.Files(""), t.Context()

	e, err := f.Put(ctx, "a/\xff b", strings.NewReader("hello"), client.PutOptions{Parents: true, Mode: "600", Size: -1})
	if err != nil || e.Mode != "0600" || string(e.RawPath) != dir+"/a/\xff b" {
		t.Fatalf("%+v, %v", e, err)
	}
	_, err = f.Put(ctx, "a/\xff b", strings.NewReader("x"), client.PutOptions{New: true, Size: 1})
	wantKind(t, err, problem.PreconditionFailed)
	_, err = f.Put(ctx, "a/\xff b", strings.NewReader("x"), client.PutOptions{IfMatch: `"no"`, Size: 1})
	wantKind(t, err, problem.PreconditionFailed)
	if _, err = f.Put(ctx, "empty", strings.NewReader(""), client.PutOptions{Size: 0}); err != nil {
		t.Error(err)
	}
	for from, want := range map[int64]string{0: "hello", 2: "llo"} {
		got, err := f.Get(ctx, "a/\xff b", from, e.ETag)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(got)
		_ = got.Close()
		if err != nil || string(b) != want || got.From != from || got.Size != 5 || got.ETag != e.ETag {
			t.Errorf("from %d: %q, %+v, %v", from, b, got, err)
		}
	}
	if got, err := f.Get(ctx, "a/\xff b", 2, `"another"`); err != nil || got.From != 0 {
		t.Errorf("of another file: %+v, %v", got, err)
	} else {
		_ = got.Close()
	}
	if e, err := f.Mkdir(ctx, "d/e", "", true); err != nil || e.Type != fs.Directory {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := f.Copy(ctx, "a", "b", fs.PlaceOptions{}); err != nil {
		t.Error(err)
	}
	_, err = f.Move(ctx, "b", "d", fs.PlaceOptions{})
	wantKind(t, err, problem.AlreadyExists)
	if _, err := f.Move(ctx, "b", "d", fs.PlaceOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
	page, err := f.List(ctx, ".", fs.ListOptions{Recursive: true, Limit: 2})
	if err != nil || len(page.Entries) != 2 || page.NextCursor == "" {
		t.Errorf("%+v, %v", page, err)
	}
	archive, err := f.Download(ctx, "a", "d")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(archive)
	_ = archive.Close()
	if err != nil {
		t.Fatal(err)
	}
	if u, err := f.Upload(ctx, "back", bytes.NewReader(b)); err != nil || u.Files != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if found, err := f.Search(ctx, "back", fs.SearchOptions{Content: "ell", Limit: 1}); err != nil || len(found.Matches) != 1 || found.Stopped != "matches" {
		t.Errorf("%+v, %v", found, err)
	}
	wantKind(t, f.Delete(ctx, "back", false), problem.DirectoryNotEmpty)
	if err := f.Delete(ctx, "back", true); err != nil {
		t.Error(err)
	}
	_, err = f.Stat(ctx, "back", false)
	wantKind(t, err, problem.NotFound)
	_, _, err = f.GitDiff(ctx, ".", fs.DiffOptions{})
	wantKind(t, err, problem.NotARepository)

	if goruntime.GOOS == "linux" {
		var told []string
		for change, err := range f.Watch(ctx, "d", fs.WatchOptions{}, func() { _ = os.Mkdir(dir+"/d/new", 0o755); _ = os.RemoveAll(dir + "/d") }) {
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, string(change.Type))
		}
		if len(told) < 3 || told[0] != "created" || told[len(told)-1] != "removed" {
			t.Errorf("told %q", told)
		}
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	if out, err := exec.CommandContext(ctx, "git", "init", "-q", "-b", "trunk", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if st, err := f.GitStatus(ctx, "."); err != nil || st.Branch != "trunk" || len(st.Files) != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "picture"), []byte("\x00\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[bool]string{false: "Binary files /dev/null and b/picture differ\n", true: "GIT binary patch\n"} {
		if patch, _, err := f.GitDiff(ctx, "picture", fs.DiffOptions{Binary: binary}); err != nil || !strings.Contains(string(patch), want) {
			t.Errorf("binary %t: %q, %v", binary, patch, err)
		}
	}
}
