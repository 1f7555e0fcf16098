package acphttp

import (
	"net/url"
	"testing"
)

func TestAddress_NamesAreOneSegment(t *testing.T) {
	base, err := url.Parse("http://hub/below")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"box-1":        "/below/v2/nodes/box-1/x",
		"../tokens/id": "/below/v2/nodes/..%2Ftokens%2Fid/x",
		"..":           "/below/v2/nodes/%2E%2E/x",
		".":            "/below/v2/nodes/%2E/x",
		"%zz":          "/below/v2/nodes/%25zz/x",
		"a?b#c":        "/below/v2/nodes/a%3Fb%23c/x",
	} {
		u := Address(base, "v2", "nodes", name, "x")
		if got := u.EscapedPath(); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
		if want := "/below/v2/nodes/" + name + "/x"; u.Path != want {
			t.Errorf("%q: it reads as %s, want %s", name, u.Path, want)
		}
	}
}
