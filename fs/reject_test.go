package fs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A git that fails is an error and nothing else.
func TestGit_ThatFails(t *testing.T) {
	real, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	s, dir := open(t, Options{}), t.TempDir()
	git(t, dir, "init", "-q")
	put(t, dir+"/a", "x\n")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")
	put(t, dir+"/a", "changed\n")
	path := os.Getenv("PATH")
	for _, at := range []string{"--list", "symbolic-ref", "for-each-ref", "rev-parse", "status"} {
		bin := t.TempDir()
		put(t, bin+"/git", "#!/bin/sh\ncase \"$*\" in *"+at+"*) kill -KILL $$;; esac\nexec "+real+" \"$@\"\n")
		if err := os.Chmod(bin+"/git", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+string(filepath.ListSeparator)+path)
		if st, err := s.GitStatus(t.Context(), dir); err == nil {
			t.Errorf("%s: status %+v", at, st)
		} else {
			wantCode(t, err, Failed)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.GitStatus(ctx, dir); err == nil || strings.Contains(err.Error(), "older") {
		t.Errorf("a request that was given up: %v", err)
	}
}

// A repository cannot lend objects from outside of the root.
func TestGit_ObjectsOutsideOfTheRoot(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	outside, root := t.TempDir(), t.TempDir()
	git(t, outside, "init", "-q")
	put(t, outside+"/secret", "the secret\n")
	git(t, outside, "add", "-A")
	git(t, outside, "commit", "-qm", "first")
	head := strings.TrimSpace(git(t, outside, "rev-parse", "HEAD"))
	s := open(t, Options{Root: root})
	for _, name := range []string{"direct", "relative", "over another", "link", "fine"} {
		dir := root + "/" + name
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "init", "-q")
		put(t, dir+"/f", "x")
		alternates := dir + "/.git/objects/info/alternates"
		switch name {
		case "direct":
			put(t, alternates, "# others\n"+outside+"/.git/objects\n")
		case "relative":
			rel, err := filepath.Rel(dir+"/.git/objects", outside+"/.git/objects")
			if err != nil {
				t.Fatal(err)
			}
			put(t, alternates, rel+"\n")
		case "over another":
			put(t, alternates, root+"/direct/.git/objects\n")
		case "link":
			if err := os.RemoveAll(dir + "/.git/objects"); err != nil {
				t.Fatal(err)
			}
			link(t, outside+"/.git/objects", dir+"/.git/objects")
		case "fine":
			git(t, root, "init", "-q", "--bare", "lender")
			put(t, alternates, root+"/lender/objects\n")
		}
		patch, _, err := s.GitDiff(t.Context(), dir, DiffOptions{Base: head})
		if bytes.Contains(patch, []byte("secret")) {
			t.Errorf("%s: it shows %q", name, patch)
		}
		if name == "fine" {
			_, err = s.GitStatus(t.Context(), dir)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantCode(t, err, Escapes)
	}
}

// sparse is an archive of one file that is a hole of size bytes, in the old GNU
// format.
func sparse(size int64) []byte {
	h := make([]byte, 512)
	copy(h, "hole")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", 0)) // bytes in the archive
	copy(h[136:], "00000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0)) // one piece of nothing, at the end
	copy(h[483:], fmt.Sprintf("%011o\x00", size))
	sum := 8 * int(' ')
	for i, b := range h {
		if i < 148 || i >= 156 {
			sum += int(b)
		}
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(h, make([]byte, 1024)...)
}

// A file of holes is a bomb though nothing is compressed.
func TestUnpack_HolesAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir, Unpack: UnpackLimits{Ratio: 10, Slack: 1 << 20}})
	u, err := s.Unpack(t.Context(), dir, bytes.NewReader(sparse(4<<30)), nil)
	wantCode(t, err, TooLarge)
	if u.Bytes != 0 {
		t.Errorf("%+v", u)
	}
	if u, err = s.Unpack(t.Context(), dir, bytes.NewReader(sparse(1<<20)), nil); err != nil || u.Bytes != 1<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	// A large file is no bomb because its beginning is all that has come yet.
	noise := make([]byte, 3<<20) // more than the slack
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.NoCompression) // noise becomes no smaller
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(archive(t, "noise="+string(noise))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in := bytes.NewReader(packed.Bytes())
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	if u, err = s.Unpack(t.Context(), dir, z, func() int64 { return in.Size() - int64(in.Len()) }); err != nil || u.Bytes != 3<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	// What has no holes has no bound but its own size.
	if u, err = s.Unpack(t.Context(), dir, bytes.NewReader(archive(t, "big="+strings.Repeat("x", 4<<20))), nil); err != nil || u.Bytes != 4<<20 {
		t.Errorf("%+v, %v", u, err)
	}
}

// A copy into itself over a symbolic link ends at once, and leaves nothing.
func TestCopy_IntoItselfOverALink(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/a/f", "x")
		link(t, "a", dir+"/l")
		_, err := s.Copy(t.Context(), dir+"/a", dir+"/l/b", PlaceOptions{})
		wantCode(t, err, Invalid)
		entries, err := os.ReadDir(dir + "/a")
		if err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

// Private folders stay private, and can be filled.
func TestUnpack_ModesOfFolders(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		if err := os.Mkdir(dir+"/there", 0o750); err != nil {
			t.Fatal(err)
		}
		var headers []tar.Header
		for name, mode := range map[string]int64{"private/": 0o700, "read-only/": 0o500, "open/": 0o755, "none/": 0, "there/": 0o700, "a/b/": 0o711, "sticky/": 0o1700} {
			headers = append(headers, tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeDir})
		}
		headers = append(headers, tar.Header{Name: "read-only/f", Mode: 0o600, Typeflag: tar.TypeReg})
		if _, err := s.Unpack(t.Context(), dir, bytes.NewReader(pack(t, headers, make([]string, len(headers)))), nil); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]os.FileMode{"private": 0o700, "read-only": 0o700, "open": 0o755, "none": 0o755, "there": 0o750, "a/b": 0o711, "sticky": 0o700} {
			if info, err := os.Stat(dir + "/" + name); err != nil || info.Mode().Perm() != want || info.Mode()&os.ModeSticky != 0 {
				t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
			}
		}
	})
}

// A workspace cannot make a search take memory and time by what it ignores.
func TestSearch_ManyRules(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/.git/HEAD", "")
	put(t, dir+"/.gitignore", "first*\n"+strings.Repeat("*a/b?\n", maxIgnoreFile/6-10))
	put(t, dir+"/d/.gitignore", "second*\n")
	put(t, dir+"/d/first1", "")
	put(t, dir+"/d/kept1", "")
	s := open(t, Options{})
	rules := s.rulesAbove(dir + "/d")
	if rules == nil || rules.count != maxRules {
		t.Fatalf("%+v", rules)
	}
	found, err := s.Search(t.Context(), dir, SearchOptions{Name: "1", Limit: 10})
	if err != nil || len(found.Matches) != 1 || !strings.HasSuffix(found.Matches[0].Path, "kept1") {
		t.Errorf("%+v, %v", found, err)
	}
}
