package fs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// archive makes a tar archive of "name=content", "name/", "name -> target",
// "name => hard link".
func archive(t testing.TB, entries ...string) []byte {
	t.Helper()
	var headers []tar.Header
	var bodies []string
	for _, e := range entries {
		h, body := tar.Header{Mode: 0o644, Typeflag: tar.TypeReg, Name: e}, ""
		if name, target, ok := strings.Cut(e, " -> "); ok {
			h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, target
		} else if name, target, ok := strings.Cut(e, " => "); ok {
			h.Typeflag, h.Name, h.Linkname = tar.TypeLink, name, target
		} else if name, content, ok := strings.Cut(e, "="); ok {
			h.Name, body, h.Size = name, content, int64(len(content))
		} else if strings.HasSuffix(e, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		headers, bodies = append(headers, h), append(bodies, body)
	}
	return pack(t, headers, bodies)
}

func pack(t testing.TB, headers []tar.Header, bodies []string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, bodies[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/in/old", "old")
		put(t, dir+"/in/kept", "kept")
		link(t, "kept", dir+"/in/was-link")
		u, err := s.Unpack(t.Context(), dir+"/in", bytes.NewReader(archive(t,
			"./", "a/b/c=1", "a/", "./empty=", "a/l -> ../a/b/c", "hard => a/b/c", "old=new", "was-link=file", "a/l -> b", "hard => old")), nil)
		if err != nil {
			t.Fatal(err)
		}
		want(t, dir+"/in", "a/", "a/b/", "a/b/c=1", "a/l -> b", "empty=", "hard=new", "kept=kept", "old=new", "was-link=file")
		if u.Files != 6 || u.Bytes != 8 || u.Truncated || u.Paths[0] != dir+"/in/a/b/c" || len(u.Paths) != 9 {
			t.Errorf("%+v", u)
		}
	})
}

// A new file has the time that the archive says. One that replaces another is as new as it is: who has read the other
// one can see that.
func TestUnpack_Times(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/old", "old")
		then, began := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), time.Now().Add(-time.Minute)
		at := func(name string, when time.Time) tar.Header {
			return tar.Header{Mode: 0o644, Typeflag: tar.TypeReg, Name: name, ModTime: when}
		}
		_, err := s.Unpack(t.Context(), dir, bytes.NewReader(pack(t, []tar.Header{at("new", then), at("old", then), at("none", time.Unix(0, 0))}, []string{"", "", ""})), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, ok := range map[string]func(time.Time) bool{"new": then.Equal, "old": began.Before, "none": began.Before} {
			if e, err := s.Stat(dir+"/"+name, false); err != nil || !ok(e.ModifiedAt) {
				t.Errorf("%s is of %v, %v", name, e.ModifiedAt, err)
			}
		}
	})
}

