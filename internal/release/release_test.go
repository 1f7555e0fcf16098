package main

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

const root = "../.."

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sandbox-agent-release-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// madeFor are the platforms of the release that the tests look at. To compile for
// a second one costs as much as all else here: the long tier does.
var madeFor = []string{"linux-amd64"}

func init() {
	if agentcache.IsLong() {
		madeFor = []string{"darwin-arm64", "linux-amd64", "windows-amd64"}
	}
}

// madeFiles are the programs of the release that the tests look at, in their order.
func madeFiles() (names []string) {
	for _, program := range programs {
		for _, p := range madeFor {
			system, processor, _ := strings.Cut(p, "-")
			names = append(names, platform{system, processor}.file(program))
		}
	}
	return names
}

// made is a release, made once for all tests.
var made = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "dist")
	args := []string{"run", "./internal/release", "--out", out}
	for _, p := range madeFor {
		args = append(args, "--platform", strings.Replace(p, "-", "/", 1))
	}
	page := filepath.Join(root, "inspector/dist/index.html")
	before, _ := os.Stat(page)
	text, _ := os.ReadFile(page)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	b, err := cmd.CombinedOutput()
	if err != nil {
		return "", errors.New(string(b))
	}
	// Other tests build programs with it meanwhile.
	after, _ := os.Stat(page)
	if now, _ := os.ReadFile(page); before != nil && bytes.Equal(now, text) && !after.ModTime().Equal(before.ModTime()) {
		return "", errors.New("the page was written anew, with what was there")
	}
	return out, nil
})

