package signature_test

import (
	"errors"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature/signaturetest"
)

func TestSigstore_Package(t *testing.T) {
	a, other := signaturetest.NewSigstore(t), signaturetest.NewSigstore(t)
	const name, version, integrity = "@maker/agent", "1.2.3", "sha512-YWJj"
	about := signaturetest.Attest(name, version, integrity, workflow)
	with := func(change func(*signaturetest.Attestation)) []byte {
		b := about
		change(&b)
		return a.Seal(t, b, nil)
	}
	tests := []struct {
		name string
		doc  []byte
		want error
	}{
		{"as it should be", a.Seal(t, about, nil), nil},
		{"of another package", with(func(b *signaturetest.Attestation) { b.Name = "@maker/other" }), signature.ErrWrong},
		{"of another version", with(func(b *signaturetest.Attestation) { b.Version = "1.2.4" }), signature.ErrWrong},
		{"of other contents", with(func(b *signaturetest.Attestation) { b.Integrity = "sha512-YWJk" }), signature.ErrWrong},
		{"another kind of statement", with(func(b *signaturetest.Attestation) { b.Kind = "text/plain" }), signature.ErrUnknown},
		{"logged when its certificate was over", with(func(b *signaturetest.Attestation) { b.At = b.At.Add(time.Hour) }), signature.ErrWrong},
		{"a log that is not known", other.Seal(t, about, nil), signature.ErrUnknown},
		{"no promise of the log", a.Seal(t, about, func(b map[string]any) {
			b["verificationMaterial"].(map[string]any)["tlogEntries"].([]any)[0].(map[string]any)["inclusionPromise"] = map[string]any{}
		}), signature.ErrUnknown},
		{"two signatures", a.Seal(t, about, func(b map[string]any) {
			e := b["dsseEnvelope"].(map[string]any)
			e["signatures"] = append(e["signatures"].([]any), e["signatures"].([]any)...)
		}), signature.ErrUnknown},
		{"nobody says", []byte(`{"attestations":[]}`), signature.ErrUnknown},
		{"a page of a portal", []byte("<html>"), signature.ErrUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			by, err := a.Trust.Package(tt.doc, name, version, integrity)
			if !errors.Is(err, tt.want) || err == nil && by != workflow {
				t.Errorf("by %+v, %v, want %v", by, err, tt.want)
			}
		})
	}
}

func FuzzSigstore_Package(f *testing.F) {
	a := signaturetest.NewSigstore(f)
	f.Add(a.Seal(f, signaturetest.Attest("agent", "1.2.3", "sha512-YWJj", workflow), nil))
	f.Add([]byte(`{"attestations":[{"predicateType":"https://slsa.dev/provenance/v1","bundle":{"dsseEnvelope":{"signatures":[{}]},"verificationMaterial":{"tlogEntries":[{}]}}}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if _, err := a.Trust.Package(doc, "agent", "9.9.9", "sha512-bm9ib2R5"); err == nil {
			t.Errorf("%q passed", doc)
		}
	})
}
