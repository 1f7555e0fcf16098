package signature_test

import (
	"errors"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
	"sandboxagent.dev/sandbox-agent/adapters/install/signature/signaturetest"
)

var workflow = signature.Workflow{Issuer: "https://issuer.test", Name: "https://host.test/maker/agent/.workflows/release.yml@refs/tags/v1"}

func TestSigstore(t *testing.T) {
	a, other := signaturetest.NewSigstore(t), signaturetest.NewSigstore(t)
	file, changed := []byte("a program"), []byte("another program")
	with := func(change func(*signaturetest.Bundle)) []byte {
		b := a.Sign(t, file, workflow)
		change(&b)
		return b.JSON(t)
	}
	good := with(func(*signaturetest.Bundle) {})
	another := a.Sign(t, file, workflow)
	elsewhere := other.Sign(t, file, workflow)
	tests := []struct {
		name string
		doc  []byte
		file []byte
		by   signature.Workflow
		want error
	}{
		{"as it should be", good, file, workflow, nil},
		{"of another file", good, changed, workflow, signature.ErrWrong},
		{"by another workflow", good, file, signature.Workflow{Issuer: workflow.Issuer, Name: workflow.Name + "2"}, signature.ErrWrong},
		{"somebody else vouches", good, file, signature.Workflow{Issuer: "https://other.test", Name: workflow.Name}, signature.ErrWrong},
		{"a certificate of another authority", with(func(b *signaturetest.Bundle) { *b = a.Log(t, elsewhere, b.Time) }), file, workflow, signature.ErrWrong},
		{"a log that is not known", elsewhere.JSON(t), file, workflow, signature.ErrUnknown},
		{"a promise of another log", with(func(b *signaturetest.Bundle) { b.Promise = elsewhere.Promise }), file, workflow, signature.ErrWrong},
		{"a promise for another signature", with(func(b *signaturetest.Bundle) { b.Signature = another.Signature }), file, workflow, signature.ErrWrong},
		{"a promise for another certificate", with(func(b *signaturetest.Bundle) { b.Cert = another.Cert }), file, workflow, signature.ErrWrong},
		{"logged when its certificate was over", with(func(b *signaturetest.Bundle) { *b = a.Log(t, *b, b.Time+3600) }), file, workflow, signature.ErrWrong},
		{"another time than the log's", with(func(b *signaturetest.Bundle) { b.Time++ }), file, workflow, signature.ErrWrong},
		{"the newer form", []byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}`), file, workflow, signature.ErrUnknown},
		{"a page of a portal", []byte("<html>"), file, workflow, signature.ErrUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := a.Trust.File(tt.doc, signaturetest.SHA256(tt.file), tt.by); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// The public instance is known by the SHA-256 of its log's key.
func TestSigstore_Public(t *testing.T) {
	s := signature.PublicSigstore()
	if s.LogID != "c0d23d6ad406973f9559f3ba2d1ca01f84147d8ffc5b8445c224f98b9591801d" {
		t.Errorf("the log is %s", s.LogID)
	}
	a := signaturetest.NewSigstore(t)
	b := a.Sign(t, []byte("x"), workflow)
	if err := s.File(b.JSON(t), signaturetest.SHA256([]byte("x")), workflow); !errors.Is(err, signature.ErrUnknown) {
		t.Errorf("somebody else's log: %v", err)
	}
}

func FuzzSigstore(f *testing.F) {
	a := signaturetest.NewSigstore(f)
	f.Add(a.Sign(f, []byte("x"), workflow).JSON(f))
	f.Add([]byte(`{"base64Signature":"AA==","cert":"AA==","rekorBundle":{"SignedEntryTimestamp":"AA=="}}`))
	never := signaturetest.SHA256([]byte("a file that nobody signed"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if err := a.Trust.File(doc, never, workflow); err == nil {
			t.Errorf("%q passed", doc)
		}
	})
}
