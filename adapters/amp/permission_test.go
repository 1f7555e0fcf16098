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

// What is allowed for the session is the command in its folder. One that is not understood is asked about each time.
func TestGrant(t *testing.T) {
	cwd, other := t.TempDir(), t.TempDir()
	build := filepath.Join(cwd, "build")
	if err := errors.Join(os.Mkdir(build, 0o700), os.Symlink(build, filepath.Join(cwd, "link")), os.Symlink(other, filepath.Join(cwd, "out"))); err != nil {
		t.Fatal(err)
	}
	key := func(tool, in string) string {
		key, name := grant(cwd, &request{Tool: tool, Input: json.RawMessage(in)})
		if (key == "") != (name == "") {
			t.Errorf("%s %s: %q is named %q", tool, in, key, name)
		}
		return key
	}
	bash := func(command, dir string) string {
		in := map[string]string{"cmd": command}
		if dir != "" {
			in["cwd"] = dir
		}
		b, _ := json.Marshal(in)
		return key("Bash", string(b))
	}
	for _, tt := range []struct {
		name, one, two string
		same           bool
	}{
		{"the same", bash("ls", ""), bash("ls", ""), true},
		{"the workspace by its name", bash("ls", ""), bash("ls", cwd), true},
		{"a folder by a link", bash("ls", build), bash("ls", filepath.Join(cwd, "link")), true},
		{"a folder from the workspace", bash("ls", build), bash("ls", "build"), true},
		{"another folder", bash("rm -rf *", build), bash("rm -rf *", other), false},
		{"no folder", bash("rm -rf *", build), bash("rm -rf *", ""), false},
		{"a link to another folder", bash("rm -rf *", ""), bash("rm -rf *", "out"), false},
		{"another command", bash("ls", ""), bash("ls -l", ""), false},
		{"edits", key("create_file", `{"path":"`+build+`/a"}`), key("edit_file", `{"path":"`+cwd+`/b"}`), true},
		{"tools", key("mcp__a__b", `{}`), key("mcp__a__c", `{}`), false},
	} {
		if tt.one == "" || (tt.one == tt.two) != tt.same {
			t.Errorf("%s: %q and %q", tt.name, tt.one, tt.two)
		}
	}
	for _, in := range []string{"", "null", "{}", `"ls"`, `["ls"]`, `{"cmd":""}`, `{"cmd":" "}`, `{"cmd":["ls"]}`, `{"cmd":"ls","cwd":7}`, `{"cmd":"ls","cwd":null}`, `{"cmd":"ls"`} {
		if key := key("Bash", in); key != "" {
			t.Errorf("%s is allowed as %q", in, key)
		}
	}
	if _, name := grant(cwd, &request{Tool: "Bash", Input: json.RawMessage(`{"cmd":"make","cwd":"build"}`)}); name != "`make` in "+resolved(build) {
		t.Errorf("it is named %q", name)
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
