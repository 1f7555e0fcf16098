package pi

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInside(t *testing.T) {
	cwd, outside := t.TempDir(), t.TempDir()
	for link, to := range map[string]string{"out": outside, "gone": filepath.Join(outside, "no/such"), "in": filepath.Join(cwd, "sub")} {
		if err := os.Symlink(to, filepath.Join(cwd, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(cwd, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"a.txt": true, "sub/new/deep.txt": true, "./a": true, "in/b": true, "sub/../c": true, filepath.Join(cwd, "d"): true,
		"": false, ".": false, "..": false, "../x": false, "sub/../../x": false, cwd: false, filepath.Join(outside, "x"): false,
		"out/x": false, "out": false, "gone": false, "gone/x": false, "~/x": false, "@a.txt": false, "a\u00a0b": false, "file:///etc/passwd": false,
	} {
		if got := inside(cwd, []string{cwd}, path); got != want {
			t.Errorf("%q is inside: %t, want %t", path, got, want)
		}
	}
	if !inside(cwd, []string{cwd, outside}, "out/x") {
		t.Error("what leads to a folder of the session counts as outside")
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{"0.84.3": true, "0.84.2": false, "0.84": false, "0.100.0": true, "1.5.2": true, "": false, "next": false, "0.84.3-beta.1": true, "0.73.1": false} {
		if got := atLeast(version, 0, 84, 3); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}

func TestEdited(t *testing.T) {
	for name, one := range map[string]struct {
		edits []edit
		want  string
		ok    bool
	}{
		"two, in the other order": {[]edit{{"c", "C"}, {"a", "A"}}, "A b C b", true},
		"twice there":             {[]edit{{"b", "B"}}, "", false},
		"not there":               {[]edit{{"x", "y"}}, "", false},
		"overlapping":             {[]edit{{"a b", "1"}, {"b c", "2"}}, "", false},
		"what another one made":   {[]edit{{"a", "z"}, {"z", "y"}}, "", false},
		"none":                    {nil, "a b c b", false},
		"nothing":                 {[]edit{{"", "x"}}, "", false},
	} {
		if got, ok := edited("a b c b", one.edits); ok != one.ok || ok && got != one.want {
			t.Errorf("%s: %q, %t", name, got, ok)
		}
	}
}

func TestLiteral(t *testing.T) {
	for v, want := range map[string]string{"plain": "plain", "a$HOME": "a$$HOME", "!rm": "$!rm", "$!x": "$$!x", "": ""} {
		if got := literal(v); got != want {
			t.Errorf("%q is written %q, want %q", v, got, want)
		}
	}
}

func TestRemedyFor(t *testing.T) {
	for stderr, want := range map[string]bool{"SyntaxError: no export\n\nNode.js v20.20.2": true, "boom\n\nNode.js v22.23.3": false, "Error: Model not found": false} {
		if got := remedyFor(stderr); (got != "") != want {
			t.Errorf("%q: %q", stderr, got)
		}
	}
}
