package amp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// No rule may ask: the program would wait for ever.
func TestRulesOf_NoneAsks(t *testing.T) {
	var own []rule
	if err := json.Unmarshal([]byte(`[
		{"tool":"Bash","matches":{"cmd":"git push*"},"action":"ask","context":"thread"},
		{"tool":"Bash","matches":{"cmd":"touch *"},"action":"allow"},{"tool":"Bash","action":"reject"},{"tool":"Read","action":"allow"},{"tool":"x","action":"delegate","to":"/own"}
	]`), &own); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{permitDefault, permitReadonly, permitWrite} {
		list := rulesOf(mode, own, "/delegate")
		for _, r := range list {
			if a := bridge.Text(r["action"]); a == "ask" || (a == "delegate") != (r["to"] != nil) || (r["message"] != nil && a != "reject") {
				t.Errorf("%s: %s", mode, r)
			}
		}
		if mode == permitReadonly && slices.ContainsFunc(list, func(r rule) bool {
			return bridge.Text(r["action"]) != "reject" && !slices.Contains(reads, bridge.Text(r["tool"]))
		}) {
			t.Errorf("a session that only reads may do more: %s", list)
		}
		if last := list[len(list)-1]; bridge.Text(last["tool"]) != "*" {
			t.Errorf("%s ends with %s", mode, last)
		}
	}
	asks := rulesOf(permitDefault, own, "/delegate")[0]
	if bridge.Text(asks["to"]) != "/delegate" || string(asks["matches"]) != `{"cmd":"git push*"}` || bridge.Text(asks["context"]) != "thread" {
		t.Errorf("the user's rule became %s", asks)
	}
	if bridge.Text(own[0]["action"]) != "ask" {
		t.Error("the user's rule itself has changed")
	}
}

func TestGuarded(t *testing.T) {
	cwd, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(cwd, "out")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"a.go": false, "new/b.go": false, ".amp/settings.json": true, "x/.env": true, "data.db": true, "y.sqlite3": true, "amp.json": true,
		"../z": true, "out/c.go": true, ".": true,
	} {
		if got := guarded(cwd, filepath.Join(cwd, path)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if !guarded(cwd, "") || !guarded(cwd, "/etc/passwd") {
		t.Error("other places are not guarded")
	}
}

func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": [1, 2,], /* x */ "b": "// no, \" comment", } // end`: `{"a":[1,2],"b":"// no, \" comment"}`,
		"// nothing": "", `{"a":"x\\"}`: `{"a":"x\\"}`, "/*": "", `"open`: `"open`, `[,`: `[,`,
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}

func TestModesIn(t *testing.T) {
	for help, want := range map[string]int{
		"  -m, --mode <value>\n      Set the agent mode (deep, free, rush, smart) — controls":                            4,
		"Set the agent mode (low, medium, high, ultra, or a plugin mode by key\n or label, case-insensitive) — controls": 4,
		"no modes": 0,
	} {
		if got := modesIn(help); len(got) != want {
			t.Errorf("%q: %q", help, got)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "dist", "main.js")
	link := filepath.Join(dir, "amp")
	if err := errors.Join(os.Mkdir(filepath.Dir(script), 0o700), os.WriteFile(script, nil, 0o700), os.Symlink(script, link)); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		`{"name":"@sourcegraph/amp","version":"0.0.1770734955-g93e689"}`:    "0.0.1770734955-g93e689",
		`{"name":"@ampcode/cli-linux-x64","version":"0.0.1780000000-gabc"}`: "0.0.1780000000-gabc",
		`{"name":"wrapper-of-mine","version":"0.0.1780000000-gabc"}`:        "",
		`{"name":"@sourcegraph/amp","version":"next"}`:                      "",
		`no JSON`: "",
	} {
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := packageVersion(link); got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}
