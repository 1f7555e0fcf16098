package install

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// acpAgent answers initialize and knows no --version.
const acpAgent = `#!/bin/sh
[ "$1" = acp ] || { echo "unknown flag $1" >&2; exit 2; }
read -r _
echo 'starting'
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"goose","version":"1.5.0"}}}'
read -r _
`

func putIndex(m *maker, entries ...any) {
	m.put("/registry.json", asJSON(map[string]any{"version": "1.0.0", "agents": entries, "later": true}))
}

type obj = map[string]any

func goose(binary obj) obj {
	return obj{"id": "goose", "name": "goose", "version": "1.5.0", "description": "x", "distribution": obj{"binary": obj{"linux-x86_64": binary}}}
}

func TestRegistry_Binary(t *testing.T) {
	raw := program("goose 1.5.0")
	packed := tarGz(t, entry{name: "pkg/goose", body: acpAgent, mode: 0o644})
	tests := []struct {
		name     string
		body     []byte
		archive  string
		cmd      string
		sha256   string
		program  string
		verified bool
	}{
		{"raw", raw, "goose-linux", "./goose", sum(raw), "goose", true},
		{"raw in a folder, without checksum", raw, "goose-linux", `./bin\goose`, "", "bin/goose", false},
		{"archive, proved by initialize, mode corrected", packed, "goose.tgz", "./pkg/goose", strings.ToUpper(sum(packed)), "pkg/goose", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onPath(t, nil)
			m := newMaker(t)
			m.put("/files/"+tt.archive, tt.body)
			b := obj{"archive": "https://files.test/" + tt.archive, "cmd": tt.cmd, "args": []string{"acp"}, "env": obj{"B": "2", "A": "1"}}
			if tt.sha256 != "" {
				b["sha256"] = tt.sha256
			}
			putIndex(m, goose(b))
			in := m.installer(t, Options{})
			r := mustInstall(t, in, Request{Agent: "goose"})
			if r.Source != Registry || r.Version != "1.5.0" || r.Verified != tt.verified || r.Program != filepath.Join(r.Dir, tt.program) {
				t.Errorf("installed %+v", r)
			}
			if d := cmp.Diff([]string{"acp"}, r.ACPArgs); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]string{"A=1", "B=2"}, r.Env); d != "" {
				t.Error(d)
			}
			if !strings.Contains(r.Reported, "goose 1.5.0") {
				t.Errorf("reported %q", r.Reported)
			}
		})
	}
}

func TestRegistry_Refused(t *testing.T) {
	onPath(t, nil)
	tests := []struct {
		name, want string
		binary     obj
	}{
		{"wrong checksum", "was published for it", obj{"archive": "https://files.test/goose", "cmd": "./goose", "sha256": sum(nil)}},
		{"no checksum", "no SHA-256", obj{"archive": "https://files.test/goose", "cmd": "./goose", "sha256": "abc"}},
		{"outside", "not in its archive", obj{"archive": "https://files.test/goose", "cmd": "../goose"}},
		{"absolute", "not in its archive", obj{"archive": "https://files.test/goose", "cmd": "/bin/sh"}},
		{"unprotected", "no https URL", obj{"archive": "http://files.test/goose", "cmd": "./goose"}},
		{"other archive", "does not read", obj{"archive": "https://files.test/goose.tar.xz", "cmd": "./goose"}},
		{"without the program", "does not hold", obj{"archive": "https://files.test/goose.tgz", "cmd": "./other"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			m.put("/files/goose", program("1.5.0"))
			m.put("/files/goose.tgz", tarGz(t, entry{name: "goose", body: "x"}))
			putIndex(m, goose(tt.binary))
			_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "goose"})
			wantProblem(t, err, problem.InstallFailed, tt.want)
		})
	}
}