// release returns the folder of a release. Its page needs the packages of Node,
// which ./task test installs.
func release(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	if _, err := os.Stat(filepath.Join(root, "inspector/node_modules/vite")); err != nil {
		t.Skip("the page's packages are not installed: run ./task node:deps")
	}
	dir, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newest is the version that a release has that is not told one.
func newest(t *testing.T) string {
	t.Helper()
	c, err := changesOf(root, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.version
}

func TestRelease_Files(t *testing.T) {
	dir := release(t)
	version := newest(t)
	want := []string{"SHA256SUMS", "acp-http-client-" + version + ".tgz", "install.sh", "notes.md", "provenance.intoto.json", "sandbox-agent-" + version + ".tgz", "sandbox_agent-" + version + "-py3-none-any.whl", "sandbox_agent-" + version + ".tar.gz"}
	for _, name := range madeFiles() {
		want = append(want, name, name+".cdx.json")
	}
	for _, p := range madeFor {
		packed := ".tar.gz"
		if strings.HasPrefix(p, "windows") {
			packed = ".zip"
		}
		want = append(want, "sandbox-agent-"+version+"-"+p+packed, "sandbox-agent-"+strings.NewReplacer("amd", "x", "windows", "win32").Replace(p)+"-"+version+".tgz")
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := []string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed = append(listed, name)
		if got, err := checksum(filepath.Join(dir, name)); err != nil || got != sum {
			t.Errorf("%s: %s, %v, listed as %s", name, got, err, sum)
		}
	}
	if diff := cmp.Diff(want[1:], listed); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
	var origin struct {
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, provenanceFile))
	if err != nil || json.Unmarshal(b, &origin) != nil || len(origin.Subject) != len(want)-3 { // not itself, the notes and the checksums
		t.Errorf("where %d files come from: %v\n%s", len(want)-3, err, b)
	}
	for _, one := range origin.Subject {
		if sum, err := checksum(filepath.Join(dir, one.Name)); err != nil || sum != one.Digest.SHA256 {
			t.Errorf("%s: %s, %v, and by its origin %s", one.Name, sum, err, one.Digest.SHA256)
		}
	}
	packed, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(dir, "sandbox-agent-"+version+"-linux-amd64.tar.gz")).CombinedOutput()
	top := "sandbox-agent-" + version + "-linux-amd64/"
	if want := strings.Join([]string{"sandbox-agent", "sandbox-hub", "LICENSE", "README.md", "CHANGELOG.md", ""}, "\n"); err != nil || strings.ReplaceAll(string(packed), top, "") != want {
		t.Errorf("the archive has %s, %v", packed, err)
	}
	page, err := os.ReadFile(filepath.Join(root, "inspector/dist/index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		name = filepath.Join(dir, name+"-linux-amd64")
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || f.Section(".interp") != nil {
			t.Errorf("%s is not static: %v, %v", name, libs, err)
		}
		program, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(program, page) {
			t.Errorf("the page is not in %s: %v", name, err)
		}
		if wd, err := filepath.Abs(root); err != nil || bytes.Contains(program, []byte(wd)) {
			t.Errorf("%s contains the path of its sources: %v", name, err)
		}
	}
}

// The wheel of a release goes into an empty environment, and drives the release's program.
func TestRelease_Python(t *testing.T) {
	dir, version := release(t), newest(t)
	run := func(env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	prepared, err := filepath.Abs(filepath.Join(root, "sdk-py/.venv/bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(prepared); err != nil {
		t.Skip("the environment of the Python tests is missing: run ./task python:deps")
	}
	venv := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("this machine's Python makes no environments: %v\n%s", err, out)
	}
	python := filepath.Join(venv, "bin/python")
	run(nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", filepath.Join(dir, "sandbox_agent-"+version+"-py3-none-any.whl"))
	about := run(nil, python, "-c", `if True:
		from importlib.metadata import metadata, files
		m = metadata("sandbox-agent")
		print(m["Version"], m["Requires-Python"], m["License"], m.get_all("Requires-Dist"), m["Project-URL"])
		print(len(m.get_payload()) > 500, any(f.name == "py.typed" for f in files("sandbox-agent")))`)
	want := version + " >=3.11 Apache-2.0 ['httpx>=0.23', 'websockets>=10.4'] Source, https://github.com/sandboxagent/sandbox-agent\nTrue True"
	if about != want {
		t.Errorf("the package says\n%s\nwant\n%s", about, want)
	}
	// What it needs besides is where the tests of sdk-py have it.
	needs := run(nil, prepared, "-c", `import httpx, websockets, pathlib; print(":".join(sorted({str(pathlib.Path(m.__file__).parents[1]) for m in (httpx, websockets)})))`)
	said := run([]string{"PYTHONPATH=" + needs, "SANDBOX_AGENT_BIN=" + filepath.Join(dir, "sandbox-agent-linux-amd64"), "HOME=" + t.TempDir()}, python, "-c", `if True:
		import sandbox_agent
		from sandbox_agent.sync import start
		assert sandbox_agent.__file__.startswith("`+venv+`"), sandbox_agent.__file__
		with start(agent="mock", args=["--ephemeral"]) as client:
			print(client.new_session(cwd="/tmp").prompt("echo from the wheel").result().text, client.api.version()["version"])`)
	if said != "from the wheel "+version {
		t.Errorf("it said %q", said)
	}
}

func TestPackPython(t *testing.T) {
	dir := t.TempDir()
	if err := packPython(options{version: "1.2.3-rc.4", root: root}, dir); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"sandbox_agent-1.2.3rc4-py3-none-any.whl", "sandbox_agent-1.2.3rc4.tar.gz"}) {
		t.Fatalf("files: %v", got)
	}
	wheel, err := zip.OpenReader(filepath.Join(dir, "sandbox_agent-1.2.3rc4-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	defer wheel.Close()
	packed, err := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(dir, "sandbox_agent-1.2.3rc4.tar.gz"), "-C", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, packed)
	}
	top := filepath.Join(dir, "sandbox_agent-1.2.3rc4")
	sources := 0
	for _, f := range wheel.File {
		if !strings.HasPrefix(f.Name, "sandbox_agent/") {
			continue
		}
		sources++
		text, err := fs.ReadFile(wheel, f.Name)
		other, err2 := os.ReadFile(filepath.Join(top, "src", f.Name))
		if err != nil || err2 != nil || !bytes.Equal(text, other) {
			t.Errorf("%s: the wheel and the sources differ: %v, %v", f.Name, err, err2)
		}
	}
	if inTree, err := filepath.Glob(filepath.Join(root, "sdk-py/src/sandbox_agent/*.py")); err != nil || sources != len(inTree)+1 {
		t.Errorf("%d files, and the tree has %d, py.typed not counted: %v", sources, len(inTree), err)
	}
	about, err := fs.ReadFile(wheel, "sandbox_agent-1.2.3rc4.dist-info/METADATA")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile(filepath.Join(top, "PKG-INFO")); err != nil || !bytes.Equal(about, other) {
		t.Errorf("PKG-INFO is not METADATA: %v", err)
	}
	if manifest, err := os.ReadFile(filepath.Join(top, "pyproject.toml")); err != nil || !strings.Contains(string(manifest), "\nversion = \"1.2.3rc4\"\n") {
		t.Errorf("pyproject.toml: %v\n%s", err, manifest)
	}
	first, err := checksum(filepath.Join(dir, "sandbox_agent-1.2.3rc4-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if err := packPython(options{version: "1.2.3-rc.4", root: root}, again); err != nil {
		t.Fatal(err)
	}
	if second, err := checksum(filepath.Join(again, "sandbox_agent-1.2.3rc4-py3-none-any.whl")); err != nil || second != first {
		t.Errorf("the second time it is another file: %v", err)
	}
	if err := packPython(options{version: "1.2.3-next", root: root}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "use -alpha.N, -beta.N or -rc.N") {
		t.Errorf("a version that Python does not know: %v", err)
	}
}

// The sources in another place, without git, and built from nothing, give the
// same bytes.
func TestRelease_Reproducible(t *testing.T) {
	agentcache.Long(t, "it compiles everything again, Go's own packages too")
	dir := release(t)
	copied := filepath.Join(t.TempDir(), "elsewhere")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-coz", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		copyFile(t, filepath.Join(root, name), filepath.Join(copied, name))
	}
	for _, d := range []string{"sdk-ts", "inspector"} {
		linkTree(t, filepath.Join(root, d, "node_modules"), filepath.Join(copied, d, "node_modules"))
	}
	out := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/release", "--platform", "linux/amd64", "--out", out)
	cmd.Dir = copied
	cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(t.TempDir(), "cache"), "TZ=Pacific/Auckland", "GOFLAGS=-p=2")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, name := range []string{"sandbox-agent-linux-amd64", "sandbox-agent-linux-amd64.cdx.json", "sandbox-hub-linux-amd64", "sandbox-agent-" + newest(t) + "-linux-amd64.tar.gz", "sandbox-agent-" + newest(t) + ".tgz", "install.sh"} {
		want, err := checksum(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := checksum(filepath.Join(out, name)); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestSBOM_FitsTheSchema(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	schema := cyclone(t)
	for _, name := range madeFiles() {
		b, err := os.ReadFile(filepath.Join(release(t), name+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		v.(map[string]any)["components"].([]any)[0].(map[string]any)["type"] = "spoon"
		if schema.Validate(v) == nil {
			t.Error("the schema accepts everything")
		}
	}
}

// cyclone is the official schema, less its descriptions.
func cyclone(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6", "jsf-0.82", "spdx"} {
		f, err := os.Open("testdata/" + name + ".SNAPSHOT.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		doc, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource("http://cyclonedx.org/schema/"+name+".SNAPSHOT.schema.json", doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.SNAPSHOT.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// What the list names is compared with what the go command finds in the program,
// and with what the page's manifests ask for.
func TestSBOM_IsComplete(t *testing.T) {
	dir := release(t)
	for _, name := range madeFiles() {
		b, err := os.ReadFile(filepath.Join(dir, name+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var doc bom
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		var golang, npm []string
		for _, c := range doc.Components {
			if strings.HasPrefix(c.PURL, "pkg:npm/") {
				npm = append(npm, c.Name+"@"+c.Version)
				if len(c.Hashes) != 1 || len(c.Licenses) != 1 {
					t.Errorf("%s has no checksum or no license: %+v", c.Name, c)
				}
			} else if c.Name != "std" {
				golang = append(golang, c.Name+"@"+c.Version)
			}
		}
		out, err := exec.CommandContext(t.Context(), "go", "version", "-m", filepath.Join(dir, name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
				want = append(want, f[1]+"@"+f[2])
			}
		}
		slices.Sort(want)
		slices.Sort(golang)
		if diff := cmp.Diff(want, golang); diff != "" || len(want) < 10 {
			t.Errorf("%s: modules (-want +got):\n%s", name, diff)
		}
		for _, manifest := range []string{"inspector", "sdk-ts/acp-http-client"} {
			for p, version := range dependencies(t, manifest) {
				if !slices.Contains(npm, p+"@"+version) {
					t.Errorf("%s: %s of %s is missing in %v", name, p, manifest, npm)
				}
			}
		}
		for _, p := range npm {
			if strings.HasPrefix(p, "vite@") || strings.HasPrefix(p, "typescript@") {
				t.Errorf("%s: %s is a tool, and not in the page", name, p)
			}
		}
		if self := doc.Metadata.Component; self.Version != newest(t) || len(self.Hashes) != 1 {
			t.Errorf("%s describes itself as %+v", name, self)
		} else if sum, err := checksum(filepath.Join(dir, name)); err != nil || sum != self.Hashes[0].Content {
			t.Errorf("%s: %s, %v, described as %s", name, sum, err, self.Hashes[0].Content)
		}
	}
}

func dependencies(t *testing.T, dir string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, dir, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(b, &manifest); err != nil || len(manifest.Dependencies) == 0 {
		t.Fatalf("%s: %v, %+v", dir, err, manifest)
	}
	return manifest.Dependencies
}

// What people on Windows unpack is a zip, whose programs have the names that Windows runs.
func TestArchive_Windows(t *testing.T) {
	p, staged := platform{"windows", "amd64"}, t.TempDir()
	for _, program := range programs {
		writeFile(t, filepath.Join(staged, p.file(program)), "the program "+program)
	}
	o := options{version: "1.2.3", root: root}
	name := filepath.Join(staged, "sandbox-agent-1.2.3-windows-amd64.zip")
	sums := map[string]bool{}
	for range 2 {
		if err := archive(o, p, staged); err != nil {
			t.Fatal(err)
		}
		sum, err := checksum(name)
		if err != nil {
			t.Fatal(err)
		}
		sums[sum] = true
	}
	if len(sums) != 1 {
		t.Errorf("the same programs gave %d archives", len(sums))
	}
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var got []string
	for _, f := range z.File {
		got = append(got, strings.TrimPrefix(f.Name, "sandbox-agent-1.2.3-windows-amd64/"))
	}
	if diff := cmp.Diff([]string{"sandbox-agent.exe", "sandbox-hub.exe", "LICENSE", "README.md", "CHANGELOG.md"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	text, err := fs.ReadFile(z, "sandbox-agent-1.2.3-windows-amd64/sandbox-hub.exe")
	if err != nil || string(text) != "the program sandbox-hub" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRelease_ReplacesAFormerOne(t *testing.T) {
	staged, out := filepath.Join(t.TempDir(), "staged"), t.TempDir()
	for _, name := range []string{filepath.Join(out, "sandbox-agent-plan9-mips"), filepath.Join(out, "notes"), filepath.Join(out, "SHA256SUMS")} {
		writeFile(t, name, "old")
	}
	writeFile(t, filepath.Join(staged, "sandbox-agent-linux-amd64"), "new")
	if err := land(staged, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"SHA256SUMS", "notes", "sandbox-agent-linux-amd64"}, names(t, out)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestParse_Refuses(t *testing.T) {
	for line, want := range map[string]string{
		"--version 1.2":                        "is not a version",
		"--version 1.2.3;rm":                   "is not a version",
		"--version 1.2.3 --platform plan9/arm": "use one of",
		"--version 1.2.3 now":                  "is not a flag",
		"--dry-run --publish":                  "exclude one another",
		"--publish --platform linux/amd64":     "publishes all platforms",
	} {
		if _, err := parse(strings.Fields(line), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", line, err, want)
		}
	}
	if o, err := parse([]string{"--version", "v1.2.3-rc.1"}, io.Discard); err != nil || o.version != "1.2.3-rc.1" || len(o.platforms) != 5 {
		t.Errorf("%+v, %v", o, err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return // removed and not yet committed
	}
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, string(b))
}

// linkTree makes a tree of hard links, or of copies where that is not possible.
func linkTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		place := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(place, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(target, place)
		}
		if os.Link(name, place) != nil {
			copyFile(t, name, place)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
