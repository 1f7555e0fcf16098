package inspector

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// external finds references that a browser would load from another place, and
// inline finds what the policy of the page does not let run.
var (
	external = regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?\s*(https?:)?//|@import\s+(url\()?["']?\s*(https?:)?//|url\(\s*["']?\s*(https?:)?//`)
	inline   = regexp.MustCompile(`(?is)<script(\s[^>]*)?>\s*[^<\s]|<style|\son[a-z]+\s*=`)
)

func TestDist_IsSelfContained(t *testing.T) {
	for name, files := range map[string]fs.FS{"served": Dist(), "unbuilt": sub(unbuilt, "unbuilt")} {
		err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(p) != ".html" && path.Ext(p) != ".css" {
				return err
			}
			b, err := fs.ReadFile(files, p)
			if err != nil {
				return err
			}
			if m := external.Find(b); m != nil {
				t.Errorf("%s: %s loads something from elsewhere: %s", name, p, m)
			}
			if m := inline.Find(b); m != nil && path.Ext(p) == ".html" {
				t.Errorf("%s: %s has what its policy forbids: %s", name, p, m)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestSite(t *testing.T) {
	page := fstest.MapFS{"index.html": {Data: []byte("the page")}}
	for name, tc := range map[string]struct {
		built fs.FS
		want  string
	}{
		"built":   {page, "the page"},
		"unbuilt": {fstest.MapFS{".gitkeep": {}}, "./task build"},
	} {
		b, err := fs.ReadFile(site(tc.built, sub(unbuilt, "unbuilt")), "index.html")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), tc.want) {
			t.Errorf("%s: the page does not contain %q", name, tc.want)
		}
	}
}