func TestRegistry_Packages(t *testing.T) {
	t.Run("npx", func(t *testing.T) {
		log := useNPM(t, fakeNPM, ".bin/gem")
		t.Setenv("NPM_JSON", `@g/gemini={"bin":{"gem":"x.js"}}`)
		m := newMaker(t)
		putIndex(m, obj{"id": "gemini", "name": "g", "version": "0.5.0", "description": "x", "distribution": obj{"npx": obj{"package": "@g/gemini@0.5.1", "args": []string{"--acp"}}}})
		r := mustInstall(t, m.installer(t, Options{}), Request{Agent: "gemini"})
		if r.Program != filepath.Join(r.Dir, "node_modules/.bin/gem") || !slices.Equal(r.Packages, []string{"@g/gemini@0.5.1"}) || !slices.Equal(r.ACPArgs, []string{"--acp"}) {
			t.Errorf("installed %+v", r)
		}
		if calls := readFile(t, log); !strings.Contains(calls, "--engine-strict -- @g/gemini@0.5.1") {
			t.Errorf("npm was called with %s", calls)
		}
	})
	t.Run("uvx", func(t *testing.T) {
		// It fetches the package first, and runs uv beside it: nothing of the package has what uv needs for that.
		dir := onPath(t, map[string]string{"uvx": `[ "$1" = --version ] && { echo uvx 0.9; exit; }
echo "$* in $UV_CACHE_DIR" >> "${0%/*}/uvx.log"
[ "$3" = "$0" ] && { env > "${0%/*}/fetched.env"; [ "$UV_NO_CACHE" = 1 ] || [ -s "$UV_CONFIG_FILE" ] || mkdir -p "$UV_CACHE_DIR"; exit; }
env >> "${0%/*}/proved.env"; [ "$UV_OFFLINE" = 1 ] && [ -d "$UV_CACHE_DIR" ] && [ "$UV_NO_CACHE" != 1 ] || exit 1
[ "$4" = --version ] && { echo fast 0.1.1; exit; }; ` + answersInitialize})
		t.Setenv("UV_PUBLISH_TOKEN", "secret-publish")
		t.Setenv("UV_INDEX_OURS_PASSWORD", "secret-index")
		t.Setenv("UV_NO_CACHE", "1") // as images have it
		t.Setenv("UV_CONFIG_FILE", filepath.Join(dir, "uv.toml"))
		t.Setenv("UV_DEFAULT_INDEX", "https://me:secret-address@index.test/simple")
		t.Setenv("HTTPS_PROXY", "http://me:secret-proxy@proxy.test")
		t.Setenv("HOMEBREW_GITHUB_API_TOKEN", "secret-homebrew")
		m := newMaker(t)
		entry := func(version string) {
			putIndex(m, obj{"id": "fast", "name": "f", "version": version, "description": "x", "distribution": obj{"uvx": obj{"package": "fast-acp==" + version, "cmd": "fast", "args": []string{"-x"}}}})
		}
		entry("0.1.1")
		in := m.installer(t, Options{})
		r := mustInstall(t, in, Request{Agent: "fast"})
		if r.Program != filepath.Join(dir, "uvx") || !slices.Equal(r.Args, []string{"--from", "fast-acp==0.1.1", "fast"}) || !slices.Equal(r.ACPArgs, []string{"-x"}) {
			t.Errorf("installed %+v", r)
		}
		cache := " in " + filepath.Join(in.root, ".uv", "fast", "0.1.1", "cache") + "\n"
		want := "--from fast-acp==0.1.1 " + r.Program + " --version" + cache + "--from fast-acp==0.1.1 fast --version" + cache + "--from fast-acp==0.1.1 fast -x" + cache
		if got := readFile(t, filepath.Join(dir, "uvx.log")); got != want {
			t.Errorf("uvx was called with %q, want %q", got, want)
		}
		if fetched := readFile(t, filepath.Join(dir, "fetched.env")); !strings.Contains(fetched, "secret-index") || !strings.Contains(fetched, "secret-proxy") || strings.Contains(fetched, "secret-homebrew") {
			t.Errorf("uv fetches with %s", fetched)
		}
		if proved := readFile(t, filepath.Join(dir, "proved.env")); strings.Contains(proved, "secret") || !strings.Contains(proved, "UV_DEFAULT_INDEX=https://index.test/simple\n") {
			t.Errorf("the package is proved with %s", proved)
		}
		i, ok := in.Find("fast")
		if !ok || !slices.Equal(i.Args, r.Args) || !slices.Equal(i.Env, r.Env) || len(i.Artifacts) != 1 || i.Artifacts[0].SHA256 != "" {
			t.Errorf("found %+v", i)
		}
		// uv is not ours, and may be updated. Earlier releases noted what it was.
		uv, record := readFile(t, r.Program), filepath.Join(i.Dir, recordName)
		if err := os.WriteFile(r.Program, []byte(uv+"\n# updated\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		now := readFile(t, record)
		for _, noted := range []string{now, strings.Replace(now, `"kind": "program"`, `"sha256": "`+sum([]byte(uv))+`", "kind": "program"`, 1)} {
			if err := os.WriteFile(record, []byte(noted), 0o644); err != nil {
				t.Fatal(err)
			}
			if rep, err := in.Doctor(t.Context(), []string{"fast"}); err != nil || !slices.ContainsFunc(rep.Checks, func(c Check) bool {
				return c.Agent == "fast" && c.Name == "program" && c.Status == CheckOK
			}) {
				t.Errorf("with an updated uv and the record %s: %+v, %v", noted, rep.Checks, err)
			}
		}
		if proved := readFile(t, filepath.Join(dir, "proved.env")); strings.Contains(proved, "secret") {
			t.Errorf("the doctor runs the package with %s", proved)
		}
		// What uv fetched goes with its version: the one before the current one stays.
		for _, version := range []string{"0.1.2", "0.1.3"} {
			entry(version)
			mustInstall(t, in, Request{Agent: "fast", Version: version})
		}
		for version, stays := range map[string]bool{"0.1.1": false, "0.1.2": true, "0.1.3": true} {
			if _, err := os.Stat(in.uvOf("fast", version)); (err == nil) != stays {
				t.Errorf("what uv fetched for %s: %v", version, err)
			}
		}
		// What would take away in silence what was fetched, and cannot be overruled.
		entry("0.1.4")
		if err := os.WriteFile(filepath.Join(dir, "uv.toml"), []byte("no-cache = true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := in.Install(t.Context(), Request{Agent: "fast", Version: "0.1.4"})
		wantProblem(t, err, problem.InstallFailed, "take no-cache out")
		// A data directory may be moved, and what uv fetched is in it.
		moved := filepath.Join(t.TempDir(), "moved")
		if err := os.Rename(filepath.Dir(in.root), moved); err != nil {
			t.Fatal(err)
		}
		if i, _ := m.installer(t, Options{DataDir: moved}).Find("fast"); !slices.Contains(i.Env, "UV_CACHE_DIR="+filepath.Join(moved, "agents", ".uv", "fast", "0.1.3", "cache")) {
			t.Errorf("behind the move its environment is %q", i.Env)
		}
		there := m.installer(t, Options{DataDir: moved})
		if err := os.MkdirAll(there.uvOf("fast", "0.0.9"), 0o755); err != nil { // of an installer that was killed
			t.Fatal(err)
		}
		there.Tidy(t.Context())
		if left, _ := os.ReadDir(there.uvOf("fast", "")); len(left) != 2 {
			t.Errorf("behind Tidy there is %v", left)
		}
		if err := there.Remove(t.Context(), "fast"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(there.uvOf("fast", "")); err == nil {
			t.Error("what uv has fetched is left behind Remove")
		}
	})
	t.Run("flags in place of packages", func(t *testing.T) {
		useNPM(t, fakeNPM, ".bin/x")
		for _, kind := range []string{"npx", "uvx"} {
			m := newMaker(t)
			putIndex(m, obj{"id": "evil", "name": "e", "version": "1.0.0", "description": "x", "distribution": obj{kind: obj{"package": "--registry=http://evil"}}})
			_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "evil"})
			wantProblem(t, err, problem.InstallFailed, "which is no package")
		}
	})
	t.Run("without runner", func(t *testing.T) {
		onPath(t, nil)
		m := newMaker(t)
		putIndex(m, obj{"id": "both", "name": "b", "version": "1.0.0", "description": "x", "distribution": obj{"npx": obj{"package": "b@1"}, "uvx": obj{"package": "b==1"}}})
		_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "both"})
		wantProblem(t, err, problem.InstallFailed, "npm not found", "uvx not found", "install uv")
	})
}

func TestRegistry_UnknownAgentAndVersion(t *testing.T) {
	onPath(t, nil)
	m := newMaker(t)
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"}))
	_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "nobody"})
	wantProblem(t, err, problem.UnsupportedAgent, "no agent nobody", "claude", "ACP registry")
	_, err = m.installer(t, Options{}).Install(t.Context(), Request{Agent: "goose", Version: "9.0.0"})
	wantProblem(t, err, problem.InvalidRequest, "the ACP registry offers 1.5.0")
}