func TestUnpack_Attacks(t *testing.T) {
	outside := t.TempDir()
	put(t, outside+"/victim", "untouched")
	deep := strings.Repeat("../", 12)
	devices := func(flag byte) []byte {
		return pack(t, []tar.Header{{Name: "dev", Typeflag: flag, Mode: 0o666, Devmajor: 1, Devminor: 3}}, []string{""})
	}
	tests := []struct {
		name    string
		archive []byte
		code    Code
		text    string
	}{
		{"absolute name", archive(t, outside+"/new=x"), Refused, "absolute name"},
		{"dot dot", archive(t, "../new=x"), Refused, `".."`},
		{"dot dot inside", archive(t, "a/../../new=x"), Refused, `".."`},
		{"dot dot that stays", archive(t, "a/../new=x"), Refused, `".."`},
		{"folder outside", archive(t, "../d/"), Refused, `".."`},
		{"absolute link, written through", archive(t, "l -> "+outside, "l/victim=x"), Refused, "absolute"},
		{"relative link, written through", archive(t, "l -> "+deep+outside[1:], "l/victim=x"), Refused, "leads out"},
		{"link to the parent", archive(t, "l -> .."), Refused, "leads out"},
		{"link from a folder", archive(t, "a/l -> ../.."), Refused, "leads out"},
		{"link with a detour", archive(t, "a/", "l -> a/../.."), Refused, `".." behind a name`},
		{"link over a link", archive(t, "a/b/up -> ../..", "l -> a/b/up/../x"), Refused, `".." behind a name`},
		{"link in a linked folder", archive(t, "a/b/", "here -> .", "here/a/l -> ../.."), Refused, "leads out of the folder|symbolic link itself"},
		{"deep link in a linked folder", archive(t, "here -> .", "here/here/l -> ../../x"), Refused, "symbolic link"},
		{"hard link outside", archive(t, "h => "+outside+"/victim"), Refused, "hard link"},
		{"hard link up", archive(t, "h => ../victim"), Refused, "hard link"},
		{"hard link to a link", archive(t, "a/l -> ../x", "h => a/l"), Refused, "no regular file"},
		{"hard link over a link", archive(t, "x/f=1", "l -> x", "h => l/f"), Refused, "symbolic link"},
		{"hard link to nothing", archive(t, "h => no"), NotFound, "no such file"},
		{"character device", devices(tar.TypeChar), Refused, "device"},
		{"block device", devices(tar.TypeBlock), Refused, "device"},
		{"pipe", devices(tar.TypeFifo), Refused, "pipe"},
		{"folder that is a file", archive(t, "f=1", "f/g=2"), NotDirectory, ""},
		{"file that is a folder", archive(t, "d/", "d=2"), Exists, "directory"},
		{"link that is a folder", archive(t, "d/", "d -> x"), Exists, "directory"},
		{"over a link that was there", archive(t, "planted/victim=x"), Escapes, ""},
		{"folder over a link that was there", archive(t, "planted/new/"), Escapes, ""},
		{"cut", archive(t, "f="+strings.Repeat("x", 5000))[:2000], Invalid, "no whole tar"},
		{"nonsense", bytes.Repeat([]byte("nonsense"), 200), Invalid, "no whole tar"},
	}
	both(t, func(t *testing.T, s *Service, dir string) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				into := dir + "/" + strings.ReplaceAll(tt.name, " ", "-")
				link(t, outside, into+"/planted")
				_, err := s.Unpack(t.Context(), into, bytes.NewReader(append(bytes.Clone(archive(t, "first=1"))[:1024], tt.archive...)), nil)
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Code != tt.code {
					t.Fatalf("error %v, want %s", err, tt.code)
				}
				found := false
				for text := range strings.SplitSeq(tt.text, "|") {
					found = found || strings.Contains(e.Error(), text)
				}
				if !found {
					t.Errorf("error %q, want %q in it", e, tt.text)
				}
				if e.Written == nil || e.Written.Files < 1 || e.Written.Paths[0] != into+"/first" {
					t.Errorf("it says of what was written: %+v", e.Written)
				}
				want(t, outside, "victim=untouched")
				if left := leftOver(t, into); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		}
	})
}

func leftOver(t *testing.T, dir string) (left []string) {
	for _, p := range everything(t, dir) {
		if strings.Contains(p, temporary) {
			left = append(left, p)
		}
	}
	return left
}

// After a link was planted that leads out of the folder later uploads do not
// follow it, whoever planted it.
func TestUnpack_ReplacesLinks(t *testing.T) {
	outside := t.TempDir()
	put(t, outside+"/victim", "untouched")
	both(t, func(t *testing.T, s *Service, dir string) {
		link(t, outside+"/victim", dir+"/f")
		if _, err := s.Unpack(t.Context(), dir, bytes.NewReader(archive(t, "f=x")), nil); err != nil {
			t.Fatal(err)
		}
		// A hard link to a file elsewhere is replaced, not written through.
		if err := os.Link(outside+"/victim", dir+"/h"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Unpack(t.Context(), dir, bytes.NewReader(archive(t, "h=x")), nil); err != nil {
			t.Fatal(err)
		}
		want(t, dir, "f=x", "h=x")
		want(t, outside, "victim=untouched")
	})
}

func TestUnpack_Limits(t *testing.T) {
	many := make([]string, 50)
	for i := range many {
		many[i] = fmt.Sprintf("f%02d=12345678", i)
	}
	zeros := archive(t, "z="+strings.Repeat("\x00", 1<<20))
	for _, tt := range []struct {
		name     string
		limits   UnpackLimits
		archive  []byte
		consumed func() int64
		files    int64
	}{
		{"entries", UnpackLimits{Entries: 10}, archive(t, many...), nil, 10},
		{"bytes", UnpackLimits{Bytes: 100}, archive(t, many...), nil, 12},
		{"ratio", UnpackLimits{Ratio: 10, Slack: 1000}, zeros, func() int64 { return 500 }, 0},
		{"ratio of many", UnpackLimits{Ratio: 10, Slack: 200}, archive(t, many...), func() int64 { return 20 }, 25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Root: dir, Unpack: tt.limits})
			u, err := s.Unpack(t.Context(), dir, bytes.NewReader(tt.archive), tt.consumed)
			wantCode(t, err, TooLarge)
			if u.Files != tt.files || len(everything(t, dir)) != int(tt.files) {
				t.Errorf("%d files, want %d; there are %d", u.Files, tt.files, len(everything(t, dir)))
			}
		})
	}
	dir := t.TempDir()
	s := open(t, Options{Root: dir, Unpack: UnpackLimits{Ratio: 10, Slack: 1 << 30}})
	if _, err := s.Unpack(t.Context(), dir, bytes.NewReader(zeros), func() int64 { return 500 }); err != nil {
		t.Errorf("small archives may be as dense as they like: %v", err)
	}
}

