package main_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// commandLine runs the real binary as somebody without a gateway does.
type commandLine struct {
	t   *testing.T
	env []string // replaces what the test has
}

func newCommandLine(t *testing.T) *commandLine {
	t.Helper()
	// Nothing of this machine's own may be found.
	return &commandLine{t: t, env: []string{"HOME=" + t.TempDir(), "PATH=" + systemTools(t), "SANDBOX_AGENT_DATA_DIR=" + filepath.Join(t.TempDir(), "data")}}
}

// systemTools returns a directory with what scripts need and no npm.
func systemTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "true"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *commandLine) dataDir() string {
	for _, kv := range c.env {
		if dir, ok := strings.CutPrefix(kv, "SANDBOX_AGENT_DATA_DIR="); ok {
			return dir
		}
	}
	return ""
}

func (c *commandLine) command(ctx context.Context, args ...string) *exec.Cmd {
	c.t.Helper()
	bin, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = c.env
	return cmd
}

// run runs a command and returns its exit code and what it wrote.
func (c *commandLine) run(args ...string) (code int, out, errOut string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*patience)
	defer cancel()
	cmd := c.command(ctx, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			c.t.Fatal(err)
		}
	}
	if strings.Contains(e.String(), "DATA RACE") || strings.Contains(e.String(), "panic:") {
		c.t.Errorf("%q tells of a bug:\n%s", args, e.String())
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

func TestInstallCLI_WithoutGateway(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	c := newCommandLine(t)
	flags := s.flags()
	code, out, errOut := c.run(append([]string{"agents", "install", "gadget"}, flags...)...)
	if code != 0 || !strings.HasPrefix(out, "installed gadget 1.0.0 in ") || !strings.Contains(out, "\nverified   checksum-only by the ACP registry\n") || !strings.Contains(out, "\nproved by  initialize\n") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	for _, want := range []string{"registry: resolve " + s.URL + "/registry.json\n", "registry: download " + s.URL + "/files/gadget\n", "registry: download 100% of 3.0 MB\n", "registry: prove gadget\n"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("progress lacks %q:\n%s", want, errOut)
		}
	}
	if strings.Contains(errOut, "not offered") {
		t.Errorf("it is installed, and sources that could not are told of:\n%s", errOut)
	}
	if strings.ContainsAny(errOut, "\r\x1b") {
		t.Errorf("progress has what only terminals understand: %q", errOut)
	}
	if info, err := os.Stat(c.dataDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", info.Mode(), err)
	}

	code, out, _ = c.run(append([]string{"agents", "install", "gadget", "--json"}, flags...)...)
	var result struct {
		Agent, Version, Program string
		Already                 bool
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 || !result.Already || result.Version != "1.0.0" {
		t.Errorf("again as JSON: exit %d, %v\n%s", code, err, out)
	}

	c.env = append(c.env, "SANDBOX_AGENT_ENDPOINT=") // empty is unset, and whatever runs on this machine is not asked
	code, out, errOut = c.run("agents", "list", "--registry-url", s.URL+"/registry.json")
	if code != 0 || !strings.Contains(out, "mock ") || !slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
		return slices.Equal(strings.Fields(l), []string{"gadget", "gadget", "-", "yes", "1.0.0", "registry", "checksum-only"})
	}) || !strings.Contains(errOut, "no gateway runs") {
		t.Errorf("list: exit %d\n%s%s", code, out, errOut)
	}
	code, out, _ = c.run("agents", "list", "--json")
	var list struct {
		Agents []struct {
			ID, Version, Path string
			Installed         bool
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("list as JSON: exit %d, %v\n%s", code, err, out)
	}
	if i := slices.IndexFunc(list.Agents, func(a struct {
		ID, Version, Path string
		Installed         bool
	},
	) bool {
		return a.ID == "gadget"
	}); i < 0 || !list.Agents[i].Installed || list.Agents[i].Path != result.Program {
		t.Errorf("list as JSON: %+v", list)
	}
	code, out, _ = c.run("agents", "show", "gadget")
	if code != 0 || !strings.Contains(out, result.Program) || !strings.Contains(out, s.URL+"/files/gadget") || !strings.Contains(out, "initialize") || !strings.Contains(out, "1.0.0 is verified: checksum-only by the ACP registry\n") {
		t.Errorf("show: exit %d\n%s", code, out)
	}
	if code, _, errOut := c.run("agents", "show", "nope"); code != 5 || !strings.Contains(errOut, "no agent nope is known") {
		t.Errorf("show an unknown one: exit %d\n%s", code, errOut)
	}
	if code, _, errOut := c.run("agents", "list", "--endpoint", "http://127.0.0.1:1"); code != 3 {
		t.Errorf("a gateway that was named and does not run: exit %d\n%s", code, errOut)
	}

	if code, out, _ := c.run("agents", "remove", "gadget"); code != 0 || out != "removed gadget\n" {
		t.Errorf("remove: exit %d\n%s", code, out)
	}
	if code, _, errOut := c.run("agents", "remove", "gadget"); code != 5 || !strings.Contains(errOut, "nothing of it is installed") {
		t.Errorf("remove again: exit %d\n%s", code, errOut)
	}
}