// The copy of the index is no reason to say that there is no such agent, or no newer version.
func TestRegistry_AskedForWhatTheCopyHasNot(t *testing.T) {
	onPath(t, nil)
	m := newMaker(t)
	sell := func(id, version string) {
		body := program(version)
		m.put("/files/goose", body)
		e := goose(obj{"archive": "https://files.test/goose", "cmd": "./goose", "args": []string{"acp"}, "sha256": sum(body)})
		e["id"], e["version"] = id, version
		putIndex(m, e)
	}
	sell("swan", "1.0.0")
	in := m.installer(t, Options{})
	if _, err := in.Registry(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ sold, want string }{{"1.5.0", ""}, {"1.6.0", Latest}, {"1.7.0", "1.7.0"}} {
		sell("goose", step.sold)
		r, err := in.Install(t.Context(), Request{Agent: "goose", Version: step.want})
		if err != nil || r.Version != step.sold || r.Already {
			t.Errorf("%q: installed %s, already %t, %v; want %s", step.want, r.Version, r.Already, err, step.sold)
		}
	}
	before := m.hitsOf("/registry.json")
	mustInstall(t, in, Request{Agent: "goose"})
	if n := m.hitsOf("/registry.json") - before; n != 0 {
		t.Errorf("the index was asked for %d times for what the copy has", n)
	}
	m.Close()
	if r := mustInstall(t, in, Request{Agent: "goose", Version: Latest}); r.Version != "1.7.0" || !r.Already {
		t.Errorf("offline: %+v", r)
	}
}

