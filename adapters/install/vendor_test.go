package install

import (
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestVendor_EveryRecipe(t *testing.T) {
	codexTriple := "x86_64-unknown-linux-musl"
	script := func(s string) string { return string(program(s)) }
	tests := []struct {
		name     string
		agent    string
		platform Platform
		publish  func(t *testing.T, m *maker)
		version  string
		program  string
		helpers  []string
		verified bool
	}{
		{
			"claude", "claude", linuxX64, func(_ *testing.T, m *maker) { m.putClaude("2.1.9", program("2.1.9 (Claude Code)")) },
			"2.1.9", "claude", nil, true,
		},
		{
			"claude with musl", "claude",
			Platform{"linux", "x64", true},
			func(_ *testing.T, m *maker) {
				m.putClaude("2.1.9", program("2.1.9"))
				m.put("/claude/2.1.9/linux-x64/claude", []byte("the wrong one"))
			},
			"2.1.9", "claude", nil, true,
		},
		{
			"codex", "codex", linuxX64, func(t *testing.T, m *maker) {
				pack := tarGz(t, entry{name: "bin/codex", body: script("codex-cli 0.9.1")}, entry{name: "bin/codex-code-mode-host", body: "x"}, entry{name: "codex-path/rg", body: "x"})
				name := "codex-package-" + codexTriple + ".tar.gz"
				m.putRelease("openai/codex", "rust-v0.9.1", false, map[string][]byte{name: pack, "codex-package_SHA256SUMS": []byte(sum(pack) + "  " + name + "\n")})
			},
			"0.9.1", "bin/codex",
			[]string{"bin/codex-code-mode-host", "codex-path/rg"},
			true,
		},
		{
			"codex as older releases pack it", "codex",
			Platform{"darwin", "arm64", false},
			func(t *testing.T, m *maker) {
				m.putRelease("openai/codex", "rust-v0.5.0", true, map[string][]byte{
					"codex-aarch64-apple-darwin.tar.gz":                tarGz(t, entry{name: "codex-aarch64-apple-darwin", body: script("codex-cli 0.5.0")}),
					"codex-code-mode-host-aarch64-apple-darwin.tar.gz": tarGz(t, entry{name: "codex-code-mode-host-aarch64-apple-darwin", body: "x"}),
				})
			},
			"0.5.0", "codex",
			[]string{"codex-code-mode-host"},
			true,
		},
		{
			"codex without its host", "codex", linuxX64, func(t *testing.T, m *maker) {
				m.putRelease("openai/codex", "rust-v0.4.0", true, map[string][]byte{
					"codex-" + codexTriple + ".tar.gz": tarGz(t, entry{name: "codex-" + codexTriple, body: script("codex-cli 0.4.0")}),
				})
			},
			"0.4.0", "codex", nil, true,
		},
		{
			"opencode", "opencode",
			Platform{"linux", "x64", true},
			func(t *testing.T, m *maker) {
				m.putRelease("anomalyco/opencode", "v1.2.3", true, map[string][]byte{"opencode-linux-x64-musl.tar.gz": tarGz(t, entry{name: "opencode", body: script("1.2.3")})})
			},
			"1.2.3", "opencode", nil, true,
		},
		{
			"opencode as zip", "opencode",
			Platform{"darwin", "x64", false},
			func(t *testing.T, m *maker) {
				m.putRelease("anomalyco/opencode", "v1.2.3", false, map[string][]byte{"opencode-darwin-x64.zip": zipped(t, entry{name: "opencode", body: script("1.2.3")})})
			},
			"1.2.3", "opencode", nil, false,
		},
		{
			"amp", "amp",
			Platform{"linux", "arm64", false},
			func(_ *testing.T, m *maker) {
				body := program("0.0.179-gabc")
				m.put("/amp/cli-version.txt", []byte("0.0.179-gabc\n"))
				m.put("/amp/0.0.179-gabc/amp-linux-arm64", body)
				m.put("/amp/0.0.179-gabc/linux-arm64-amp.sha256", []byte(sum(body)))
			},
			"0.0.179-gabc", "amp", nil, true,
		},
		{
			"copilot", "copilot",
			Platform{"linux", "x64", true},
			func(t *testing.T, m *maker) {
				pack := tarGz(t, entry{name: "copilot", body: script("GitHub Copilot CLI 1.0.9.")})
				m.putRelease("github/copilot-cli", "v1.0.9", false, map[string][]byte{"copilot-linuxmusl-x64.tar.gz": pack, "SHA256SUMS.txt": []byte(sum(pack) + "  copilot-linuxmusl-x64.tar.gz\n")})
			},
			"1.0.9", "copilot", nil, true,
		},
		{
			"pi", "pi", linuxX64, func(t *testing.T, m *maker) {
				pack := tarGz(t, entry{name: "pi/pi", body: script("1.5.2")}, entry{name: "pi/theme/dark.json", body: "{}", mode: 0o644})
				m.putRelease("earendil-works/pi", "v1.5.2", false, map[string][]byte{"pi-linux-x64.tar.gz": pack, "SHA256SUMS": []byte(sum(pack) + " *pi-linux-x64.tar.gz\n")})
			},
			"1.5.2", "pi/pi", nil, true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			tt.publish(t, m)
			in := m.installer(t, Options{Platform: tt.platform, Sources: []Source{Vendor}})
			r := mustInstall(t, in, Request{Agent: tt.agent})
			dir := filepath.Join(in.root, tt.agent, tt.version)
			if r.Version != tt.version || r.Program != filepath.Join(dir, tt.program) || r.Verified != tt.verified || r.Already || !r.Current {
				t.Errorf("installed %+v", r)
			}
			var helpers []string
			for _, a := range r.Artifacts {
				if a.SHA256 == "" || a.Version != tt.version || a.Source != Vendor || a.Verified != tt.verified {
					t.Errorf("artifact %+v", a)
				}
				if a.Kind == KindHelper {
					rel, _ := filepath.Rel(dir, a.Path)
					helpers = append(helpers, rel)
				}
			}
			if d := cmp.Diff(tt.helpers, helpers); d != "" {
				t.Error(d)
			}
			if !strings.Contains(r.Reported, tt.version) {
				t.Errorf("the program said %q", r.Reported)
			}
			if i, ok := in.Find(tt.agent); !ok || i.Program != r.Program {
				t.Errorf("found %+v, %t", i, ok)
			}
			if strings.Contains(readFile(t, filepath.Join(dir, "install.json")), dir) {
				t.Error("install.json holds an absolute path")
			}
		})
	}
}

