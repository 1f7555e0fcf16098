package install

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzFindSum(f *testing.F) {
	hash := sum(nil)
	for _, s := range []string{hash, hash + "  a.tar.gz\n", hash + " *./dist/a.tar.gz", `{"platforms":{"linux-x64":{"checksum":"` + hash + `"}}}`, "", "\x00", "a b c"} {
		f.Add([]byte(s), "a.tar.gz", "linux-x64")
	}
	f.Fuzz(func(t *testing.T, doc []byte, name, target string) {
		if got := findSum(doc, name, target); got != "" && (len(got) != 64 || got != asSum(got)) {
			t.Errorf("found %q", got)
		}
	})
}

func TestFindSum(t *testing.T) {
	hash, other := sum([]byte("a")), sum([]byte("b"))
	tests := []struct{ name, doc, want string }{
		{"bare", hash + "\n", hash},
		{"bare in capitals", strings.ToUpper(hash), hash},
		{"list", other + "  b.tar.gz\n" + hash + "  a.tar.gz\n", hash},
		{"binary mode and a folder", hash + " *./dist/a.tar.gz", hash},
		{"of others only", other + "  b.tar.gz", ""},
		{"bare ones, but which", hash + "\n" + other, ""},
		{"manifest", `{"platforms":{"linux-x64":{"checksum":"` + hash + `"}}}`, hash},
		{"manifest without the platform", `{"platforms":{"linux-arm64":{"checksum":"` + hash + `"}}}`, ""},
		{"no hash", "hello  a.tar.gz", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		if got := findSum([]byte(tt.doc), "a.tar.gz", "linux-x64"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"agents":[{"id":"a","version":"1.0.0","distribution":{"npx":{"package":"a@1.0.0"}}}]}`))
	f.Add([]byte(`{"agents":[null,7,{"id":"a","version":"1.0.0","distribution":{"binary":{"linux-x86_64":{"archive":"https://x","cmd":"./a"}}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := parseIndex(b)
		for _, e := range entries {
			if err != nil || !agentID.MatchString(e.ID) || checkVersion(e.Version) != nil {
				t.Errorf("entry %+v, %v", e, err)
			}
		}
	})
}

// FuzzUnpack checks that no archive writes outside its directory.
func FuzzUnpack(f *testing.F) {
	f.Add("tar.gz", tarGz(f, entry{name: "a/b", body: "x"}, entry{name: "l", kind: tar.TypeSymlink, link: "a"}))
	f.Add("tar.gz", tarGz(f, entry{name: "../b", body: "x"}))
	f.Add("zip", zipped(f, entry{name: "a/b", body: "x"}, entry{name: "l", kind: tar.TypeSymlink, link: ".."}))
	f.Add("tar.bz2", []byte("BZh9"))
	f.Fuzz(func(t *testing.T, kind string, archive []byte) {
		outer := t.TempDir()
		dir, src := filepath.Join(outer, "stage"), filepath.Join(outer, "archive")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(src, archive, 0o644); err != nil {
			t.Fatal(err)
		}
		in := New(Options{DataDir: outer, MaxUnpacked: 1 << 20})
		_ = in.unpack(t.Context(), src, kind, dir, &reporter{})
		names, err := os.ReadDir(outer)
		if err != nil || len(names) != 2 {
			t.Errorf("written outside: %v, %v", names, err)
		}
		if b, err := os.ReadFile(src); err != nil || string(b) != string(archive) {
			t.Error("the archive itself was written to")
		}
	})
}
