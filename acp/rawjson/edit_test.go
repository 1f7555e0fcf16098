package rawjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// replace edits every place of old, except in values of members named keep.
func replace(old, with, keep string) func(key, text string) []rawjson.Edit {
	return func(key, text string) []rawjson.Edit {
		if key == keep {
			return nil
		}
		var out []rawjson.Edit
		for i := 0; ; {
			n := strings.Index(text[i:], old)
			if n < 0 {
				return out
			}
			out = append(out, rawjson.Edit{From: i + n, To: i + n + len(old), With: with})
			i += n + len(old)
		}
	}
}

func TestEditStrings(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{`"/a"`, `"/b\"c"`},
		{`{ "x" : 1.50, "y":"no" }`, `{ "x" : 1.50, "y":"no" }`},
		{`{"p":"/a and /a/x","n":1e3}`, `{"p":"/b\"c and /b\"c/x","n":1e3}`},
		{`{"/a":["/a",{"keep":"/a","q":"/a"}]}`, `{"/b\"c":["/b\"c",{"keep":"/a","q":"/b\"c"}]}`},
		{`{"keep":["/a"]}`, `{"keep":["/b\"c"]}`},
		{`{"p":"\u002fa\n\ud800\u00e9 \/a\\"}`, `{"p":"/b\"c\n\ud800\u00e9 /b\"c\\"}`},
		{`{"p":"😀\ud83d\ude00/a\t"}`, `{"p":"😀\ud83d\ude00/b\"c\t"}`},
		{`["\"/a\""]`, `["\"/b\"c\""]`},
	} {
		if got := string(rawjson.EditStrings([]byte(c.in), replace("/a", `/b"c`, "keep"))); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

// What is edited is JSON, and says the same as edited values do.
func FuzzEditStrings(f *testing.F) {
	for _, s := range []string{`{"a":"x/a"}`, `["\ud83d\ude00/a","\u002Fa"]`, `{"\/a":{"b":null}}`, `"\\/a"`, `"\ud800"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) {
			return
		}
		if same := rawjson.EditStrings([]byte(s), func(string, string) []rawjson.Edit { return nil }); string(same) != s {
			t.Fatalf("%q became %q without an edit", s, same)
		}
		out := rawjson.EditStrings([]byte(s), replace("/a", "<é\n", "no such key \x00"))
		if !json.Valid(out) {
			t.Fatalf("%q became %q", s, out)
		}
		var seen []string
		rawjson.EditStrings(out, func(_, text string) []rawjson.Edit {
			seen = append(seen, text)
			return nil
		})
		for _, text := range seen {
			if strings.Contains(text, "/a") {
				t.Fatalf("%q became %q", s, out)
			}
		}
	})
}