func TestVendor_UnknownVersion(t *testing.T) {
	onPath(t, nil)
	m := newMaker(t)
	m.putClaude("2.1.9", program("2.1.9"))
	m.putRelease("openai/codex", "rust-v1.0.0", true, nil)
	for _, agent := range []string{"claude", "codex"} {
		_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: agent, Version: "9.9.9"})
		wantProblem(t, err, problem.InvalidRequest, "no such version as 9.9.9", "path: "+agent+" not found", "npm: npm not found", "registry: not offered")
	}
	_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "claude", Version: "../../etc"})
	wantProblem(t, err, problem.InvalidRequest, "is no version")
}

func TestVendor_NoBuildForPlatform(t *testing.T) {
	m := newMaker(t)
	_, err := m.installer(t, Options{Platform: Platform{"linux", "x64", true}, Sources: []Source{Vendor}}).Install(t.Context(), Request{Agent: "amp"})
	wantProblem(t, err, problem.InstallFailed, "there is no build for linux-x64-musl")
}

func TestVendor_APIRefuses(t *testing.T) {
	m := newMaker(t)
	m.putRelease("anomalyco/opencode", "v1.2.3", true, map[string][]byte{"opencode-linux-x64.tar.gz": tarGz(t, entry{name: "opencode", body: string(program("1.2.3"))})})
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "rate limit", http.StatusForbidden) }
	m.handle("/api/repos/anomalyco/opencode/releases/latest", refuse)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	_, err := in.Install(t.Context(), Request{Agent: "opencode"})
	wantProblem(t, err, problem.InstallFailed, "403", "use a proxy or a mirror")

	m.handle("/github/anomalyco/opencode/releases/latest", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/github/anomalyco/opencode/releases/tag/v1.2.3", http.StatusFound)
	})
	if r := mustInstall(t, in, Request{Agent: "opencode"}); r.Version != "1.2.3" || r.Verified {
		t.Errorf("installed %+v, want 1.2.3, not verified", r)
	}

	strict := m.installer(t, Options{Sources: []Source{Vendor}, RequireChecksum: true})
	_, err = strict.Install(t.Context(), Request{Agent: "opencode"})
	wantProblem(t, err, problem.InstallFailed, "no checksum is published")
}

func TestVendor_WrongChecksum(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	old := mustInstall(t, in, Request{Agent: "claude"})

	m.putClaude("2.0.0", program("2.0.0"))
	evil := program("evil")
	m.put("/claude/2.0.0/linux-x64/claude", evil)
	_, err := in.Install(t.Context(), Request{Agent: "claude", Version: Latest})
	wantProblem(t, err, problem.InstallFailed, sum(evil), sum(program("2.0.0")), "was published for it")
	wantOnly(t, in, old.Installation)
}