func TestUnpack_PathsAreCapped(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range shownPaths + 10 {
		many = append(many, fmt.Sprintf("d%d/f%d=", i%7, i))
	}
	dir := t.TempDir()
	u, err := open(t, Options{Root: dir}).Unpack(t.Context(), dir, bytes.NewReader(archive(t, many...)), nil)
	if err != nil || len(u.Paths) != shownPaths || !u.Truncated || u.Files != shownPaths+10 {
		t.Errorf("%d paths, %v, %d files, %v", len(u.Paths), u.Truncated, u.Files, err)
	}
}

func TestPack_RoundTrip(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/from/a/b", "1")
		put(t, dir+"/from/empty", "")
		put(t, dir+"/other", "2")
		link(t, "../empty", dir+"/from/a/l")
		if err := os.Chmod(dir+"/from/a/b", 0o755); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.Pack(t.Context(), &b, []string{dir + "/from", dir + "/other"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Unpack(t.Context(), dir+"/to", &b, nil); err != nil {
			t.Fatal(err)
		}
		want(t, dir+"/to", "from/", "from/a/", "from/a/b=1", "from/a/l -> ../empty", "from/empty=", "other=2")
		if e, err := s.Stat(dir+"/to/from/a/b", false); err != nil || e.Mode != "0755" {
			t.Errorf("%+v, %v", e, err)
		}
		var none untouched
		wantCode(t, s.Pack(t.Context(), none, []string{dir + "/from", dir + "/no"}), NotFound)
		wantCode(t, s.Pack(t.Context(), none, []string{dir + "/from", dir + "/to/from"}), Invalid, "same name")
		wantCode(t, s.Pack(t.Context(), none, nil), Invalid)
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, "a/b=1", "l -> a", "h => a/b", "l/c=2"))
	f.Add(archive(f, "l -> ..", "l/x=1"))
	f.Add(archive(f, "a/l -> ../b/../..", "a/l/x=1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		put(t, dir+"/beside", "untouched")
		s := open(t, Options{Home: dir, Unpack: UnpackLimits{Bytes: 1 << 20, Entries: 1000}})
		_, _ = s.Unpack(t.Context(), dir+"/in", bytes.NewReader(b), nil)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff([]string{"beside", "in"}, got); diff != "" || content(t, dir+"/beside") != "untouched" {
			t.Errorf("it left the folder: %s", diff)
		}
	})
}

// A record that the tar reader itself refuses is the archive's fault.
func TestUnpack_ARecordThatIsTooLong(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		const size = 10 << 20
		head := make([]byte, 512)
		copy(head, "a")
		copy(head[100:], "0000644")
		copy(head[124:], fmt.Sprintf("%011o", size))
		head[156] = 'x' // a record about the file that follows
		copy(head[257:], "ustar\x0000")
		copy(head[148:], "        ")
		sum := 0
		for _, c := range head {
			sum += int(c)
		}
		copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
		b := bytes.NewBuffer(append(head, bytes.Repeat([]byte("x"), size)...))
		_, err := s.Unpack(t.Context(), dir, b, nil)
		wantCode(t, err, Invalid)
	})
}

// untouched is a writer that nothing may be written to.
type untouched struct{}

func (untouched) Write([]byte) (int, error) { return 0, errors.New("something was written") }

// onWrite is a writer that is told what is written to it before it takes it.
type onWrite struct {
	bytes.Buffer
	told func(b []byte)
}

func (w *onWrite) Write(b []byte) (int, error) {
	w.told(b)
	return w.Buffer.Write(b)
}

func TestPack_FolderIsRemovedOrReplaced(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/w/a", "1")
		put(t, dir+"/w/gone/deep/f", "1")
		put(t, dir+"/w/turned/f", "1")
		put(t, dir+"/w/z", "1")
		w := onWrite{told: func(b []byte) {
			for _, name := range []string{"gone", "turned"} {
				if !bytes.HasPrefix(b, []byte("w/"+name+"/\x00")) {
					continue
				}
				if err := os.RemoveAll(dir + "/w/" + name); err != nil {
					t.Error(err)
				}
				if name == "turned" {
					put(t, dir+"/w/turned", "a file")
				}
			}
		}}
		if err := s.Pack(t.Context(), &w, []string{dir + "/w"}); err != nil {
			t.Fatal(err)
		}
		var names []string
		for r := tar.NewReader(&w.Buffer); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
		}
		if diff := cmp.Diff([]string{"w/", "w/a", "w/gone/", "w/turned/", "w/z"}, names); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
