package install

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature/signaturetest"
)

// Where a package was built is said when the registry has it, and what is of something else
// is refused.
func TestVerification_Provenance(t *testing.T) {
	registry, sigstore := signaturetest.NewRegistry(t), signaturetest.NewSigstore(t)
	workflow := signature.Workflow{Issuer: "https://token.test", Name: "https://host.test/maker/agent/release.yml@refs/tags/v1"}
	attested := func(version string) []byte {
		return sigstore.Seal(t, signaturetest.Attest(codexPackage, version, digest, workflow), nil)
	}
	tests := []struct {
		name  string
		doc   []byte // nil for none
		how   How    // "" when it is refused
		words []string
	}{
		{"built by a workflow", attested(codexVersion), BySignature, []string{"the npm registry's key", "and the workflow " + workflow.Name}},
		{"of another version", attested("3.2.0"), "", []string{"the provenance of " + codexPackage, "wrong signature", "nothing was installed"}},
		{"the registry does not have what it names", nil, BySignature, []string{"where it was built is not known", "404"}},
		{"a form of tomorrow", []byte(`{"attestations":[{"predicateType":"https://slsa.dev/provenance/v9","bundle":{}}]}`), BySignature, []string{"where it was built is not known", "does not read"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMaker(t)
			useNPM(t, fakeNPM, codexPlace)
			t.Setenv("NPM_LOCK", lockOf(codexPackage+"@"+codexVersion))
			dist := distOf(codexPackage, codexVersion, digest, registry.Sign(t, codexPackage, codexVersion, digest))
			t.Setenv("NPM_DIST", strings.Replace(dist, `"dist":{`, `"dist":{"attestations":{"url":"`+m.URL+`/attestations"},`, 1))
			if tt.doc != nil {
				m.put("/attestations", tt.doc)
			}
			in := m.installer(t, Options{Sources: []Source{NPM}})
			in.trust = trust{registryKeys: []signature.RegistryKey{registry.Key}, sigstore: func() signature.Sigstore { return sigstore.Trust }, digests: map[string]string{}}
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
		})
	}
}