func TestInstallCLI_AtTheGateway(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	g := startGateway(t, append(s.flags(), "--token", token)...)
	c := newCommandLine(t)
	c.env = append(c.env, "SANDBOX_AGENT_ENDPOINT="+g.url)
	if code, _, errOut := c.run("agents", "install", "gadget"); code != 4 || !strings.Contains(errOut, "SANDBOX_AGENT_TOKEN") {
		t.Errorf("without the token: exit %d\n%s", code, errOut)
	}
	c.env = append(c.env, "SANDBOX_AGENT_TOKEN="+token)
	code, out, errOut := c.run("agents", "install", "gadget", "--source", "registry")
	if code != 0 || !strings.HasPrefix(out, "installed gadget 1.0.0 in ") || !strings.Contains(out, g.dir) || !strings.Contains(errOut, "registry: download") {
		t.Errorf("install: exit %d\n%s%s", code, out, errOut)
	}
	if _, err := os.Stat(c.dataDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was installed on this side: %v", err)
	}
	if code, out, errOut := c.run("agents", "show", "mock"); code != 0 || !strings.Contains(out, "Mock") {
		t.Errorf("show: exit %d\n%s%s", code, out, errOut)
	}
	if code, out, errOut := c.run("doctor", "gadget"); code != 0 || !strings.Contains(out, "answers initialize") {
		t.Errorf("doctor: exit %d\n%s%s", code, out, errOut)
	}
	s.list("2.0.0", sha256Of(nil))
	if code, _, errOut := c.run("agents", "install", "gadget", "--agent-version", "9.9.9", "--source", "vendor", "--source", "registry"); code != 2 || !strings.Contains(errOut, "\nregistry: no such version as 9.9.9") || !strings.Contains(errOut, "stands above") {
		t.Errorf("an unknown version: exit %d\n%s", code, errOut)
	}
	if code, out, errOut := c.run("agents", "remove", "gadget"); code != 0 {
		t.Errorf("remove: exit %d\n%s%s", code, out, errOut)
	}
	if code, _, _ := c.run("agents", "install", "nope"); code != 5 {
		t.Errorf("an unknown agent: exit %d", code)
	}
	for _, command := range []string{"agents install", "agents remove", "doctor"} {
		if code, _, errOut := c.run(append(strings.Fields(command), "cluade")...); code != 5 || !strings.Contains(errOut, "\nhint: did you mean claude?") {
			t.Errorf("%s of an agent that is nearly known: exit %d\n%s", command, code, errOut)
		}
	}
}

