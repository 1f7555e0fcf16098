package install

import (
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature/signaturetest"
)

// The package of codex that fakeNPM installs, and its digest.
const (
	codexPackage = "@openai/codex"
	codexVersion = "3.2.1-linux-x64"
	codexPlace   = "@openai/codex/vendor/x/bin/codex"
	digest       = "sha512-YWJj"
)

// lockOf is what npm writes of packages with the digest, NAME@VERSION.
func lockOf(specs ...string) string {
	packages := map[string]any{}
	for _, s := range specs {
		name := packageName(s)
		packages["node_modules/"+name] = map[string]string{"version": strings.TrimPrefix(s, name+"@"), "integrity": digest}
	}
	return string(asJSON(map[string]any{"packages": packages}))
}

// distOf is what a registry says of a package with the digest.
func distOf(name, version, integrity string, sigs ...signature.PackageSignature) string {
	return string(asJSON(map[string]any{"name": name, "version": version, "dist": map[string]any{"integrity": integrity, "signatures": sigs}}))
}

func wantVerified(t *testing.T, i Installation, how How, words ...string) {
	t.Helper()
	if i.Verification.How != how {
		t.Errorf("verified %s, want %s", i.Verification, how)
	}
	for _, w := range words {
		if !strings.Contains(i.Verification.String(), w) {
			t.Errorf("%q does not say %q", i.Verification, w)
		}
	}
}