func TestVendor_ProofFails(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	old := mustInstall(t, in, Request{Agent: "claude"})

	tests := []struct {
		name, body string
		proof      time.Duration
		want       string
	}{
		{"it fails", "#!/bin/sh\necho 'GLIBC_2.34 not found' >&2\nexit 1\n", time.Minute, `exited with code 1 and wrote: "GLIBC_2.34 not found"`},
		{"it hangs", "#!/bin/sh\nsleep 1000 & wait\n", 200 * time.Millisecond, "did not end within"},
		{"no program", "<html>hello</html>", time.Minute, "another system"},
		{"no loader", "#!/lib/ld-nowhere.so.1\n", time.Minute, "another C library or processor"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.putClaude(fmt.Sprintf("2.0.%d", i), []byte(tt.body))
			in.proof = tt.proof
			_, err := in.Install(t.Context(), Request{Agent: "claude", Version: Latest})
			wantProblem(t, err, problem.InstallFailed, tt.want)
			wantOnly(t, in, old.Installation)
		})
	}
}

func TestVendor_ProofHasNoSecrets(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "sk-secret")
	t.Setenv("SANDBOX_AGENT_TOKEN", "secret-token")
	home := t.TempDir()
	t.Setenv("HOME", home)
	m := newMaker(t)
	m.putClaude("1.0.0", []byte("#!/bin/sh\nenv > \"$0.env\"\necho 1.0.0\n"))
	r := mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude"})
	env := readFile(t, r.Program+".env")
	if strings.Contains(env, "secret") || strings.Contains(env, "HOME="+home+"\n") {
		t.Errorf("the proof's environment:\n%s", env)
	}
	if !strings.Contains(env, "DISABLE_AUTOUPDATER=1\n") {
		t.Errorf("the recipe's environment is missing:\n%s", env)
	}
}

// The password in the address of a mirror or of the registry, and a token in place of its user, is in nothing that is said or kept.
func TestVendor_MirrorPasswordStaysHidden(t *testing.T) {
	onPath(t, nil)
	for name, user := range map[string]string{"a password": "user:hunter2@", "a token": "hunter2@"} {
		t.Run(name, func(t *testing.T) { testMirrorSecret(t, user) })
	}
}

// testMirrorSecret uses mirrors and a registry with this before their hosts, which has the word hunter2.
func testMirrorSecret(t *testing.T, user string) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	m.put("/files/goose", program("1.5.0"))
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose", "args": []string{"acp"}}))
	m.handle("/github/openai/codex/releases/latest", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	})
	address := strings.Replace(m.URL, "http://", "http://"+user, 1)
	in := m.installer(t, Options{Sources: []Source{Vendor, Registry}, Mirrors: mirrorsAt(address), RegistryURL: address + "/registry.json"})
	broken := m.installer(t, Options{Mirrors: mirrorsAt(address + "%zz"), RegistryURL: address + "%zz"})
	var said []any
	progress := func(p Progress) { said = append(said, p) }
	for _, req := range []Request{{Agent: "claude"}, {Agent: "goose"}} {
		req.Progress = progress
		mustInstall(t, in, req)
	}
	for _, req := range []Request{
		{Agent: "claude", Version: "7.7.7"}, {Agent: "codex"}, {Agent: "goose", Version: "9.9.9"}, {Agent: "goose", Version: Latest, Sources: []Source{Vendor}},
	} {
		req.Progress = progress
		for _, in := range []*Installer{in, broken} {
			_, err := in.Install(t.Context(), req)
			said = append(said, err, string(asJSON(err)))
		}
	}
	for _, in := range []*Installer{in, broken} {
		report, err := in.Doctor(t.Context(), nil)
		said = append(said, report, err)
	}
	err := filepath.WalkDir(in.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			said = append(said, path+": "+readFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range said {
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, "hunter2") {
			t.Errorf("the password shows in %.400s", text)
		}
	}
	asked := m.hitsOf("/registry.json")
	if index, err := in.Registry(t.Context()); err != nil || len(index.Agents) != 1 || m.hitsOf("/registry.json") != asked {
		t.Errorf("the index that is stored is not used: %v, asked %d times, %d before", err, m.hitsOf("/registry.json"), asked)
	}
}

func TestVendor_Progress(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	var steps []Step
	var last Progress
	mustInstall(t, m.installer(t, Options{Sources: []Source{Vendor}}), Request{Agent: "claude", Progress: func(p Progress) {
		if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
		if p.Step == StepDownload {
			last = p
		}
	}})
	if d := cmp.Diff([]Step{StepResolve, StepDownload, StepProve, StepLand}, steps); d != "" {
		t.Error(d)
	}
	if last.Done != int64(len(program("1.0.0"))) || last.Done != last.Total || last.Source != Vendor || last.Agent != "claude" {
		t.Errorf("last report of the download: %+v", last)
	}
}

// wantOnly checks that an installation is untouched and nothing else is there.
func wantOnly(t *testing.T, in *Installer, want Installation) {
	t.Helper()
	list, err := in.List()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Installation{want}, list); d != "" {
		t.Error(d)
	}
	if i, ok := in.Find(want.Agent); !ok || i.Program != want.Program {
		t.Errorf("found %+v, %t", i, ok)
	}
	if left, _ := filepath.Glob(filepath.Join(in.root, want.Agent, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