// Two processes that install the same take turns, and download it once.
func TestInstallCLI_TwoProcesses(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	open, waiting, _ := s.gate(gadget("1.0.0"))
	defer open()
	c := newCommandLine(t)
	args := append([]string{"agents", "install", "gadget", "--source", "registry"}, s.flags()...)
	var outs [2]bytes.Buffer
	first, second := c.command(t.Context(), args...), c.command(t.Context(), args...)
	r, w := io.Pipe()
	first.Stdout, second.Stdout, second.Stderr = &outs[0], &outs[1], w
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, "the download", waiting)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "wait\n" && string(line) != "wait " {
		t.Errorf("the second process says %q, %v; want that it waits", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	open()
	if err := errors.Join(first.Wait(), second.Wait()); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	if !strings.HasPrefix(outs[0].String(), "installed gadget 1.0.0") || !strings.HasPrefix(outs[1].String(), "gadget 1.0.0 is there already") {
		t.Errorf("first:\n%ssecond:\n%s", &outs[0], &outs[1])
	}
	if n := len(s.asked(gadgetFile)); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

func TestInstallCLI_SaysWhatEachSourceAnswered(t *testing.T) {
	s := newShop(t)
	c := newCommandLine(t)
	code, out, errOut := c.run(append([]string{"agents", "install", "claude"}, s.flags()...)...)
	if code != 6 || out != "" {
		t.Errorf("exit %d\n%s", code, out)
	}
	for _, want := range []string{
		"\npath: claude not found in PATH\n", "\nvendor: find the newest version: get " + s.URL + "/vendor/", "answered 404",
		"\nnpm: npm not found in PATH: install Node.js with npm, or use another source\n", "\nregistry: not offered", "\nerror: Installation failed: no source could install it",
	} {
		if !strings.Contains("\n"+errOut, want) {
			t.Errorf("no %q in:\n%s", want, errOut)
		}
	}
	code, _, errOut = c.run(append([]string{"agents", "install", "claude", "--json"}, s.flags()...)...)
	var doc struct {
		Type, Detail string
		ExitCode     int
	}
	if err := json.Unmarshal([]byte(errOut), &doc); err != nil || code != 6 || doc.ExitCode != 6 || !strings.HasSuffix(doc.Type, "install_failed") || !strings.Contains(doc.Detail, "npm not found") {
		t.Errorf("as JSON: exit %d, %v\n%s", code, err, errOut)
	}
	s.sell("1.0.0")
	s.list("1.0.0", "")
	if code, _, errOut := c.run(append([]string{"agents", "install", "gadget", "--require-checksum"}, s.flags()...)...); code != 6 || !strings.Contains(errOut, "no checksum is published") {
		t.Errorf("without a checksum: exit %d\n%s", code, errOut)
	}
	if code, _, errOut := c.run(append([]string{"agents", "install", "gadget", "--require-signature"}, s.flags()...)...); code != 6 || !strings.Contains(errOut, "a signature is required: unverified; nobody publishes a checksum") {
		t.Errorf("without a signature: exit %d\n%s", code, errOut)
	}
	code, out, errOut = c.run(append([]string{"agents", "install", "gadget"}, s.flags()...)...)
	if code != 0 || !strings.Contains(out, "verified   unverified; nobody publishes a checksum") {
		t.Errorf("with leave to do without: exit %d\n%s%s", code, out, errOut)
	}
}

// The maker's own downloads, on a server of its own and on GitHub.
func TestInstallCLI_Vendor(t *testing.T) {
	s := newShop(t)
	const base = "/vendor/claude-code-dist-86c565f3-f756-42ad-8dfa-d59b1c096819/claude-code-releases"
	says := func(version string) []byte {
		return []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo " + version + " && exit\nread -r line; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":1}}'\n")
	}
	platforms, assets := map[string]any{}, []map[string]string{}
	for _, p := range []string{"linux-x64", "linux-x64-musl", "linux-arm64", "linux-arm64-musl", "darwin-arm64", "darwin-x64"} {
		platforms[p] = map[string]string{"checksum": sha256Of(says("2.1.0"))}
		s.put(base+"/2.1.0/"+p+"/claude", says("2.1.0"))
		pack := packed(t, "opencode", says("1.4.0"))
		name := "opencode-" + p + ".tar.gz"
		assets = append(assets, map[string]string{"name": name, "digest": "sha256:" + sha256Of(pack)})
		s.put("/github/anomalyco/opencode/releases/download/v1.4.0/"+name, pack)
	}
	put := func(path string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		s.put(path, b)
	}
	s.put(base+"/latest", []byte("2.1.0\n"))
	put(base+"/2.1.0/manifest.json", map[string]any{"platforms": platforms})
	release := map[string]any{"tag_name": "v1.4.0", "assets": assets}
	put("/api/repos/anomalyco/opencode/releases/latest", release)
	put("/api/repos/anomalyco/opencode/releases/tags/v1.4.0", release)

	c := newCommandLine(t)
	c.env = append(c.env, "SANDBOX_AGENT_MIRRORS="+vendorHost+"="+s.URL+"/vendor,https://api.github.com="+s.URL+"/api,https://github.com="+s.URL+"/github")
	for _, args := range [][]string{{"claude"}, {"opencode"}, {"opencode", "--agent-version", "v1.4.0", "--reinstall"}} {
		code, out, errOut := c.run(append([]string{"agents", "install"}, args...)...)
		if code != 0 || !strings.HasPrefix(out, "installed "+args[0]+" ") || !strings.Contains(out, "\nsource     vendor\n") || !strings.Contains(out, "\nverified   checksum-only by 127.0.0.1:") {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, errOut)
		}
	}
	if code, _, errOut := c.run("agents", "install", "opencode", "--agent-version", "9.9.9", "--source", "vendor"); code != 2 || !strings.Contains(errOut, "no such version as 9.9.9") {
		t.Errorf("an unknown version: exit %d\n%s", code, errOut)
	}
}