// wantNone checks that a refused installation left nothing.
func wantNone(t *testing.T, in *Installer) {
	t.Helper()
	list, err := in.List()
	if err != nil || len(list) > 0 {
		t.Errorf("installed %+v, %v", list, err)
	}
	if left, _ := filepath.Glob(filepath.Join(in.root, "*", "*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestVerification_NPM(t *testing.T) {
	registry := signaturetest.NewRegistry(t)
	sign := func(name, version, integrity string) signature.PackageSignature {
		return registry.Sign(t, name, version, integrity)
	}
	spec := codexPackage + "@" + codexVersion
	good := sign(codexPackage, codexVersion, digest)
	foreign := good
	foreign.KeyID = "SHA256:of-tomorrow"
	tests := []struct {
		name, dist string
		pin        string // of the package
		how        How    // "" when it is refused
		words      []string
	}{
		{"signed by the registry", distOf(codexPackage, codexVersion, digest, good), "", BySignature, []string{"the npm registry's key SHA256:made-in-a-test"}},
		{"a registry that passes no signatures on", distOf(codexPackage, codexVersion, digest), "", ByChecksum, []string{"the registry gives none"}},
		{"a key that is not known", distOf(codexPackage, codexVersion, digest, foreign), "", ByChecksum, []string{"SHA256:of-tomorrow", "does not know"}},
		{"an answer about something else", distOf("left-pad", codexVersion, digest, good), "", ByChecksum, []string{"answers left-pad@"}},
		{"no answer", "oops", "", ByChecksum, []string{"its signature is not known"}},
		{"pinned", "never asked", digest, ByDigest, []string{"this release of sandbox-agent"}},
		{"signed, but not what this release knows", distOf(codexPackage, codexVersion, digest, good), "sha512-WFla", "", []string{"it has the digest " + digest, "knows it with sha512-WFla", "nothing was installed", "another network"}},
		{"a signature of another version", distOf(codexPackage, codexVersion, digest, sign(codexPackage, "3.2.0", digest)), "", "", []string{"wrong signature", spec, "tell its maker", "--source"}},
		{"other contents than the signed ones", distOf(codexPackage, codexVersion, "sha512-WFla", sign(codexPackage, codexVersion, "sha512-WFla")), "", "", []string{"npm installed what has the digest " + digest, "sha512-WFla is signed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := useNPM(t, fakeNPM, codexPlace)
			t.Setenv("NPM_LOCK", lockOf(spec))
			t.Setenv("NPM_DIST", tt.dist)
			m := newMaker(t)
			in := m.installer(t, Options{Sources: []Source{NPM, Registry}})
			in.trust.registryKeys = []signature.RegistryKey{registry.Key}
			in.trust.digests = map[string]string{}
			if tt.pin != "" {
				in.trust.digests[spec] = tt.pin
			}
			r, err := in.Install(t.Context(), Request{Agent: "codex"})
			if tt.how == "" {
				wantProblem(t, err, problem.InstallFailed, tt.words...)
				if m.hitsOf("/registry.json") > 0 {
					t.Error("another source was asked")
				}
				wantNone(t, in)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantVerified(t, r.Installation, tt.how, tt.words...)
			if i, _ := in.Find("codex"); i.Verification != r.Verification {
				t.Errorf("the receipt says %s, the installation %s", i.Verification, r.Verification)
			}
			if tt.pin != "" && strings.Contains(readFile(t, log), " dist ") {
				t.Error("the registry was asked for what this release knows")
			}
		})
	}
}

func TestVerification_NPMDependencies(t *testing.T) {
	registry := signaturetest.NewRegistry(t)
	spec := codexPackage + "@" + codexVersion
	describe := func(name, version string, sigs ...signature.PackageSignature) []byte {
		return []byte(distOf(name, version, digest, sigs...))
	}
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	tests := []struct {
		name    string
		publish func(m *maker)
		how     How
		words   []string
	}{
		{"all are signed", func(m *maker) {
			m.put("/npm/@a/b/1.0.0", describe("@a/b", "1.0.0", registry.Sign(t, "@a/b", "1.0.0", digest)))
			m.put("/npm/c/2.0.0", describe("c", "2.0.0", registry.Sign(t, "c", "2.0.0", digest)))
		}, BySignature, nil},
		{"one is not", func(m *maker) {
			m.put("/npm/@a/b/1.0.0", describe("@a/b", "1.0.0", registry.Sign(t, "@a/b", "1.0.0", digest)))
			m.put("/npm/c/2.0.0", describe("c", "2.0.0"))
		}, ByChecksum, []string{"the registry gives none", "2 of 3 parts more: signature: @a/b@1.0.0, @openai/codex@3.2.1-linux-x64"}},
		{"the registry wants credentials", func(m *maker) {
			m.handle("/npm/@a/b/1.0.0", refuse)
			m.handle("/npm/c/2.0.0", refuse)
		}, ByChecksum, []string{"401", "which only npm has", "1 of 3 parts more"}},
		{"one is forged", func(m *maker) {
			m.put("/npm/@a/b/1.0.0", describe("@a/b", "1.0.0", registry.Sign(t, "@a/b", "1.0.1", digest)))
			m.put("/npm/c/2.0.0", describe("c", "2.0.0", registry.Sign(t, "c", "2.0.0", digest)))
		}, "", []string{"the package @a/b@1.0.0", "wrong signature"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			tt.publish(m)
			useNPM(t, fakeNPM, codexPlace)
			t.Setenv("NPM_LOCK", lockOf(spec, "@a/b@1.0.0", "c@2.0.0"))
			t.Setenv("NPM_DIST", distOf(codexPackage, codexVersion, digest, registry.Sign(t, codexPackage, codexVersion, digest)))
			t.Setenv("NPM_REGISTRY", m.URL+"/npm/")
			in := m.installer(t, Options{Sources: []Source{NPM}})
			in.trust.registryKeys = []signature.RegistryKey{registry.Key}
			r, err := in.Install(t.Context(), Request{Agent: "codex"})
			if tt.how == "" {
				wantProblem(t, err, problem.InstallFailed, tt.words...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantVerified(t, r.Installation, tt.how, tt.words...)
		})
	}
}

func TestVerification_Required(t *testing.T) {
	registry := signaturetest.NewRegistry(t)
	useNPM(t, fakeNPM, codexPlace)
	t.Setenv("NPM_LOCK", lockOf(codexPackage+"@"+codexVersion))
	in := newMaker(t).installer(t, Options{Sources: []Source{NPM}, RequireSignature: true})
	in.trust.registryKeys = []signature.RegistryKey{registry.Key}
	_, err := in.Install(t.Context(), Request{Agent: "codex"})
	wantProblem(t, err, problem.InstallFailed, "a signature is required: checksum-only", "the registry gives none")
	wantNone(t, in)
	t.Setenv("NPM_DIST", distOf(codexPackage, codexVersion, digest, registry.Sign(t, codexPackage, codexVersion, digest)))
	wantVerified(t, mustInstall(t, in, Request{Agent: "codex"}).Installation, BySignature)
}

// The list of checksums of Claude Code is signed.
func TestVerification_SignedList(t *testing.T) {
	key, other := signaturetest.NewOpenPGP(t), signaturetest.NewOpenPGP(t)
	fingerprint := recipes["claude"].vendor.layouts[0].list.fingerprint
	tests := []struct {
		name    string
		version string
		publish func(m *maker, list []byte)
		how     How
		words   []string
	}{
		{"signed", "2.1.200", func(m *maker, list []byte) {
			m.put("/claude/2.1.200/manifest.json.sig", key.Sign(t, list))
		}, BySignature, []string{"Anthropic's release key " + key.Fingerprint}},
		{"before the maker signed", "2.1.88", func(*maker, []byte) {}, ByChecksum, []string{"by 127.0.0.1", "from version 2.1.89 on"}},
		{"no signature", "2.1.200", func(*maker, []byte) {}, ByChecksum, []string{"could not be checked", "manifest.json.sig", "404"}},
		{"no key", "2.1.200", func(m *maker, list []byte) {
			m.put("/claude/2.1.200/manifest.json.sig", key.Sign(t, list))
			m.handle("/keys/claude-code.asc", http.NotFound)
		}, ByChecksum, []string{"claude-code.asc", "404"}},
		{"another key in its place", "2.1.200", func(m *maker, list []byte) {
			m.put("/claude/2.1.200/manifest.json.sig", other.Sign(t, list))
			m.put("/keys/claude-code.asc", other.Key)
		}, ByChecksum, []string{"does not hold the maker's"}},
		{"a list that was changed", "2.1.200", func(m *maker, list []byte) {
			m.put("/claude/2.1.200/manifest.json.sig", key.Sign(t, append(list, ' ')))
		}, "", []string{"the list of checksums", "wrong signature", "nothing was installed"}},
		{"a list of another version", "2.1.200", func(m *maker, list []byte) {
			old := []byte(strings.Replace(string(list), "2.1.200", "2.1.199", 1))
			m.put("/claude/2.1.200/manifest.json", old)
			m.put("/claude/2.1.200/manifest.json.sig", key.Sign(t, old))
		}, "", []string{`it is for version "2.1.199", and 2.1.200 was asked for`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			m.putClaude(tt.version, program(tt.version))
			m.put("/keys/claude-code.asc", key.Key)
			tt.publish(m, m.files["/claude/"+tt.version+"/manifest.json"].body)
			mirrors := mirrorsAt(m.URL)
			mirrors[claudeKeys] = m.URL + "/keys/claude-code.asc"
			in := m.installer(t, Options{Sources: []Source{Vendor}, Mirrors: mirrors})
			in.trust.fingerprints = map[string]string{fingerprint: key.Fingerprint}
			r, err := in.Install(t.Context(), Request{Agent: "claude"})
			if tt.how == "" {
				wantProblem(t, err, problem.InstallFailed, tt.words...)
				wantNone(t, in)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantVerified(t, r.Installation, tt.how, tt.words...)
		})
	}
}

// The programs of Codex are signed by the workflow that builds them.
func TestVerification_SignedFiles(t *testing.T) {
	const triple, release = "x86_64-unknown-linux-musl", "/github/openai/codex/releases/download/rust-v0.9.1/"
	authority := signaturetest.NewSigstore(t)
	who := codexWorkflow
	who.Name = strings.Replace(who.Name, "{version}", "0.9.1", 1)
	codex := program("codex-cli 0.9.1")
	bundle := func(file []byte) []byte {
		b := authority.Sign(t, file, who)
		return b.JSON(t)
	}
	tests := []struct {
		name    string
		bundles map[string][]byte
		how     How
		words   []string
	}{
		{"all", map[string][]byte{"codex": bundle(codex), "codex-code-mode-host": bundle([]byte("host"))}, BySignature, []string{"the workflow " + who.Name}},
		{"the program", map[string][]byte{"codex": bundle(codex)}, ByChecksum, []string{"its maker publishes no signature of bin/codex-code-mode-host", "1 of 2 parts more: signature: bin/codex"}},
		{"none", nil, ByChecksum, []string{"no signature of bin/codex"}},
		{"of another program", map[string][]byte{"codex": bundle([]byte("another"))}, "", []string{"the program bin/codex", "wrong signature"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			pack := tarGz(t, entry{name: "bin/codex", body: string(codex)}, entry{name: "bin/codex-code-mode-host", body: "host"})
			m.putRelease("openai/codex", "rust-v0.9.1", true, map[string][]byte{"codex-package-" + triple + ".tar.gz": pack})
			for name, b := range tt.bundles {
				m.put(release+name+"-"+triple+".sigstore", b)
			}
			in := m.installer(t, Options{Sources: []Source{Vendor}})
			in.trust.sigstore = func() signature.Sigstore { return authority.Trust }
			r, err := in.Install(t.Context(), Request{Agent: "codex"})
			if tt.how == "" {
				wantProblem(t, err, problem.InstallFailed, tt.words...)
				wantNone(t, in)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantVerified(t, r.Installation, tt.how, tt.words...)
			rep, err := in.Doctor(t.Context(), []string{"codex"})
			if err != nil || !strings.Contains(string(asJSON(rep)), "; verified: "+string(tt.how)) {
				t.Errorf("doctor: %v\n%s", err, asJSON(rep))
			}
		})
	}
}

// Receipts of earlier releases say only whether there was a checksum.
func TestVerification_OldReceipts(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	r := mustInstall(t, in, Request{Agent: "claude"})
	name := filepath.Join(r.Dir, recordName)
	text := readFile(t, name)
	for verified, how := range map[string]How{"true": ByChecksum, "false": Unverified} {
		old := strings.Replace(text, `"how": "checksum-only"`, `"how": ""`, 1)
		old = strings.Replace(old, `"verified": true`, `"verified": `+verified, 1)
		if old == text {
			t.Fatalf("the receipt is\n%s", text)
		}
		if err := os.WriteFile(name, []byte(old), 0o644); err != nil {
			t.Fatal(err)
		}
		i, _ := in.Find("claude")
		wantVerified(t, i, how, "installed by a release that kept no more")
	}
}

// The npm client itself, at a registry that signs.
func TestVerification_WithNPMItself(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	if _, err := npmClient(); err != nil {
		t.Skip("npm is not on this machine")
	}
	registry := signaturetest.NewRegistry(t)
	m := newMaker(t)
	pack := func(body string) []byte {
		return tarGz(t, entry{name: "package/package.json", body: `{"name":"@openai/codex","version":"3.2.1-linux-x64"}`, mode: 0o644}, entry{name: "package/vendor/x/bin/codex", body: body})
	}
	publish := func(body []byte, sig func(integrity string) signature.PackageSignature) {
		sum := sha512.Sum512(body)
		integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
		dist := map[string]any{"integrity": integrity, "tarball": m.URL + "/npm/codex.tgz", "signatures": []signature.PackageSignature{sig(integrity)}}
		version := func(v string) map[string]any {
			return map[string]any{"name": codexPackage, "version": v, "dist": dist}
		}
		m.put("/npm/codex.tgz", body)
		m.put("/npm/@openai/codex", asJSON(map[string]any{
			"name": codexPackage, "dist-tags": map[string]string{"latest": "3.2.1"},
			"versions": map[string]any{"3.2.1": version("3.2.1"), codexVersion: version(codexVersion)},
		}))
	}
	t.Setenv("NPM_CONFIG_REGISTRY", m.URL+"/npm/")
	t.Setenv("NPM_CONFIG_CACHE", t.TempDir())
	t.Setenv("NPM_CONFIG_USERCONFIG", "/dev/null")
	in := m.installer(t, Options{Sources: []Source{NPM}, Stall: 2 * time.Minute})
	in.trust.registryKeys = []signature.RegistryKey{registry.Key}

	publish(pack(string(program("codex 3.2.1"))), func(integrity string) signature.PackageSignature {
		return registry.Sign(t, codexPackage, codexVersion, integrity)
	})
	r := mustInstall(t, in, Request{Agent: "codex"})
	wantVerified(t, r.Installation, BySignature, registry.Key.ID)

	// Somebody puts another program there, with its right checksum.
	publish(pack(string(program("codex 3.2.1"))+"# more\n"), func(string) signature.PackageSignature {
		return registry.Sign(t, codexPackage, codexVersion, digest)
	})
	_, err := in.Install(t.Context(), Request{Agent: "codex", Reinstall: true})
	wantProblem(t, err, problem.InstallFailed, "wrong signature", "nothing was installed")
	wantOnly(t, in, r.Installation)
}
