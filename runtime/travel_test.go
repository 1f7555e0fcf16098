package runtime

import (
	"io"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

// Keys go from all that can be read, paths from all that is not signed, and what is no
// JSON is edited as a text.
func TestEdited(t *testing.T) {
	move := paths.NewMap(paths.Pair{From: "/old", To: "/new/home"})
	clean := func(s string) string { return strings.ReplaceAll(s, "KEY", "[removed]") }
	const in = `{"p":"/old/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`
	read := func(name string, json func([]byte) []byte, text func(string) string) string {
		t.Helper()
		b, err := io.ReadAll(edited(name, strings.NewReader(in), json, text))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ name, moved, cleaned string }{
		{
			"a.jsonl", `{"p":"/new/home/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/new/home` + "\n" + `["/new/home"]`,
			`{"p":"/old/x [removed]","thinking":"/old [removed]","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`,
		},
		{"a.json", strings.ReplaceAll(in, "/old", "/new/home"), strings.ReplaceAll(in, "KEY", "[removed]")},
		{"a.txt", in, in},
	} {
		if got := read(c.name, move.JSON, move.Text); got != c.moved {
			t.Errorf("%s moved: %s", c.name, got)
		}
		if got := read(c.name, func(b []byte) []byte { return cleanJSON(b, clean) }, clean); got != c.cleaned {
			t.Errorf("%s cleaned: %s", c.name, got)
		}
	}
	if _, err := io.ReadAll(edited("a.json", io.LimitReader(endless{}, maxText+2), move.JSON, nil)); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("a text without an end: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