func TestRegistry_BadEntriesAreIgnored(t *testing.T) {
	good := goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"})
	with := func(k string, v any) obj { o := maps.Clone(good); o[k] = v; return o }
	b := asJSON(obj{"agents": []any{with("id", "../x"), with("version", "1/2"), with("distribution", obj{}), with("distribution", "x"), 7, nil, with("extra", 1)}})
	entries, err := parseIndex(b)
	if err != nil || len(entries) != 1 || entries[0].ID != "goose" {
		t.Errorf("entries %+v, %v", entries, err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"agents":7}`, "<html>"} {
		if _, err := parseIndex([]byte(bad)); err == nil {
			t.Errorf("%q was taken for an index", bad)
		}
	}
}

func TestRegistry_Cache(t *testing.T) {
	m := newMaker(t)
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"}))
	in := m.installer(t, Options{})
	ids := func(want int, stale bool) {
		t.Helper()
		x, err := in.Registry(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Agents) != 1 || x.Stale != stale || (x.Err != nil) != stale {
			t.Errorf("index %+v", x)
		}
		if got := m.hitsOf("/registry.json"); got != want {
			t.Errorf("the index was asked for %d times, want %d", got, want)
		}
	}
	ids(1, false)
	ids(1, false) // from the copy

	age(t, in)
	ids(2, false) // refreshed
	ids(2, false)

	age(t, in)
	m.handle("/registry.json", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == "" {
			t.Error("the copy's validator was not sent")
		}
		w.WriteHeader(http.StatusNotModified)
	})
	ids(3, false) // the same
	ids(3, false)

	age(t, in)
	m.handle("/registry.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	ids(4, true) // the last good copy
	m.Close()
	ids(4, true) // offline

	empty := m.installer(t, Options{})
	_, err := empty.Registry(t.Context())
	wantProblem(t, err, problem.InstallFailed, "no copy of it is stored", "cannot be reached")
	_, err = empty.Install(t.Context(), Request{Agent: "goose"})
	wantProblem(t, err, problem.UnsupportedAgent, "no agent goose is known", "cannot be asked", "no copy of it is stored")

	// The copy of another registry is not ours.
	other := m.installer(t, Options{DataDir: filepath.Dir(in.root), RegistryURL: m.URL + "/other.json"})
	if _, err := other.Registry(t.Context()); err == nil {
		t.Error("the copy of another registry was used")
	}
}

// Who wants no registry has it asked for nothing, and has none of the agents that an earlier copy lists.
func TestRegistry_None(t *testing.T) {
	m := newMaker(t)
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"}))
	before := m.installer(t, Options{})
	if _, err := before.Registry(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := m.installer(t, Options{DataDir: filepath.Dir(before.root), RegistryURL: NoRegistry})
	if len(in.Cached()) > 0 {
		t.Error("the copy is used")
	}
	_, err := in.Registry(t.Context())
	wantProblem(t, err, problem.InstallFailed, "--registry-url is none")
	_, err = in.Install(t.Context(), Request{Agent: "goose"})
	wantProblem(t, err, problem.UnsupportedAgent, "no agent goose is known")
	if got := m.hitsOf("/registry.json"); got != 1 {
		t.Errorf("the index was asked for %d times", got)
	}
	if slices.Contains(in.sources, Registry) {
		t.Error("doctor asks it")
	}
}

func TestRegistry_InstallOfflineFromCache(t *testing.T) {
	onPath(t, map[string]string{"npm": fakeNPM})
	t.Setenv("NPM_LOG", filepath.Join(t.TempDir(), "log"))
	t.Setenv("NPM_PLACE", ".bin/gem")
	m := newMaker(t)
	putIndex(m, obj{"id": "gem", "name": "g", "version": "0.5.0", "description": "x", "distribution": obj{"npx": obj{"package": "gem@0.5.0", "cmd": "gem"}}})
	in := m.installer(t, Options{})
	if _, err := in.Registry(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Close()
	age(t, in)
	if r := mustInstall(t, in, Request{Agent: "gem"}); r.Version != "0.5.0" {
		t.Errorf("installed %+v", r)
	}
}

// age makes the stored copy of the index two days old.
func age(t *testing.T, in *Installer) {
	t.Helper()
	_, c, err := in.cachedIndex()
	if err != nil {
		t.Fatal(err)
	}
	c.FetchedAt = time.Now().Add(-48 * time.Hour)
	if err := writeJSON(in.registryFile(), c); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(in.root, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := os.Stat(in.registryFile()); err != nil {
		t.Fatal(err)
	}
}