// packed is a gzipped tar of one program.
func packed(t *testing.T, name string, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(body))})
	if err == nil {
		_, err = w.Write(body)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInstallCLI_Interrupted(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	_, waiting, left := s.gate(nil)
	c := newCommandLine(t)
	cmd := c.command(t.Context(), append([]string{"agents", "install", "gadget", "--source", "registry"}, s.flags()...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, "the download", waiting)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	awaitClosed(t, "the end of the download", left)
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d", code)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dataDir(), "agents", "gadget", ".stage-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestDoctorCLI(t *testing.T) {
	s := newShop(t)
	s.sell("1.0.0")
	c := newCommandLine(t)
	flags := s.flags()
	code, out, errOut := c.run(append([]string{"doctor", "gadget"}, flags...)...)
	if code != 1 || !strings.Contains(out, "gadget\n  ✗ program: not installed\n      → sandbox-agent agents install gadget\n") || !strings.Contains(errOut, "checks failed") {
		t.Errorf("not installed: exit %d\n%s%s", code, out, errOut)
	}
	// Nobody asked for gadget: nothing is wrong.
	if code, out, errOut := c.run(append([]string{"doctor", "mock"}, flags...)...); code != 0 || !strings.Contains(out, "✓ source registry: answers; it lists 1 agents") {
		t.Errorf("mock: exit %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut := c.run(append([]string{"agents", "install", "gadget"}, flags...)...); code != 0 {
		t.Fatal(errOut)
	}
	code, out, _ = c.run(append([]string{"doctor", "gadget", "--json"}, flags...)...)
	var rep struct {
		OK     bool
		Checks []struct{ Name, Status string }
	}
	if err := json.Unmarshal([]byte(out), &rep); err != nil || code != 0 || !rep.OK || len(rep.Checks) < 8 {
		t.Errorf("as JSON: exit %d, %v\n%s", code, err, out)
	}
	program := filepath.Join(c.dataDir(), "agents", "gadget", "current", "gadget")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, out, _ = c.run(append([]string{"doctor"}, flags...)...)
	if code != 1 || !strings.Contains(out, "is not the file that was installed") || !strings.Contains(out, "→ sandbox-agent agents install gadget --reinstall") {
		t.Errorf("a file that was changed: exit %d\n%s", code, out)
	}
	if code, _, errOut := c.run(append([]string{"doctor", "nope"}, flags...)...); code != 5 || !strings.Contains(errOut, "no agent nope") {
		t.Errorf("an unknown agent: exit %d\n%s", code, errOut)
	}
}
